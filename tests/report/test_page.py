"""The page of a report as a file: what is in it, what is escaped, what it asks for, how large it gets."""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import json
import re
from datetime import timezone
from html.parser import HTMLParser
from typing import Any

import plotly.graph_objects
import pytest

from midstream.advice.threshold import threshold_of
from midstream.report.answer_lengths import lengths, limit_use
from midstream.report.at_once import BINS, most_at_once
from midstream.report.figure import COLOURS, Figure, label
from midstream.report.gaps import Series, bucket, by_model, exceedance, gap_counts
from midstream.report.lanes import laid_out, longest_gap
from midstream.report.page import page
from midstream.report.section import Section
from midstream.report.sections import sections
from midstream.report.timeline import about, timeline
from support.records import a_record
from support.report_records import AT, HOSTILE, HOSTILE_ATTRIBUTE, HOSTILE_SERVER, hostile, span, ten


class Read(HTMLParser):
    """What a browser takes a page for: its elements, its text, and the scripts in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._within = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    records = [*ten(), hostile()]
    return page(
        "Streams", "11 streams", sections(records, ["model", "server", "team"], 20, zone=timezone.utc)
    )


@pytest.fixture(scope="module")
def read(html: str) -> Read:
    return Read(html)


def test_the_page_says_it_in_words_first_then_draws_then_tabulates(read: Read) -> None:
    headings = [text.strip() for text in read.text]
    wanted = ["In short", "When", "How long", "Lengths and limits", "By model", "By server", "By team"]
    assert [text for text in headings if text in wanted] == wanted
    plots = [attributes["id"] for attributes in read.all("div") if attributes.get("class") == "plot"]
    assert plots == ["timeline", "gaps", "exceedance", "lengths", "limit-use"]
    assert len(read.all("table")) == 3 * 5 + 1  # one by phase, since a stream reasoned


def test_every_plot_says_in_words_what_it_shows(read: Read) -> None:
    for attributes in read.all("div"):
        if attributes.get("class") == "plot":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"] or "") > 40


def test_the_page_asks_nobody_for_anything(read: Read) -> None:
    """No element names an address, and the browser is told to allow none."""
    for tag, attributes in read.elements:
        assert "src" not in attributes, tag
        assert "action" not in attributes, tag
        assert attributes.get("href") in {None, "data:,"}, tag
    policy = next(each["content"] for each in read.all("meta") if "http-equiv" in each) or ""
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("style-src")[0]


def test_only_our_own_scripts_may_run(read: Read) -> None:
    """Two blocks of data, Plotly and ours, of which the policy names the hashes."""
    policy = next(each["content"] for each in read.all("meta") if "http-equiv" in each) or ""
    kinds = [each.get("type") for each in read.all("script")]
    assert kinds == ["application/json", "application/json", None, None]
    for script in read.scripts[2:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_names_of_others_are_text_and_nothing_else(read: Read, html: str) -> None:
    assert not read.all("img")
    assert not read.all("b")
    assert html.count("</script") == 4
    shown = "".join(read.text)
    assert HOSTILE in shown
    assert HOSTILE_ATTRIBUTE in shown
    assert "<b>evil</b>.example.com" in shown
    ours = html.replace(max(read.scripts, key=len), "")  # Plotly itself may hold what it likes
    for invisible in "\u202e\u2066\x1b\x00":
        assert invisible not in ours
        assert f"\\u{ord(invisible):04x}" not in "".join(read.scripts[:1])
    assert HOSTILE_SERVER not in shown


def test_a_command_in_a_sentence_is_set_as_code_and_a_name_is_not() -> None:
    shown = page("t", "a", [Section("s", sentences=("see `midstream advise`, says `<b>`",))])
    assert "see <code>midstream advise</code>, says <code>&lt;b&gt;</code>" in shown


def test_a_label_is_shown_as_it_is_by_plotly() -> None:
    """Plotly reads tags and entities in labels."""
    assert label("<b>&amp;</b>\u202e") == "&lt;b&gt;&amp;amp;&lt;/b&gt;"
    assert label("<freeze>") not in COLOURS
    told = about(hostile(), timezone.utc)
    assert set(re.findall(r"<[^>]*>", told)) == {"<br>"}


def coloured(value: Any) -> Any:
    """A figure with its colours, as the page's script gives them to it."""
    if isinstance(value, str):
        return COLOURS[value][0] if value in COLOURS else value
    if isinstance(value, list):
        return [coloured(each) for each in value]
    if isinstance(value, dict):
        return {key: coloured(each) for key, each in value.items()}
    return value


FIGURES = [
    timeline([*ten(), hostile()]),
    gap_counts(by_model(ten()), threshold_of(ten())),
    exceedance(by_model(ten()), threshold_of(ten())),
    lengths(ten()),
    limit_use(ten()),
]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_plotly_knows_everything_that_a_figure_says(figure: Figure) -> None:
    """Its own checks find a misspelt name or a wrong value; and JSON can hold it."""
    drawn = coloured(copy.deepcopy(figure.as_json()))
    plotly.graph_objects.Figure(drawn)
    assert "<" not in re.sub(r"<br>|</?b>|<extra></extra>", "", json.dumps(drawn, allow_nan=False))


