"""What the proxy does by itself, when it is told to: it ends stalled streams, keeps connections alive, and labels."""

from __future__ import annotations

import gzip
import json
import time

import pytest
from openai import APIError, OpenAI

from midstream.proxy.attributes import MOST_COMBINATIONS, MonitorChoice
from midstream.proxy.events import EventBoundary
from midstream.runtime.settings import Settings
from midstream.testing import DONE, finish, frame, role, text
from support.proxying import (
    ASK,
    LAST,
    SSE_HEAD,
    Line,
    chunked,
    post,
    proxied,
    raw_server,
    read_all,
    sending,
)
from support.waiting import until

BEGUN = SSE_HEAD + chunked(role().encode(), text("Hel").encode())
REST = chunked(text("lo").encode(), finish().encode(), DONE.encode()) + LAST
CLOSE = b"Connection: close"
STALL = {"stall_timeout_s": 0.4, "first_content_timeout_s": 0.4}
SAYS = "The model server has sent no output for 0."


def body_of(answer: bytes) -> bytes:
    """The body of an answer in chunks, put together."""
    rest = answer.partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return body


def test_a_stalled_stream_ends_with_an_error_that_the_sdk_raises() -> None:
    """The upstream is left, and the record is that of a stall timeout."""
    left: list[float] = []

    def play(line: Line) -> None:
        line.send(BEGUN)
        left.append(line.until_gone())

    with raw_server(play) as upstream, proxied(upstream.url, monitor=STALL) as proxy:
        with OpenAI(base_url=f"{proxy.url}/v1", api_key="none") as client:
            answer = client.chat.completions.create(model="m", messages=[], stream=True)
            with pytest.raises(APIError, match=SAYS) as raised:
                list(answer)
        record = proxy.record
        until(lambda: left)

    assert raised.value.code == "stall_timeout"
    assert (record.outcome, record.error_type, record.content_chunks) == ("timeout", "stall_timeout", 1)


@pytest.mark.parametrize(
    ("path", "first", "error"),
    [
        (
            b"/v1/chat/completions",
            text("Hel"),
            ("", {"error": {"type": "timeout_error", "param": None, "code": "stall_timeout"}}),
        ),
        (
            b"/v1/responses",
            frame({"type": "response.output_text.delta", "delta": "Hel"}),
            (
                "event: error\n",
                {"type": "error", "code": "stall_timeout", "param": None, "sequence_number": 1},
            ),
        ),
        (
            b"/v1/messages",
            frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hel"}}),
            ("event: error\n", {"type": "error", "error": {"type": "timeout_error"}}),
        ),
        (b"/api/chat", json.dumps({"message": {"content": "Hel"}, "done": False}) + "\n", None),
    ],
    ids=["chat", "responses", "anthropic", "ollama"],
)
def test_the_error_is_one_of_the_protocol(
    path: bytes, first: str, error: tuple[str, dict[str, object]] | None
) -> None:
    """And the answer has an end: what the client reads is whole."""
    head = SSE_HEAD if error else SSE_HEAD.replace(b"text/event-stream", b"application/x-ndjson")
    with (
        raw_server(sending(head + chunked(first.encode()), then="stay")) as upstream,
        proxied(upstream.url, monitor=STALL) as proxy,
    ):
        answer = proxy.ask(post(ASK, path, CLOSE))

    assert answer.endswith(LAST)
    added = body_of(answer).removeprefix(first.encode()).decode()
    if error is None:
        assert json.loads(added)["error"].startswith(SAYS)
        assert added.endswith("\n")
        return
    before, expected = error
    assert added.startswith(f"{before}data: ")
    assert added.endswith("\n\n")
    value = json.loads(added.removeprefix(f"{before}data: "))
    holder = value.get("error", value)
    assert holder.pop("message").startswith(SAYS)
    assert value == expected


@pytest.mark.parametrize("odd", ["in an event", "compressed", "of a fixed length"])
def test_a_stalled_stream_into_which_nothing_can_be_written_is_cut(odd: str) -> None:
    """The client cannot take it for whole."""
    event = text("Hel").encode()
    played = {
        "in an event": SSE_HEAD + chunked(event + b'data: {"ch'),
        "compressed": SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
        + chunked(gzip.compress(event)[:-8]),
        "of a fixed length": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n"
        + event,
    }
    with (
        raw_server(sending(played[odd], then="stay")) as upstream,
        proxied(upstream.url, monitor=STALL) as proxy,
    ):
        answer = proxy.ask(post(ASK, b"/v1/chat/completions", CLOSE))
        assert proxy.record.error_type == "stall_timeout"

    assert b"stall_timeout" not in answer
    assert not answer.endswith(LAST)


