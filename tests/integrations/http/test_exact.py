"""The record of a stream that an HTTP client reads, to the second: a network on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from midstream import Outcome, StreamRecord
from midstream.testing import Collected, ManualClock, collect, http_library
from support.harness import settled
from support.hostile_wire import Act, Answer, Network, Piece

URL = "http://server.test/v1/chat/completions"
ASK = {"model": "asked", "messages": [], "stream": True, "max_tokens": 4}


def event(text: str | None = None, **fields: Any) -> bytes:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": fields.pop("finish_reason", None)}
    return f"data: {json.dumps({'model': 'answers', 'choices': [choice], **fields})}\n\n".encode()


END = event(finish_reason="stop", usage={"prompt_tokens": 2, "completion_tokens": 4})
DONE = b"data: [DONE]\n\n"
ANSWER: tuple[Piece, ...] = (
    (1.0, event("a")),
    (0.5, event("b")),
    (7.0, event("c")),
    (0.25, END),
    (0.25, DONE),
)


class Reader:
    """One client of the HTTP library, and one request of it."""

    def __init__(self, kind: str, *, monitored: bool = True, **settings: Any) -> None:
        self.kind = kind
        self.clock = ManualClock()
        self.network = Network(kind, self.clock, "none")
        http = http_library()
        transport = self.network.transport
        make = http.Client if kind == "sync" else http.AsyncClient
        self.client: Any = make(transport=transport, timeout=http.Timeout(60.0))
        self.seen: Collected | None = None
        if monitored:
            self.seen = collect(self.client, clock=self.clock, **settings)

    @property
    def record(self) -> StreamRecord:
        assert self.seen is not None
        return self.seen.record

    async def read(
        self,
        answer: Answer,
        how: str = "iter_bytes",
        *,
        url: str = URL,
        ask: Any = ASK,
        most: int | None = None,
        each: Callable[[Any], Awaitable[None]] | None = None,
        method: str = "POST",
    ) -> list[Any]:
        """Send the request and read the response in one of the ways there are; at most some pieces."""
        self.network.answers.append(answer)
        request = self.client.build_request(method, url, json=ask)
        response = await settled(self.client.send(request, stream=True))
        got: list[Any] = []
        try:
            if how == "read":
                got.append(await settled(response.read() if self.kind == "sync" else response.aread()))
                return got
            async for piece in _all(getattr(response, how if self.kind == "sync" else "a" + how)()):
                got.append(piece)
                if each is not None:
                    await each(piece)
                if len(got) == most:
                    break
        finally:
            await settled(response.close() if self.kind == "sync" else response.aclose())
        return got

    async def close(self) -> None:
        await settled(self.client.close() if self.kind == "sync" else self.client.aclose())


async def _all(pieces: Any) -> AsyncIterator[Any]:
    if hasattr(pieces, "__aiter__"):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece


def run(kind: str, scene: Callable[[Reader], Awaitable[Any]], **settings: Any) -> StreamRecord:
    async def whole() -> StreamRecord:
        reader = Reader(kind, **settings)
        try:
            await scene(reader)
        finally:
            await reader.close()
        return reader.record

    return asyncio.run(whole())


both = pytest.mark.parametrize("kind", ["sync", "async"])


@both
@pytest.mark.parametrize("how", ["iter_raw", "iter_bytes", "iter_text", "iter_lines", "read"])
def test_every_way_of_reading_gives_the_same_record(kind: str, how: str) -> None:
    """Pieces, text, lines or everything at once: the same gap, the same counts, the same outcome."""
    record = run(kind, lambda reader: reader.read(Answer(ANSWER), how))

    assert (record.operation, record.server_address, record.server_port) == ("chat", "server.test", 80)
    assert (record.request_model, record.response_model) == ("asked", "answers")
    assert (record.outcome, record.finish_reasons) == (Outcome.COMPLETED, ("stop",))
    assert (record.chunks, record.content_chunks) == (4, 3)
    assert (record.max_gap_s, record.max_gap_at_s, record.freezes, record.frozen_s) == (7.0, 1.5, 1, 7.0)
    assert (record.time_to_first_content_s, record.tail_s, record.duration_s) == (1.0, 0.25, 9.0)
    assert (record.input_tokens, record.output_tokens, record.token_limit, record.limit_hit) == (
        2,
        4,
        4,
        True,
    )
    assert record.usage_complete


@both
def test_an_event_in_many_pieces_is_one_chunk_and_one_gap(kind: str) -> None:
    """The time before the first piece of an event and between its pieces is one gap."""
    text = event("b")
    pieces = (
        (1.0, event("a")),
        (2.0, text[:9]),
        (2.0, text[9:20]),
        (2.0, text[20:]),
        (0.0, END),
        (0.0, DONE),
    )

    record = run(kind, lambda reader: reader.read(Answer(pieces)))

    assert (record.chunks, record.content_chunks) == (3, 2)
    assert (record.max_gap_s, record.freezes, record.max_hold_s) == (6.0, 1, 0.0)


@both
def test_several_events_in_one_piece_are_several_chunks_at_one_moment(kind: str) -> None:
    """Only the first of them was waited for."""
    pieces = ((1.0, event("a") + event("b")), (3.0, event("c") + END + DONE))

    record = run(kind, lambda reader: reader.read(Answer(pieces)))

    assert (record.chunks, record.content_chunks, record.max_gap_s) == (4, 3, 3.0)
    assert (record.waited_s, record.outcome) == (4.0, Outcome.COMPLETED)


@both
def test_comments_and_pings_end_no_gap(kind: str) -> None:
    """A keep-alive is no output, in the form of a comment or of an event."""
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    pieces = (
        (1.0, event("a")),
        (3.0, b": keep-alive\n\n"),
        (3.0, ping),
        (3.0, event("b")),
        (0.0, END),
        (0.0, DONE),
    )

    record = run(kind, lambda reader: reader.read(Answer(pieces)))

    assert (record.content_chunks, record.max_gap_s, record.freezes) == (2, 9.0, 1)


@both
def test_the_time_that_the_caller_keeps_a_piece_is_a_hold_and_no_gap(kind: str) -> None:
    """The network goes on meanwhile: here the clock is moved between two pieces."""

    async def scene(reader: Reader) -> None:
        async def keep(_: Any) -> None:
            reader.clock.advance(20.0)

        await reader.read(Answer(((1.0, event("a")), (1.0, event("b")), (1.0, END), (0.0, DONE))), each=keep)

    record = run(kind, scene)

    assert (record.max_gap_s, record.freezes, record.max_hold_s) == (1.0, 0, 20.0)


@both
def test_a_compressed_stream_is_read_after_the_library_has_decoded_it(kind: str) -> None:
    """Counts and gaps are those of the events, and there is no wire clock: bytes on that wire are no output."""
    parts = [event("a"), event("b"), END + DONE]
    squeezed = gzip.compress(b"".join(parts))
    cuts = [squeezed[:10], squeezed[10:30], squeezed[30:]]
    pieces = tuple((2.0, piece) for piece in cuts)

    record = run(
        kind,
        lambda reader: reader.read(Answer(pieces, headers=(("content-encoding", "gzip"),)), "iter_lines"),
    )

    assert (record.outcome, record.content_chunks, record.output_tokens) == (Outcome.COMPLETED, 2, 4)
    assert (record.waited_s, record.wire_gap_s) == (6.0, None)


BEGUN: tuple[Piece, ...] = ((1.0, event("a")), (1.0, event("b")))
ERROR_EVENT = b'data: {"error": {"message": "m"}}\n\n'


@both
@pytest.mark.parametrize(
    ("last", "outcome", "error", "gap"),
    [
        ((9.0, Act.CUT), Outcome.ERROR, "APIConnectionError", 9.0),
        ((0.0, Act.SILENCE), Outcome.TIMEOUT, "timeout", 60.0),
        ((9.0, Act.FAULT), Outcome.ERROR, "LookupError", 9.0),
        ((9.0, ERROR_EVENT), Outcome.ERROR, "error_event", 9.0),
    ],
    ids=["cut", "read timeout", "a fault", "an error event"],
)
def test_a_stream_that_fails_has_its_open_gap_and_the_outcome_that_its_caller_gets(
    kind: str, last: Piece, outcome: Outcome, error: str, gap: float
) -> None:
    """The worst freezes end this way."""

    async def scene(reader: Reader) -> None:
        with suppress(Exception):
            await reader.read(Answer((*BEGUN, last)))

    record = run(kind, scene)

    assert (record.outcome, record.error_type) == (outcome, error)
    assert (record.max_gap_s, record.max_gap_open) == (gap, True)


@both
def test_leaving_half_way_and_after_the_end(kind: str) -> None:
    """Left in the middle is left early; after `[DONE]` it is complete, also when nobody reads on."""
    early = run(kind, lambda reader: reader.read(Answer(ANSWER), most=2))
    late = run(kind, lambda reader: reader.read(Answer(ANSWER), most=5))

    assert (early.outcome, early.content_chunks) == (Outcome.LEFT_EARLY, 2)
    assert (late.outcome, late.content_chunks) == (Outcome.COMPLETED, 3)


@both
def test_a_response_that_nobody_reads_is_unread(kind: str) -> None:
    """Opened and closed."""

    async def scene(reader: Reader) -> None:
        reader.network.answers.append(Answer(ANSWER))
        response = await settled(
            reader.client.send(reader.client.build_request("POST", URL, json=ASK), stream=True)
        )
        await settled(response.close() if kind == "sync" else response.aclose())

    assert run(kind, scene).outcome is Outcome.UNREAD


OTHERS: list[tuple[str, Answer, dict[str, Any]]] = [
    ("json", Answer(((0.0, b"{}"),), kind="json"), {}),
    (
        "an event stream of somebody else's",
        Answer(((0.0, b"data: 1\n\n"),)),
        {"url": "http://server.test/feed", "ask": {}},
    ),
    ("a GET", Answer(((0.0, b"data: 1\n\n"),)), {"method": "GET"}),
    ("a refusal", Answer(((0.0, b"data: 1\n\n"),), status=429), {}),
    ("no JSON body", Answer(((0.0, b"data: 1\n\n"),)), {"url": "http://server.test/x", "ask": "text"}),
]


@both
@pytest.mark.parametrize(
    ("answer", "how"), [(a, h) for _, a, h in OTHERS], ids=[name for name, _, _ in OTHERS]
)
def test_other_responses_pass_without_a_record(kind: str, answer: Answer, how: dict[str, Any]) -> None:
    """Their byte stream is the library's own."""

    async def scene() -> None:
        reader = Reader(kind)
        assert await reader.read(answer, **how)
        assert reader.seen is not None
        assert list(reader.seen.records) == []
        await reader.close()

    asyncio.run(scene())


