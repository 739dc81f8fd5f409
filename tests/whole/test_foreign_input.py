"""Pages, answers, logs, recordings, options of others: a value or a sentence, in bounded time, nothing secret."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from midstream.advice.pool import PoolError, pool_of_log
from midstream.cli import main
from midstream.journal import Journal
from midstream.sources.prometheus import PrometheusError, PrometheusSource
from midstream.sources.server import PageError, view_of
from support.metrics_pages import Served, serving, vllm
from support.records import a_record

TOKEN = "t0ken-that-is-never-shown"
CONTROL = "\x1b]0;title\x07\x1b[31mred\x1b[0m\x9b2J\u202e\r[/red]"
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


@contextmanager
def answering(answer: Callable[[int], bytes]) -> Iterator[str]:
    """Answer every request on a connection of its own with what `answer` gives for its number."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for number in range(1000):
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with suppress(OSError), connection:
                    connection.settimeout(5)
                    connection.recv(65536)
                    connection.sendall(answer(number))
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):  # a request that is left unread would reset the connection
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def page(body: bytes, kind: str = "text/plain", status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}"
    head += "Connection: close\r\n\r\n"
    return head.encode("latin-1") + body


SLOW_PAGES = {
    "a line of quotes": 'vllm:x{a="' + '\\"' * 1_250_000 + '"} 1\n',
    "100,000 labels": "vllm:x{" + ",".join(f'l{n}="v"' for n in range(100_000)) + "} 1\n",
    "many long lines": ('vllm:x{a="' + '\\"' * 4000 + '"} 1\n') * 1500,
    "series of others": 'other_total{a="b",c="d"} 12345\n' * 400_000,
    "many series": "".join(f'vllm:x{{a="{n}"}} 1\n' for n in range(500_000)),
    "empty lines": "\n" * 15_000_000,
    "deep JSON": "[" * 5_000_000,
    "wide JSON": "[" + '{"iter":1},' * 1_000_000 + '{"iter":1}]',
}