def test_comments_keep_a_silent_stream_alive_and_end_no_gap() -> None:
    """Between events only, from the head of the answer on; the gap is the upstream's."""

    def play(line: Line) -> None:
        line.send(SSE_HEAD)
        time.sleep(0.5)
        line.send(chunked(text("Hel").encode() + b"data: {"))
        time.sleep(0.5)
        line.send(chunked(text("lo").encode().removeprefix(b"data: {")))
        time.sleep(0.5)
        line.send(chunked(finish().encode(), DONE.encode()) + LAST)

    with raw_server(play) as upstream, proxied(upstream.url, keep_alive_s=0.2) as proxy:
        body = body_of(proxy.ask(post(ASK, b"/v1/chat/completions", CLOSE)))
        record = proxy.record

    comment = b": keep-alive\n\n"
    before, half, rest = (text("Hel").encode(), text("lo").encode(), (finish() + DONE).encode())
    assert body.replace(comment, b"") == before + half + rest
    assert body.startswith(comment)
    assert before + half in body  # none in the middle of an event, though it was silent there as well
    assert half + comment in body
    assert (record.outcome, record.content_chunks) == ("completed", 2)
    assert (record.max_gap_s or 0) > 0.4


def test_the_client_leaves_between_comments() -> None:
    """The upstream is left then as well, and the stream has its record."""
    left: list[float] = []

    def play(line: Line) -> None:
        line.send(BEGUN)
        left.append(line.until_gone())

    with raw_server(play) as upstream, proxied(upstream.url, keep_alive_s=0.1) as proxy:
        with proxy.connect() as client:
            client.sendall(post())
            got = b""
            while b"keep-alive" not in got:
                got += client.recv(4096)
        until(lambda: left)
        assert proxy.record.outcome == "cancelled"


def test_a_boundary_is_found_however_an_event_is_cut_into_pieces() -> None:
    """At the beginning, and after an empty line, whichever line ends the server has."""
    for data, ends in [(b"data: a\n\n", {9}), (b"a\r\n\r\n", {5}), (b"a\r\r", {3}), (b"a\n\nb\n\n", {3, 6})]:
        boundary = EventBoundary("text/event-stream; charset=utf-8")
        assert boundary.is_here
        found = set()
        for at in range(len(data)):
            boundary.passed(data[at : at + 1])
            if boundary.is_here:
                found.add(at + 1)
        assert found == ends


def test_a_client_that_stops_reading_shows_as_a_hold_and_not_as_a_gap() -> None:
    """Once what the kernels keep for it is full: the server has long sent what the client has not taken."""
    events = [text("x" * 1000).encode()] * 12_000

    def play(line: Line) -> None:
        line.connection.sendall(SSE_HEAD + chunked(*events) + REST)

    with raw_server(play) as upstream, proxied(upstream.url) as proxy, proxy.connect() as client:
        client.sendall(post(ASK, b"/v1/chat/completions", CLOSE))
        client.recv(100)
        time.sleep(1.0)
        read_all(client)
        record = proxy.record

    assert record.outcome == "completed"
    assert (record.max_hold_s or 0) > 0.6
    assert (record.max_gap_s or 0) < 0.5


def test_named_headers_become_attributes_and_no_others() -> None:
    """Cleaned and cut; a header that is not there gives none."""
    with (
        raw_server(sending(BEGUN + REST)) as upstream,
        proxied(upstream.url, attribute_headers={"X-Team": "team", "X-App": "app"}) as proxy,
    ):
        proxy.ask(post(ASK, b"/v1/chat/completions", CLOSE, b"x-team:  search\t" + b"y" * 99, b"x-user: me"))
        record = proxy.record

    assert record.attributes == {"team": ("search " + "y" * 99)[:64]}


def test_combinations_of_attributes_are_bounded() -> None:
    """The first ones are kept, all later ones are one."""
    choice = MonitorChoice(Settings(attributes={"site": "a"}), {"X-Team": "team"})
    seen = [
        choice.of([(b"x-team", b"team %d" % number)]).settings.attributes
        for number in range(MOST_COMBINATIONS + 3)
    ]

    assert seen[0] == {"site": "a", "team": "team 0"}
    assert seen[MOST_COMBINATIONS - 1] == {"site": "a", "team": f"team {MOST_COMBINATIONS - 1}"}
    assert seen[MOST_COMBINATIONS:] == [{"site": "a", "team": "other"}] * 3
    assert choice.of([(b"x-team", b"team 7")]) is choice.of([(b"x-team", b"team 7")])