COMPLETION = (
    b'data: {"model":"answers","choices":[{"index":0,"text":"a","finish_reason":"length"}]}\n\n'
    b"data: [DONE]\n\n"
)
RESPONSE = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","response":{"model":"answers",'
    b'"usage":{"input_tokens":2,"output_tokens":4}}}\n\n'
)
MESSAGE = (
    b'event: message_start\ndata: {"type":"message_start","message":{"model":"answers","usage":'
    b'{"input_tokens":2,"output_tokens":1}}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":'
    b'{"type":"text_delta","text":"a"}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"max_tokens"},'
    b'"usage":{"output_tokens":4}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)
CHAT = event("a") + END + DONE
AZURE = "openai/deployments/d/chat/completions?api-version=1"
PROTOCOLS: dict[str, tuple[str, dict[str, Any], bytes, tuple[Any, ...]]] = {
    "completions": (
        "v1/completions",
        {"prompt": "p"},
        COMPLETION,
        ("text_completion", "openai", ("length",), None),
    ),
    "responses": ("v1/responses", {"input": "p"}, RESPONSE, ("responses", "openai", ("stop",), 4)),
    "messages": ("v1/messages", {"messages": []}, MESSAGE, ("chat", "anthropic", ("max_tokens",), 4)),
    "another path": ("anything", {"messages": []}, CHAT, ("chat", "openai", ("stop",), 4)),
    "a deployment": (AZURE, {"messages": []}, CHAT, ("chat", "openai", ("stop",), 4)),
}


@both
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocols_are_known_by_what_is_asked_and_answered(kind: str, protocol: str) -> None:
    """No host is listed anywhere."""
    path, asked, body, expected = PROTOCOLS[protocol]
    ask = {"model": "asked", "stream": True, **asked}

    record = run(
        kind, lambda reader: reader.read(Answer(((1.0, body),)), url=f"http://server.test/{path}", ask=ask)
    )

    assert (record.operation, record.provider, record.finish_reasons, record.output_tokens) == expected
    assert (record.request_model, record.response_model) == ("asked", "answers")
    assert record.outcome is Outcome.COMPLETED
