"""The page of a report in a real browser: it draws, it asks nobody, and no name in it is ever a program."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path

import pytest

from midstream.report.page import page
from midstream.report.sections import sections
from real.programs import absent
from support.records import a_record
from support.report_records import HOSTILE, hostile, ten

PLOTS = ("timeline", "gaps", "exceedance", "lengths", "limit-use")


@dataclass(frozen=True)
class Seen:
    """What became of a page: its elements, what the console said, and which addresses were asked for."""

    dom: str
    console: list[str]
    asked: set[str]

    @property
    def title(self) -> str:
        found = re.search(r"<title>(.*?)</title>", self.dom, re.DOTALL)
        return html.unescape(found[1]) if found else ""

    def plot(self, name: str) -> str:
        """What was drawn into a plot."""
        start = self.dom.index(f'id="{name}"')
        return self.dom[start : self.dom.index("<figcaption>", start)]


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Seen]:
    """Open a page from a file, in a browser that has no network, and return what became of it."""
    browser = shutil.which("chromium") or absent("chromium")

    def opening(text: str, *more: str) -> Seen:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        net_log = tmp_path / "net.json"
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={tmp_path / 'browser'}",
            f"--log-net-log={net_log}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--virtual-time-budget=9000",
            "--window-size=1200,1600",
            *(more or ("--dump-dom",)),
            file.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        console = [line for line in done.stderr.splitlines() if ":CONSOLE:" in line or "CONSOLE(" in line]
        # Chromium itself looks for its maker's services, but not on behalf of a page: the origin of a file is null.
        ours = [line for line in net_log.read_text().splitlines() if '"initiator":"null"' in line]
        asked = set(re.findall(r'"url":"(https?:[^"]+)"', "\n".join(ours)))
        return Seen(done.stdout, console, asked)

    return opening


def whole(*more: str, title: str = "Streams") -> str:
    """A page of eleven streams, one of them hostile, with more behind it."""
    records = [*ten(), hostile()]
    parts = sections(records, ["model", "server", "team"], 20, zone=timezone.utc)
    return page(title, "11 streams", parts).replace("</body>", f"{''.join(more)}</body>")


def test_every_plot_is_drawn_without_a_word_on_the_console(opened: Callable[..., Seen]) -> None:
    seen = opened(whole())
    assert 'data-drawn="yes"' in seen.dom
    for name in PLOTS:
        assert '<svg class="main-svg"' in seen.plot(name), name
    timeline = seen.plot("timeline")
    assert timeline.count('class="point"') >= 20
    for kind in ("freeze", "shared freeze", "hidden freeze", "never ended"):
        assert f">{kind}<" in timeline
    assert seen.console == []


def test_nothing_is_asked_of_anybody(opened: Callable[..., Seen]) -> None:
    """The browser writes down every address that a page asks for."""
    assert opened(whole()).asked == set()
    assert opened('<!doctype html><img src="http://example.com/seen.png">').asked == {
        "http://example.com/seen.png"
    }


def test_no_button_sends_a_plot_anywhere(opened: Callable[..., Seen]) -> None:
    """Plotly has one that does, and shows it unless it is told not to."""
    seen = opened(whole())
    assert {title.lower() for title in re.findall(r'data-title="([^"]*)"', seen.dom)} == {
        "zoom", "pan", "zoom in", "zoom out", "reset axes", "download plot as a png",
    }  # fmt: skip


def test_no_script_of_a_name_runs(opened: Callable[..., Seen]) -> None:
    seen = opened(whole())
    assert seen.title == "Streams"
    drawn = seen.dom.partition("<main>")[2].partition("<footer>")[0]
    assert "<script" not in drawn
    assert "<img" not in drawn
    assert HOSTILE in html.unescape(re.sub(r"<[^>]*>", "", drawn))


def test_escaping_alone_is_enough(opened: Callable[..., Seen]) -> None:
    """Without the policy that forbids scripts, and while somebody points at the bars of the hostile stream."""
    pointing = """<script>
    setTimeout(() => {
      const plot = document.getElementById("timeline");
      const told = [];
      plot.data.forEach((trace, curve) => (trace.hovertext || []).forEach((text, point) => {
        if (!text.includes("owned")) return;
        Plotly.Fx.hover(plot, [{ curveNumber: curve, pointNumber: point }]);
        told.push(plot.querySelector(".hoverlayer").textContent);
      }));
      const at = document.createElement("pre");
      at.id = "told";
      at.textContent = JSON.stringify(told);
      document.body.append(at);
    }, 3000);
    </script>"""
    unguarded = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", whole(pointing))
    seen = opened(unguarded)
    assert seen.title == "Streams"
    assert seen.console == []
    found = re.search(r'<pre id="told">(.*?)</pre>', seen.dom, re.DOTALL)
    assert found is not None
    told = json.loads(html.unescape(found[1]))
    assert len(told) == 3
    assert all("</script><script>document.title='owned'" in text for text in told), told


def test_the_policy_stops_a_script_that_got_in(opened: Callable[..., Seen]) -> None:
    """Should escaping ever fail, the browser still runs nothing but our own."""
    seen = opened(
        whole("<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">")
    )
    assert seen.title == "Streams"
    assert 'data-drawn="yes"' in seen.dom
    assert any("Content Security Policy" in line for line in seen.console)


@pytest.mark.parametrize(("scheme", "paper"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(13, 17, 23)")])
def test_it_is_light_or_dark_as_the_reader_likes_it(
    opened: Callable[..., Seen], scheme: str, paper: str
) -> None:
    flags = ["--dump-dom", f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"]
    seen = opened(whole(), *flags)
    assert f"background: {paper}" in seen.plot("timeline")


def test_it_can_be_printed(opened: Callable[..., Seen], tmp_path: Path) -> None:
    """On paper the plots are there, too, and as wide as it is."""
    printed = tmp_path / "report.pdf"
    opened(whole(), f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    pages = printed.read_bytes().count(b"/Type /Page\n")
    assert printed.stat().st_size > 50_000
    assert 2 <= pages <= 12


def test_a_thousand_bars_are_drawn_soon(opened: Callable[..., Seen]) -> None:
    many = [
        a_record(
            started_at=3.0 * n,
            duration_s=20.0,
            max_gap_s=n / 1000,
            time_to_first_content_s=0.5,
            request_model=f"m{n % 3}",
        )
        for n in range(5000)
    ]
    seen = opened(page("Streams", "5,000 streams", sections(many, ["model"], 20)))
    assert 'data-drawn="yes"' in seen.dom
    assert seen.plot("timeline").count('class="point"') >= 1000
    assert seen.console == []
