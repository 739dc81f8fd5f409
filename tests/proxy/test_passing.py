"""What goes through the proxy is what came: bytes, pieces, headers, status, in both directions."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from contextlib import ExitStack

import pytest
from openai import AsyncOpenAI, OpenAI

from midstream.proxy import connections
from midstream.testing import DONE, finish, role, text
from support.proxying import ASK, LAST, SSE_HEAD, Line, chunked, post, proxied, raw_server, read_all
from support.waiting import until

EVENTS = [event.encode() for event in (role(), text("Hel"), text("lo"), finish(), DONE)]
CLOSE = b"Connection: close"
BIG = 1024
"""Pieces of 64 KiB: more than all buffers of two connections hold."""


def stream(line: Line) -> None:
    """Answer with a chat completion, one event after the other."""
    line.send(SSE_HEAD, *(chunked(event) for event in EVENTS), LAST)


def test_a_stream_passes_piece_by_piece_and_leaves_its_record() -> None:
    """The client reads the chunks that the server wrote, and the record is the one of the transport door."""
    with raw_server(stream) as upstream, proxied(upstream.url) as proxy:
        answer = proxy.ask(post(ASK, b"/v1/chat/completions", CLOSE))
        record = proxy.record

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"content-type: text/event-stream",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
    ]
    assert body == b"".join(chunked(event) for event in EVENTS) + LAST
    assert (record.outcome, record.request_model, record.content_chunks) == ("completed", "m", 2)
    assert (record.token_limit, record.server_address) == (7, "127.0.0.1")
    assert record.server_port == int(upstream.url.rpartition(":")[2])


def test_the_request_passes_as_it_came_but_for_what_belongs_to_one_connection() -> None:
    """Path, query and headers are those of the client; `Host` is the upstream's, and who asked is added."""
    request = post(
        ASK,
        b"/v1/chat/completions?b=%2F%zz&a&a=1",
        b"authorization: Bearer sk-1",
        b"X-Request-ID: 42",
        b"x-twice: one",
        b"x-twice: two",
        b"keep-alive: 5",
        b"te: trailers",
        b"connection: close, x-mine",
        b"x-mine: for this connection",
        b"x-forwarded-for: 192.0.2.9",
    )
    with raw_server(stream) as upstream, proxied(upstream.url) as proxy:
        proxy.ask(request)

    (line,) = upstream.lines
    *head, via = line.head.split(b"\r\n")
    assert head == [
        b"POST /v1/chat/completions?b=%2F%zz&a&a=1 HTTP/1.1",
        b"Host: " + upstream.url.removeprefix("http://").encode(),
        b"content-length: %d" % len(ASK),
        b"authorization: Bearer sk-1",
        b"x-request-id: 42",
        b"x-twice: one",
        b"x-twice: two",
        b"X-Forwarded-For: 192.0.2.9, 127.0.0.1",
        b"X-Forwarded-Proto: http",
        b"X-Forwarded-Host: localhost",
    ]
    assert via.startswith(b"Via: 1.1 midstream-")
    assert line.body == ASK


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"])
def test_every_method_passes_and_its_status_comes_back(method: str) -> None:
    """With the headers of the answer, twice where they came twice; HEAD without a body."""
    answer = b"HTTP/1.1 418 Odd\r\nContent-Length: 3\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nDate: then\r\n\r\n"
    body = b"" if method == "HEAD" else b"tea"
    with raw_server(lambda line: line.send(answer + body)) as upstream, proxied(upstream.url) as proxy:
        got = proxy.ask(
            f"{method} /any/path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )

    assert got.split(b"\r\n") == [
        b"HTTP/1.1 418 I'm a Teapot",
        b"Content-Length: 3",
        b"Set-Cookie: a",
        b"Set-Cookie: b",
        b"Date: then",
        b"Connection: close",
        b"",
        body,
    ]
    assert upstream.lines[0].head.startswith(method.encode())
    assert proxy.records == []


def test_a_compressed_stream_passes_compressed_and_is_read_beside_it() -> None:
    """The client gets the server's bytes, and the record counts what they hold."""
    packed = gzip.compress(b"".join(EVENTS))
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    pieces = [packed[:20], packed[20:60], packed[60:]]

    def play(line: Line) -> None:
        line.send(head, *(chunked(piece) for piece in pieces), LAST)

    with raw_server(play) as upstream, proxied(upstream.url) as proxy:
        answer = proxy.ask(post(ASK, b"/v1/chat/completions", b"accept-encoding: gzip", CLOSE))
        record = proxy.record

    assert b"content-encoding: gzip" in answer
    assert answer.partition(b"\r\n\r\n")[2] == b"".join(chunked(piece) for piece in pieces) + LAST
    assert (record.outcome, record.content_chunks) == ("completed", 2)


def test_what_does_not_decompress_passes_as_it_came() -> None:
    """It is the client's to find out."""
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    with (
        raw_server(lambda line: line.send(head, chunked(b"not gzip", b"at all"), LAST)) as upstream,
        proxied(upstream.url) as proxy,
    ):
        answer = proxy.ask(post(ASK, b"/v1/chat/completions", CLOSE))

    assert answer.endswith(chunked(b"not gzip", b"at all") + LAST)


def test_a_body_in_chunks_is_sent_in_chunks() -> None:
    """Without a length, before its end is there: the upstream has the first piece while the client still sends."""
    first_is_there = threading.Event()
    answers: list[bytes] = []

    def early(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        data = b""
        while b"first" not in data:
            data += connection.recv(65536)
        first_is_there.set()
        while not data.endswith(LAST):
            data += connection.recv(65536)
        answers.append(data.partition(b"\r\n\r\n")[2])
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        connection.close()

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=early, args=(listener,), daemon=True).start()
    with proxied(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy, proxy.connect() as client:
        client.sendall(
            b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            + chunked(b"first")
        )
        assert first_is_there.wait(10)
        client.sendall(chunked(b"second") + LAST)
        assert read_all(client).endswith(b"ok")
    listener.close()

    assert answers == [chunked(b"first") + chunked(b"second") + LAST]


@pytest.mark.parametrize("client_reads", [True, False], ids=["answer", "upload"])
def test_what_is_larger_than_any_buffer_is_held_back_at_its_source(client_reads: bool) -> None:
    """Neither an upload nor an answer is collected in the proxy: whoever writes waits for who reads."""
    piece = b"x" * 65536
    written = 0
    go_on = threading.Event()

    def write(connection: socket.socket, head: bytes) -> None:
        nonlocal written
        connection.sendall(head)
        for _ in range(BIG):
            connection.sendall(piece)
            written += len(piece)

    def play(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1024)
        if client_reads:
            write(connection, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (BIG * len(piece)))
        else:
            go_on.wait(20)
            left = BIG * len(piece) - len(data.partition(b"\r\n\r\n")[2])
            while left:
                left -= len(connection.recv(1 << 20))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        connection.close()

    def steady() -> bool:
        before = written
        time.sleep(0.3)
        return before == written > 0

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=play, args=(listener,), daemon=True).start()
    with proxied(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy, proxy.connect() as client:
        if client_reads:
            client.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        else:
            head = b"PUT /big HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            sender = threading.Thread(target=write, args=(client, head % (BIG * len(piece))), daemon=True)
            sender.start()
        deadline = time.monotonic() + 10
        while not steady():
            assert time.monotonic() < deadline
        assert written < 32 << 20
        go_on.set()
        got = 0
        while data := client.recv(1 << 20):
            got += len(data)
    listener.close()
    assert written == BIG * len(piece)
    assert got > (written if client_reads else 2)


@pytest.mark.parametrize("streams", [0, 70])
def test_a_connection_to_the_server_is_used_again(streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many streams are open beside it."""
    monkeypatch.setattr(connections, "KEEP_ALIVE_S", 60.0)  # a slow machine must not take longer than that
    go_on = threading.Event()

    def play(line: Line) -> None:
        if line.head.startswith(b"POST"):
            line.send(SSE_HEAD)
            assert go_on.wait(20)
            line.send(LAST)
        else:
            line.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    with ExitStack() as stack:
        upstream = stack.enter_context(raw_server(play))
        proxy = stack.enter_context(proxied(upstream.url))
        clients = [stack.enter_context(proxy.connect()) for _ in range(streams)]
        for client in clients:
            client.sendall(post(ASK, b"/v1/chat/completions", CLOSE))
        until(lambda: len(upstream.lines) == streams)
        for _ in range(3):
            asked = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            assert proxy.ask(asked).endswith(b"ok")
        go_on.set()
        assert all(read_all(client).endswith(LAST) for client in clients)

    assert len({id(line.connection) for line in upstream.lines[streams:]}) == 1


def test_a_websocket_is_refused_with_a_reason() -> None:
    """In OpenAI's shape, and without asking the upstream."""
    with raw_server(stream) as upstream, proxied(upstream.url) as proxy:
        answer = proxy.ask(
            b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )

    assert answer.startswith(b"HTTP/1.1 501 ")
    assert answer.endswith(
        b'{"error": {"message": "WebSockets are not passed on; connect to the model server itself.", '
        b'"type": "invalid_request_error", "param": null, "code": "no_websocket"}}'
    )
    assert upstream.lines == []


@pytest.mark.parametrize("kind", [OpenAI, AsyncOpenAI])
def test_the_openai_sdk_streams_through_it(kind: type) -> None:
    """Sync and async, over one kept connection, with a record for each stream."""
    import asyncio

    async def ask_async(client: AsyncOpenAI) -> str:
        async with client:
            answer = await client.chat.completions.create(model="m", messages=[], stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

    with raw_server(stream) as upstream, proxied(upstream.url) as proxy:
        client = kind(base_url=f"{proxy.url}/v1", api_key="none")
        if isinstance(client, AsyncOpenAI):
            said = asyncio.run(ask_async(client))
        else:
            with client:
                answer = client.chat.completions.create(model="m", messages=[], stream=True)
                said = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
        record = proxy.record

    assert said == "Hello"
    assert record.outcome == "completed"
    assert record.provider == "openai"