@pytest.mark.parametrize("text", SLOW_PAGES.values(), ids=SLOW_PAGES)
def test_reading_a_page_ends_soon_after_its_deadline(text: str) -> None:
    """The deadline is over reading and parsing."""
    began = time.monotonic()
    with suppress(PageError):
        view_of(text, "text/plain", deadline=began + 1.0)

    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "body",
    [SLOW_PAGES["a line of quotes"].encode(), b"\xff-" * 400_000],
    ids=["quotes", "punycode"],
)
def test_watch_ends_soon_after_its_timeout(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(lambda _: page(body, "text/plain; charset=punycode")) as url:
        began = time.monotonic()
        assert main(["watch", "--server", url, "--once", "--timeout", "2"]) == 1
        assert time.monotonic() - began < 20
    assert "this is a bug" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "log",
    [
        "llama_kv_cache" * 20_000,
        "llama_kv_cache: size = " + "9" * 280_000,
        "A" * 280_000,
        "Allocated " + "1." * 140_000,
    ],
    ids=["names", "digits", "capitals", "dots"],
)
def test_a_log_is_searched_in_linear_time(log: str) -> None:
    """22 s for 280 kB it was."""
    began = time.monotonic()
    with pytest.raises(PoolError):
        pool_of_log(log)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "location",
    [
        "http://[::1",
        "http://[",
        "http://a\tb/",
        "//\x9b2J/",
        "/x\x1b[31m",
        "http://\xff/",
        "ftp://x/",
        "http://a:99999/",
    ],
    ids=repr,
)
@pytest.mark.parametrize("command", ["watch", "advise", "report", "check", "probe"])
def test_an_odd_redirect_is_a_sentence(
    location: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {
        "watch": ["watch", "--once", "--server"],
        "advise": ["advise", "flags", "--server"],
        "report": ["report", "--prometheus"],
        "check": ["rules", "--check"],
        "probe": ["probe", "--timeout", "5", "-n", "1", "--model", "m"],
    }
    with answering(lambda _: page(b"", status="302 Found", more=f"Location: {location}\r\n")) as url:
        assert main([*commands[command], url]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "this is a bug" not in said
    assert not STEERS.search(said.strip())


@pytest.mark.parametrize(
    "kind", ["text/plain; charset", "text/plain; charset=", "text/plain; charset=\xff", "x;charset=idna", ""]
)
def test_an_odd_content_type_is_no_hindrance(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(lambda _: page(vllm(running=3).encode(), kind)) as url:
        assert main(["watch", "--once", "--server", url]) in (0, 1)
    assert "this is a bug" not in capsys.readouterr().err


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000, "1e400", "-1", "NaN", "+Inf"])
def test_numbers_that_none_can_have_are_unknown(digits: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On a page, in a label, in JSON."""
    metrics = vllm().replace('num_gpu_blocks="100"', f'num_gpu_blocks="{digits}"')
    metrics = metrics.replace(
        'num_requests_running{engine="0",model_name="m"} 1.0', f"num_requests_running {digits}"
    )
    iterations = (
        '[{"iter": 1, "numActiveRequests": %s, "kvCacheStats": {"maxNumBlocks": %s, "tokensPerBlock": 32}}]'
    )
    for text in (metrics, iterations % (digits, digits)):
        with serving(Served(text)) as served:
            status = main(["watch", "--once", "--json", "--server", served.url])
        printed = capsys.readouterr()
        assert "this is a bug" not in printed.err
        if status == 0:
            document = json.loads(printed.out)
            assert document["running"] is None or document["running"] >= 0


def series(**parts: Any) -> dict[str, Any]:
    return {"metric": {"outcome": "completed", "finish_reason": "stop"}, **parts}


ODD_VALUES: tuple[Any, ...] = ("NaN", "+Inf", "-Inf", "9" * 400, "9" * 5000, "x", None, {}, True)
ODD_RESULTS: list[Any] = [[series(value=[1, text])] for text in ODD_VALUES] + [
    [series(histograms=[[1, None]])],
    [series(histogram=[1, {"buckets": [[0, "5", "1", "3"]], "sum": "NaN"}])],
    [series(histogram=[1, {"buckets": [[0, "NaN", "Inf", "-3"], 5, []]}])],
    [series(values=[[1e400, "1"]])],
    [series(values=[[None, "1"], "x"])],
    [{"metric": {"le": "NaN"}, "value": [1, "1"]}, {"metric": {"vmrange": "9...1"}, "value": [1, "2"]}],
    [{"metric": {"vmrange": "-5...NaN"}, "value": [1, "2"]}, {"metric": {"le": "-1"}, "value": [1, "2"]}],
    [{"metric": {"outcome": "\ud800"}, "value": [1, "2"]}],
    [{"metric": {"outcome": 5}, "value": [1, "2"]}],
    [{"metric": []}, 7],
    {"a": 1},
]


@pytest.mark.parametrize("result", ODD_RESULTS, ids=lambda result: json.dumps(result)[:60])
@pytest.mark.parametrize("native", [False, True])
def test_what_a_prometheus_answers_is_a_value_or_a_sentence(result: Any, *, native: bool) -> None:
    names = [
        "stream_ended_total",
        "stream_max_gap_seconds",
        "stream_freezes_total",
        "gen_ai_client_token_usage",
    ]
    names += [] if native else [f"{name}_bucket" for name in names]

    def answer(path: str) -> str:
        data: Any = names if "/label/" in path else {"resultType": "vector", "result": result}
        return json.dumps({"status": "success", "data": data})

    with (
        serving(Served("", kind="application/json", answer=answer)) as served,
        PrometheusSource(served.url) as source,
    ):
        try:
            fleet = source.fleet(0, 3600)
        except PrometheusError:
            return
    for summary in (*fleet.summaries, fleet.total):
        assert summary.streams is None or 0 <= summary.streams < 1e300
        if summary.max_gap is not None:
            assert all(
                0 <= bucket.low <= bucket.high and bucket.count >= 0 for bucket in summary.max_gap.buckets
            )


@pytest.mark.parametrize(
    "text", ['{"status":"success","data":' + "[" * 100_000, "[" * 3_000_000, "9" * 5000, ""]
)
def test_json_that_cannot_be_read_is_a_sentence(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(lambda _: page(text.encode(), "application/json")) as url:
        for command in (["report", "--prometheus", url], ["rules", "--check", url]):
            assert main(command) == 1
            assert "does not answer as a Prometheus does" in capsys.readouterr().err


RECORDED: list[dict[str, Any]] = [
    {"request": {"url": "http://h/v1/chat/completions", "body": {"model": "m"}}},
    {"t": 0.1, "status": 200, "headers": {"content-type": "text/event-stream"}},
    {"t": 0.2, "line": "data: [DONE]"},
]


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (1, {"headers": {"x-a": "1\r\nset-cookie: b"}}),
        (1, {"headers": {"x\r\n": "1"}}),
        (1, {"headers": {"x": "\u2603"}}),
        (1, {"status": True}),
        (1, {"status": 10**400}),
        (1, {"t": 10**400}),
        (1, {"t": 1e300}),
        (2, {"event": CONTROL}),
        (0, {"request": {"url": f"http://h/{CONTROL}", "body": {"model": "m"}}}),
        (0, {"request": {"url": "http://[", "body": {"model": "m"}}}),
        (0, {CONTROL: 1}),
    ],
)
def test_an_odd_recording_is_a_sentence(
    line: int, change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[dict[str, Any]] = [dict(each) for each in RECORDED]
    lines[line] = {**lines[line], **change}
    if "event" in change:
        del lines[line]["line"]
    file = tmp_path / "r.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert main(["replay", str(file)]) == 1
    said = capsys.readouterr().err
    assert f"line {line + 1}" in said
    assert not STEERS.search(said.strip())


@pytest.mark.parametrize(
    "row", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "\udcff".encode("utf-8", "surrogateescape")]
)
def test_a_recording_that_is_no_json_is_a_sentence(
    row: str | bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(row if isinstance(row, bytes) else row.encode())
    assert main(["replay", str(file)]) == 1
    assert "this is a bug" not in capsys.readouterr().err


OPTIONS = [
    ["report", "--where", "model=\udcff"],
    ["report", "--where", f"model={CONTROL}"],
    ["report", "--where", CONTROL],
    ["report", "--since", "99999999999999w"],
    ["report", "--since", "9" * 400 + "d"],
    ["report", "--since", CONTROL],
    ["export", "--where", "\udcff=x"],
    ["advise", "max-tokens", "--since", "1e400w"],
    ["compare", "--at", "99999999999999w"],
    ["report", "--prometheus", "http://127.0.0.1:9", "--where", "model=\udcff"],
    ["rules", "--only", CONTROL],
    ["rules", "--config", CONTROL],
    ["rules", "--label", "1x=y"],
    ["rules", "--label", f"{CONTROL}=y"],
    ["rules", "--set", f"{CONTROL}=y"],
    ["watch", "--server", CONTROL],
    ["watch", "--server", "localhost", "--engine", CONTROL],
    ["probe", CONTROL],
    ["replay", CONTROL],
    ["dashboard", CONTROL],
    ["advise", "flags", "--engine", CONTROL],
    ["simulate", "--engine", CONTROL],
    ["serve", "--engine", CONTROL],
    [CONTROL],
]


@pytest.mark.parametrize("command", OPTIONS, ids=lambda command: repr(command[:3])[:50])
def test_an_odd_option_is_a_sentence_without_control_characters(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "s.db", threaded=False)
    journal.write(a_record())
    assert journal.close(60)
    monkeypatch.setenv("MIDSTREAM_JOURNAL", str(tmp_path / "s.db"))
    assert main(command) in (1, 2)
    printed = capsys.readouterr()
    assert "this is a bug" not in printed.err
    assert not STEERS.search(printed.err.replace("\n", ""))


@pytest.mark.parametrize(
    "settings",
    [
        f"window: {json.dumps(CONTROL)}",
        json.dumps({CONTROL: 1}),
        "objective: " + "9" * 5000,
        "a: " + "[" * 5000,
        "labels: {1x: y}",
        "a: &a [x, x]\nb: *a",
        "labels: [1]",
        "min_streams: .inf",
        "\ttab: 1",
        "min_streams: _",
        "min_streams: 0b",
        "a: 2001-99-99",
        "a: !!float x",
    ],
    ids=lambda text: text[:30],
)
def test_an_odd_file_of_settings_is_a_sentence(
    settings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(settings)
    assert main(["rules", "--config", str(file)]) == 1
    said = capsys.readouterr().err
    assert "this is a bug" not in said
    assert not STEERS.search(said.replace("\n", ""))


def test_names_in_a_journal_of_others_do_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command that reads one."""
    import sqlite3

    path = tmp_path / "s.db"
    journal = Journal(path, max_days=None, threaded=False)
    for number in range(60):
        journal.write(a_record(started_at=time.time() - 100 + number, freezes=1))
    assert journal.close(60)
    connection = sqlite3.connect(path)
    texts = ("operation", "provider", "server_address", "request_model", "response_model", "error_type")
    for name in texts:
        connection.execute(f"UPDATE streams SET {name} = ?", [CONTROL])  # noqa: S608 - a name of ours
    connection.execute(
        "UPDATE streams SET attributes = ?, finish_reasons = ?",
        [json.dumps({CONTROL: CONTROL}), json.dumps([CONTROL])],
    )
    connection.commit()
    connection.close()
    for command in (
        ["report"],
        ["report", "--json"],
        ["report", "--by", "model,server,operation"],
        ["export"],
        ["export", "--format", "jsonl"],
        ["advise", "max-tokens"],
        ["advise", "flags", "--engine", "vllm"],
        ["compare", "--at", "1m"],
    ):
        main([*command, "--journal", str(path)])
        printed = capsys.readouterr()
        assert not STEERS.search((printed.out + printed.err).replace("\r\n", "\n").replace("\n", "")), command


def test_names_on_a_page_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = vllm().replace('model_name="m"', 'model_name="' + CONTROL.replace("\r", "") + '"')
    with serving(Served(text)) as served:
        for command in (["watch", "--once"], ["watch", "--once", "--json"], ["advise", "flags"]):
            main([*command, "--server", served.url])
            printed = capsys.readouterr()
            assert not STEERS.search((printed.out + printed.err).replace("\n", ""))


@pytest.mark.parametrize("form", ["token", "url", "netrc"])
@pytest.mark.parametrize("where", ["body", "redirect", "model", "warning"])
def test_credentials_that_the_server_echoes_are_never_shown(
    form: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login {TOKEN}-user password {TOKEN}\n")
    netrc.chmod(0o600)
    if form == "netrc":
        monkeypatch.setenv("NETRC", str(netrc))
    if form == "token":
        monkeypatch.setenv("MIDSTREAM_SERVER_TOKEN", TOKEN)
        monkeypatch.setenv("MIDSTREAM_PROMETHEUS_TOKEN", TOKEN)
    answers = {
        "body": page(f"not for {TOKEN}".encode(), status="500 Oops"),
        "redirect": page(b"", status="302 Found", more=f"Location: http://{TOKEN}.example/\r\n"),
        "model": page(vllm().replace('model_name="m"', f'model_name="{TOKEN}"').encode()),
        "warning": page(
            json.dumps({"status": "success", "warnings": [f"hello {TOKEN}"], "data": []}).encode()
        ),
    }
    with answering(lambda _: answers[where]) as url:
        asked = url.replace("http://", f"http://me:{TOKEN}@") if form == "url" else url
        for command in (
            ["watch", "--once", "--server", asked],
            ["watch", "--once", "--json", "--server", asked],
            ["report", "--prometheus", asked],
            ["rules", "--check", asked],
        ):
            main(command)
    printed = capsys.readouterr()
    assert TOKEN not in (printed.out + printed.err).lower()
    assert "this is a bug" not in printed.err


def test_netrc_does_not_take_the_place_of_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("MIDSTREAM_SERVER_TOKEN", TOKEN)
    with serving(Served(vllm())) as served:
        assert main(["watch", "--once", "--server", served.url]) == 0
    assert served.asked[0][1]["Authorization"] == f"Bearer {TOKEN}"


def not_ending_stream() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    while True:
        yield b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'


@contextmanager
def endless(parts: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                connection.recv(65536)
                for part in parts():
                    connection.sendall(part)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def not_ending_models() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"
    while True:
        yield b'"data": [], ' * 1000


def not_ending_line() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
    while True:
        yield b"x" * 65536


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (not_ending_models, "sends more than"),
        (not_ending_stream, "had not ended its answer"),
        (not_ending_line, "sends more than"),
    ],
)
def test_a_probe_ends_with_a_server_that_never_stops(
    parts: Callable[[], Iterator[bytes]], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [] if parts is not_ending_models else ["--model", "m"]
    if parts is not_ending_stream:
        models += ["--max-tokens", "16"]
    with endless(parts) as url:
        began = time.monotonic()
        assert main(["probe", url, "-n", "1", "--timeout", "20", *models]) == 1
        assert time.monotonic() - began < 60
    printed = capsys.readouterr()
    assert said in printed.out + printed.err or "sends more than" in printed.out + printed.err