def traces(figure: Figure) -> dict[str, Any]:
    return {trace["name"]: trace for trace in figure.data}


def test_the_timeline_draws_each_kind_of_freeze_in_its_own_way() -> None:
    drawn = traces(timeline(ten(), timezone.utc))
    assert list(drawn) == [
        "until first content", "answer", "freeze", "shared freeze", "hidden freeze", "never ended",
        "open at once", "frozen at once",
    ]  # fmt: skip
    assert drawn["freeze"]["base"] == [(1_790_000_000 + 4 + 5) * 1000]
    assert drawn["freeze"]["x"] == [12_000]
    assert [each["x"] for each in (drawn["shared freeze"], drawn["hidden freeze"])] == [[6000, 6000], [7000]]
    colours = [drawn[name]["marker"]["color"] for name in ("freeze", "shared freeze", "hidden freeze")]
    assert len(set(colours)) == 3
    assert drawn["hidden freeze"]["marker"]["pattern"] == {"shape": "/", "fgcolor": "<hidden>"}
    assert drawn["never ended"]["x"] == [(1_790_000_000 + 5 + 25) * 1000]


def test_bars_of_one_lane_have_edges_so_that_they_do_not_touch() -> None:
    """Of streams one after another each is told apart; one too short for an edge stays to be seen."""
    lane = [a_record(started_at=10.0 * n, duration_s=10.0, time_to_first_content_s=5.0) for n in range(10)]
    drawn = traces(timeline([*lane, a_record(started_at=100.0, duration_s=0.2)], timezone.utc))
    waiting, answer = (drawn[name]["marker"]["line"] for name in ("until first content", "answer"))
    assert waiting == {"color": [*["<paper>"] * 10, "<stream>"], "width": 1}
    assert answer == {"color": ["<paper>"] * 10, "width": 1}
    assert COLOURS["<paper>"] == ("#ffffff", "#0d1117")


def test_no_line_is_drawn_where_there_were_several_thresholds() -> None:
    """Two programs write into one journal, and each has its own."""
    records = [
        a_record(max_gap_s=0.18),
        a_record(max_gap_s=4.3, freezes=1, frozen_s=4.3, freeze_spans=(span(1.0, 4.3),), freeze_after_s=2.0),
    ]
    threshold = threshold_of(records)
    for figure in (gap_counts(by_model(records), threshold), exceedance(by_model(records), threshold)):
        assert figure is not None
        assert "shapes" not in figure.layout
        assert "annotations" not in figure.layout
    drawn = gap_counts(by_model(records), threshold)
    assert drawn is not None
    assert "several thresholds: 2, 5 s" in drawn.caption


def test_a_table_colours_only_what_froze_and_for_how_long(read: Read, html: str) -> None:
    assert not [each for each in read.all("tr") if each.get("class") not in {None, "total"}]
    assert re.findall(r'<td class="number frozen">([^<]*)</td>', html.partition("By model")[2])[:4] == [
        "2 of 4", "24.0 s", "1 of 1", "6.50 s",
    ]  # fmt: skip


def test_what_was_shared_stands_in_a_column() -> None:
    """Both streams were frozen from 24 to 30 s after the first began."""
    figure = timeline(ten(), timezone.utc)
    columns = [shape for shape in figure.layout["shapes"] if shape["type"] == "rect"]
    assert [(column["x0"] - 1000 * AT, column["x1"] - 1000 * AT) for column in columns] == [(24_000, 30_000)]


def test_pointing_at_a_bar_tells_which_stream_it_is() -> None:
    assert traces(timeline(ten(), timezone.utc))["freeze"]["hovertext"] == [
        (
            "<b>freeze: 12.0 s</b> at 5.0 s, text<br>big at api.example.com:8000<br>2026-09-21 14:13:24, 40.0 s, "
            "completed (length)<br>first content 1.00 s, longest gap 12.0 s<br>300 tokens, of 300"
        )
    ]


def test_no_two_bars_lie_on_one_another() -> None:
    laying = laid_out(ten())
    by_lane: dict[int, list[tuple[float, float]]] = {}
    for each in laying.drawn:
        record = each.record
        by_lane.setdefault(each.lane, []).append((record.started_at, record.started_at + record.duration_s))
    for spans in by_lane.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    assert len(by_lane) == 10


def test_a_lane_is_used_again_when_it_is_free() -> None:
    laying = laid_out([a_record(started_at=10.0 * n, duration_s=10.0) for n in range(50)])
    assert {each.lane for each in laying.drawn} == {0}


def test_each_server_has_lanes_of_its_own() -> None:
    laying = laid_out([a_record(server_address=name, started_at=n) for n, name in enumerate("abab")])
    assert [(block.server, block.first, block.last) for block in laying.blocks] == [
        ("a:8000", 0, 0),
        ("b:8000", 1, 1),
    ]


