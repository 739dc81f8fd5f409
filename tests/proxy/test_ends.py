"""How streams end on either side of the proxy: neither side is left waiting, and no end looks better than it was."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from midstream.testing import DONE, finish, role, text
from support.proxying import ASK, LAST, SSE_HEAD, Line, chunked, post, proxied, raw_server, read_all, sending
from support.waiting import until

BEGUN = SSE_HEAD + chunked(role().encode(), text("Hel").encode())
REST = chunked(text("lo").encode(), finish().encode(), DONE.encode()) + LAST
CLOSE = b"Connection: close"
SOON_S = 10.0
"""It takes milliseconds (docs/performance.md); the test allows for a machine that has other work."""


@pytest.mark.parametrize("begun", [True, False], ids=["in the stream", "before its head"])
def test_the_upstream_is_left_when_the_client_leaves(begun: bool) -> None:
    """At once, so that the model does not go on for a client that is gone; its open gap is recorded."""
    left: list[float] = []

    def play(line: Line) -> None:
        if begun:
            line.send(BEGUN)
        left.append(line.until_gone())

    with raw_server(play) as upstream, proxied(upstream.url) as proxy:
        with proxy.connect() as client:
            client.sendall(post())
            until(lambda: upstream.lines)
            if begun:
                got = b""
                while b"Hel" not in got:
                    got += client.recv(4096)
            time.sleep(0.3)
            gone = time.monotonic()
        until(lambda: left)
        assert left[0] - gone < SOON_S
        if begun:
            record = proxy.record
            assert (record.outcome, record.max_gap_open) == ("cancelled", True)
            assert 0.25 < (record.max_gap_s or 0) < 5


def test_the_upstream_is_left_when_the_client_leaves_in_its_upload() -> None:
    """It has half a request then, and gets no end of it."""
    seen: list[bytes] = []

    def listen() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65536):
                seen.append(data)
        seen.append(b"<closed>")

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=listen, daemon=True).start()
    with proxied(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy, proxy.connect() as client:
        client.sendall(post()[:-20])
        until(lambda: seen)
        client.close()
        until(lambda: seen[-1] == b"<closed>")
    listener.close()
    assert b"".join(seen[:-1]).endswith(ASK[:-20])


@pytest.mark.parametrize("death", ["reset", "close"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_an_answer_that_breaks_is_cut_for_the_client(death: str, version: str) -> None:
    """It gets what there was and no end; with HTTP/1.0, where a close would be an end, a reset."""

    def play(line: Line) -> None:
        line.send(BEGUN)
        time.sleep(0.2)
        {"reset": line.reset, "close": line.connection.close}[death]()

    with raw_server(play) as upstream, proxied(upstream.url) as proxy:
        answer = proxy.ask(post().replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1))
        record = proxy.record

    assert b"Hel" in answer
    assert not answer.endswith(LAST)
    assert answer.endswith(b"<reset>") == (version == "1.0")
    assert (record.outcome, record.content_chunks) == ("error", 1)


def test_a_body_with_a_length_that_breaks_is_cut_as_well() -> None:
    """The client misses bytes."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"
    with (
        raw_server(sending(head + b"four", then="close")) as upstream,
        proxied(upstream.url) as proxy,
    ):
        answer = proxy.ask(b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert answer == head + b"four"


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def error_of(answer: bytes) -> tuple[int, dict[str, object]]:
    """The status and the error of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\ncontent-type: application/json" in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split()[1]), error


@pytest.mark.parametrize(
    ("host", "status", "code", "message"),
    [
        ("127.0.0.1:{closed}", 502, "upstream_refused", "The model server refuses connections."),
        (
            "no-such-host.invalid",
            502,
            "upstream_unresolved",
            "The name of the model server cannot be resolved.",
        ),
        (
            "127.0.0.1:{silent}",
            504,
            "upstream_timeout",
            "The model server did not begin to answer within 0.3 s.",
        ),
        (
            "127.0.0.1:{rude}",
            502,
            "upstream_disconnected",
            "The model server closed the connection, or sent no valid HTTP, before it answered.",
        ),
        (
            "127.0.0.1:{mute}",
            502,
            "upstream_disconnected",
            "The model server closed the connection, or sent no valid HTTP, before it answered.",
        ),
    ],
)
def test_what_cannot_be_answered_gets_an_error_that_names_the_cause(
    host: str, status: int, code: str, message: str
) -> None:
    """In OpenAI's shape; neither an address nor a name of the inside is in it."""
    with (
        raw_server(lambda line: line.until_gone()) as silent,
        raw_server(lambda line: line.send(b"220 ready\r\n\r\n")) as rude,
        raw_server(lambda line: line.connection.close()) as mute,
    ):
        ports = {"closed": closed_port()} | {
            name: server.url.rpartition(":")[2]
            for name, server in (("silent", silent), ("rude", rude), ("mute", mute))
        }
        with proxied(f"http://{host.format(**ports)}", head_s=0.3) as proxy:
            answer = proxy.ask(post(ASK, b"/v1/chat/completions", CLOSE))
    assert error_of(answer) == (
        status,
        {"message": message, "type": "upstream_error", "param": None, "code": code},
    )
    assert proxy.records == []


def test_an_end_that_drains_lets_open_streams_finish_and_takes_no_new_ones() -> None:
    """As SIGTERM does it: the answer is whole, and its record is there."""
    go_on = threading.Event()

    def play(line: Line) -> None:
        line.send(BEGUN)
        go_on.wait(20)
        line.send(REST)

    with raw_server(play) as upstream, proxied(upstream.url, drain_s=20) as proxy, proxy.connect() as client:
        client.sendall(post())
        got = b""
        while b"Hel" not in got:
            got += client.recv(4096)
        proxy.server.stop(drain=True)
        until(lambda: not _can_connect(proxy.port))
        go_on.set()
        got += read_all(client)
        proxy.thread.join(20)
        assert not proxy.thread.is_alive()
        assert got.endswith(LAST)
        assert proxy.record.outcome == "completed"


def test_a_stream_that_outlasts_the_drain_is_cut() -> None:
    """With its record, and the upstream is left."""
    left: list[float] = []

    def play(line: Line) -> None:
        line.send(BEGUN)
        left.append(line.until_gone())

    with raw_server(play) as upstream, proxied(upstream.url, drain_s=0.2) as proxy, proxy.connect() as client:
        client.sendall(post())
        got = b""
        while b"Hel" not in got:
            got += client.recv(4096)
        proxy.server.stop(drain=True)
        got += read_all(client)
        assert not got.endswith(LAST)
        until(lambda: left)
        assert proxy.record.outcome == "cancelled"


def _can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