def test_of_too_many_streams_those_with_the_longest_gaps_are_drawn_and_it_is_said() -> None:
    many = [a_record(started_at=float(n), max_gap_s=n / 1000) for n in range(3000)]
    laying = laid_out(many)
    assert (len(laying.drawn), laying.total) == (1000, 3000)
    assert min(longest_gap(each.record) for each in laying.drawn) == 2.0
    assert timeline(many, timezone.utc).caption.startswith(
        "Drawn are the 1,000 streams with the longest gaps of 3,000, each as a bar; the curves above count all"
    )


def test_a_hidden_freeze_counts_as_a_gap_when_streams_are_chosen() -> None:
    hidden = a_record(max_gap_s=0.1, hidden=1, freeze_spans=(span(1.0, 9.0, hidden=True),))
    assert longest_gap(hidden) == 9.0
    assert longest_gap(a_record()) == -1.0


def test_the_curves_count_the_most_that_were_open_in_each_part_of_time() -> None:
    counts = most_at_once([(0.0, 10.0), (2.0, 4.0), (4.0, 4.5)], 0.0, 1.0)
    assert counts[:12] == [1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0]
    assert len(counts) == BINS + 1


def test_gaps_are_counted_in_buckets_of_their_logarithm() -> None:
    assert [bucket(gap) for gap in (0.0, 0.001, 0.0015, 0.0016, 0.01, 0.1, 1.0, 5.0, 10.0)] == [
        0, 0, 0, 1, 5, 10, 15, 18, 20,
    ]  # fmt: skip
    figure = gap_counts(by_model(ten()), threshold_of(ten()))
    assert figure is not None
    assert {trace["name"]: sum(trace["y"]) for trace in figure.data} == {
        "big (4 streams)": 4, "small (4 streams)": 4,
    }  # fmt: skip
    assert figure.layout["annotations"][0]["text"] == "freeze, 5 s"


def test_the_curve_says_how_many_were_silent_for_so_long() -> None:
    figure = exceedance(
        [Series("m", [a_record(max_gap_s=gap) for gap in (0.1, 1.0, 10.0, 10.0)])], threshold_of([])
    )
    assert figure is not None
    assert figure.data[0]["x"] == [-1.0, 0.0, 1.0, 1.0]
    assert figure.data[0]["y"] == [1.0, 0.75, 0.5, 0.25]


def test_lengths_stand_against_the_limits_that_were_asked_for() -> None:
    figure = lengths(ten())
    assert figure is not None
    assert {trace["name"]: sum(trace["y"]) for trace in figure.data} == {
        "ended of themselves (6)": 6, "ended at a limit (2)": 2,
    }  # fmt: skip
    assert [shape["x0"] for shape in figure.layout["shapes"]] == [200, 300]
    assert "200 (4 streams), 300 (1 stream)" in figure.caption
    assert figure.caption.endswith("Of 2 streams the length is unknown.")


def test_where_nothing_is_known_nothing_is_drawn_and_it_is_said() -> None:
    nothing = [a_record(output_tokens=None)]
    assert gap_counts(by_model(nothing), threshold_of(nothing)) is None
    assert exceedance(by_model(nothing), threshold_of(nothing)) is None
    assert (lengths(nothing), limit_use(nothing)) == (None, None)
    said = [sentence for part in sections(nothing, ["model"], 20) for sentence in part.sentences]
    assert "No gap could be measured, so there is none to draw." in said
    assert "The servers reported no token counts, so the lengths are unknown." in said


def test_before_and_after_stand_side_by_side_with_a_verdict() -> None:
    before = [a_record(started_at=float(n), max_gap_s=8.0, freezes=1, frozen_s=8.0) for n in range(40)]
    after = [a_record(started_at=100.0 + n, max_gap_s=0.1) for n in range(40)]
    part = sections([*before, *after], ["model"], 20, halves=(before, after))[1]
    assert part.title == "Before and after"
    assert part.sentences[0].startswith("Better: the share of streams that froze fell from 100 % to 0")
    assert [figure.name for figure in part.figures] == ["before-after"]
    shown = {row.name: row.cells for row in part.tables[0].rows}
    assert shown["froze"] == ("40 of 40", "0 of 40")
    assert part.tables[0].notes[0] == "froze: a gap of 5 s or more."
    assert shown["longest gap, p99"] == ("8.00 s", "0.10 s")


def test_a_page_of_very_many_streams_stays_small() -> None:
    """Beside Plotly, which is most of it, less than 2 MB."""
    many = [
        a_record(
            started_at=60.0 * n,
            max_gap_s=n / 1000,
            request_model=f"model-{n % 40}",
            time_to_first_content_s=0.1,
        )
        for n in range(20_000)
    ]
    html = page("t", "a", sections(many, ["model", "server"], 20))
    assert len(html) - max(map(len, Read(html).scripts)) < 2_000_000
