"""Against clients that mean no good: which requests are refused, what is verified, and where a request can go."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from midstream.proxy import incoming
from midstream.proxy.request_copy import LONGEST_COPY, RequestCopy
from midstream.proxy.routes import Route, Routes, routes_of
from midstream.proxy.server import MAX_HEAD_BYTES, ProxyProtocol
from midstream.proxy.upstream import Upstream, upstream_of
from support.certificate import CERTIFICATE
from support.proxying import ASK, LAST, Line, chunked, post, proxied, raw_server, read_all, sending
from support.waiting import until

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
HOST = b"Host: localhost\r\n"
GET = b"GET /v1/models HTTP/1.1\r\n" + HOST
CLOSED = GET + b"Connection: close\r\n\r\n"
EVIL = b"GET /evil HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + EVIL,
        b"POST / HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"
        + EVIL,
        b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +0\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x2\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + EVIL,
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rY: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X\x7f: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: no host\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
        b"GET http://192.0.2.1/ HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET //host HTTP/1.1 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT 192.0.2.1:443 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * (MAX_HEAD_BYTES + 10),
    ],
)
def test_a_request_that_two_readers_could_read_differently_is_refused(request_: bytes) -> None:
    """With status 400, in OpenAI's shape; nothing of it, and nothing after it, comes to the upstream."""
    with raw_server(sending(OK)) as upstream, proxied(upstream.url) as proxy:
        answer = proxy.ask(request_ if b"\r\n" in request_ else request_ + b"\r\n\r\n")
        assert b"HTTP/1.1 200" in proxy.ask(CLOSED)  # it goes on

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
    assert len(upstream.lines) == 1


def test_line_ends_and_folded_lines_are_written_anew() -> None:
    """What RFC 9112 lets a server accept comes to the upstream in one form: CRLF, one line for each header."""
    request = GET.replace(b"\r\n", b"\n") + b"X-Folded: a\n  b\n\tc\nConnection: close\n\n"
    with raw_server(sending(OK)) as upstream, proxied(upstream.url) as proxy:
        assert proxy.ask(request).endswith(b"ok")

    (line,) = upstream.lines
    assert b"\r\nx-folded: a b c\r\n" in line.head
    assert b"\n" not in line.head.replace(b"\r\n", b"")


def test_requests_in_one_piece_are_answered_in_turn() -> None:
    """Pipelined ones, of which none is joined to another."""
    first = post(ASK, b"/first")
    second = post(b"12", b"/second", b"Connection: close")
    with raw_server(sending(OK)) as upstream, proxied(upstream.url) as proxy:
        answer = proxy.ask(first + second)

    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert [(line.head.split(b" ")[1], line.body) for line in upstream.lines] == [
        (b"/first", ASK),
        (b"/second", b"12"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ],
)
def test_an_answer_that_is_no_http_becomes_an_error(answer: bytes) -> None:
    """Nothing of it is passed on."""
    with raw_server(sending(answer, then="close")) as upstream, proxied(upstream.url) as proxy:
        got = proxy.ask(CLOSED)

    assert got.startswith(b"HTTP/1.1 502 ")
    assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["type"] == "upstream_error"


def test_an_answer_with_chunks_and_a_length_is_passed_on_with_chunks_alone() -> None:
    """The length means nothing, and the next reader might believe it."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"
    with raw_server(sending(head + chunked(b"hello") + LAST)) as upstream, proxied(upstream.url) as proxy:
        got = proxy.ask(CLOSED)

    assert b"content-length" not in got.lower()
    assert got.endswith(chunked(b"hello") + LAST)


@pytest.mark.parametrize(
    ("header", "allowed", "status"),
    [
        (b"Host: 127.0.0.1:8080", (), 200),
        (b"Host: rebound.example", (), 403),
        (b"Host: proxy.example", ("proxy.example",), 200),
        (b"Host: localhost\r\nOrigin: http://localhost:3000", (), 200),
        (b"Host: localhost\r\nOrigin: https://elsewhere.example", (), 403),
        (b"Host: localhost\r\nOrigin: null", (), 403),
    ],
)
def test_on_loopback_names_and_pages_of_loopback_are_answered(
    header: bytes, allowed: tuple[str, ...], status: int
) -> None:
    """A web page cannot use the proxy by a name that was rebound, nor from another site."""
    with raw_server(sending(OK)) as upstream, proxied(upstream.url, allow_hosts=allowed) as proxy:
        got = proxy.ask(b"GET / HTTP/1.1\r\n" + header + b"\r\nConnection: close\r\n\r\n")

    assert got.startswith(b"HTTP/1.1 %d " % status)
    assert len(upstream.lines) == (status == 200)


def test_on_another_address_other_sites_are_the_upstreams_business() -> None:
    """It may answer them, and it does so with headers of its own."""
    with raw_server(sending(OK)) as upstream, proxied(upstream.url, host="0.0.0.0") as proxy:
        got = proxy.ask(
            b"GET / HTTP/1.1\r\nHost: any\r\nOrigin: https://elsewhere.example\r\nConnection: close\r\n\r\n"
        )

    assert got.startswith(b"HTTP/1.1 200 ")
    assert b"\r\norigin: https://elsewhere.example\r\n" in upstream.lines[0].head


def test_a_proxy_in_front_of_itself_is_found_out() -> None:
    """At the second turn, and not when the connections are used up."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with proxied(f"http://127.0.0.1:{port}", port=port) as proxy:
        got = proxy.ask(CLOSED)

    assert got.startswith(b"HTTP/1.1 508 ")


@pytest.mark.parametrize("trusted", [True, False])
def test_the_certificate_of_an_upstream_is_verified(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against what the system trusts, or what SSL_CERT_FILE names."""
    file = tmp_path / "certificate.pem"
    file.write_text(CERTIFICATE)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    keys: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) as secure:
                    keys.append(secure.recv(65536))
                    secure.sendall(OK)
            except OSError:
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with proxied(f"https://127.0.0.1:{listener.getsockname()[1]}") as proxy:
            got = proxy.ask(GET + b"Authorization: Bearer sk-1\r\nConnection: close\r\n\r\n")

    if trusted:
        assert got.endswith(b"ok")
        assert b"sk-1" in keys[0]
    else:
        assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"] == "upstream_certificate"
        assert keys == []


# Limits


def test_a_client_that_stops_in_its_body_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 408; the upstream, which has half of it, is left."""
    monkeypatch.setattr(incoming, "PIECE_S", 0.2)
    left = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while connection.recv(65536):
                pass
        left.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with proxied(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
            got = proxy.ask(post()[:-20])
            assert left.wait(20)

    assert got.startswith(b"HTTP/1.1 408 ")
    assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"] == "slow_request"


def test_a_connection_without_a_request_is_closed_and_a_stream_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a head is no request. A stream may be silent for longer than that."""
    monkeypatch.setattr(ProxyProtocol, "idle_s", 0.2)
    go_on = threading.Event()

    def play(line: Line) -> None:
        line.send(OK[:-1])
        assert go_on.wait(20)
        line.send(OK[-1:])

    with raw_server(play) as upstream, proxied(upstream.url) as proxy, proxy.connect() as stream:
        stream.sendall(CLOSED)
        until(lambda: upstream.lines)
        assert [proxy.ask(sent) for sent in (b"", GET)] == [b"", b""]  # both are closed without a word
        go_on.set()
        assert read_all(stream).endswith(b"ok")


def test_one_connection_too_many_closes_the_oldest_idle_one_and_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that opens thousands of connections takes none from those that are served."""
    monkeypatch.setattr(ProxyProtocol, "most_connections", 3)
    go_on = threading.Event()

    def play(line: Line) -> None:
        assert go_on.wait(20)
        line.send(OK)

    with (
        raw_server(play) as upstream,
        proxied(upstream.url) as proxy,
        proxy.connect() as stream,
        proxy.connect() as oldest,
    ):
        stream.sendall(CLOSED)
        until(lambda: upstream.lines)
        with proxy.connect(), proxy.connect():
            assert read_all(oldest) == b""
            go_on.set()
            assert read_all(stream).endswith(b"ok")


def test_trailers_are_read_and_not_passed_on() -> None:
    """In neither direction: what follows the last chunk is not taken for a header, nor for a second message."""
    trailer = b"0\r\nHost: evil\r\nContent-Length: 99\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n" + chunked(b"ok")

    def play(line: Line) -> None:
        line.send(answer + b"0\r\nX-Sum: 1\r\n\r\n")

    with raw_server(play) as upstream, proxied(upstream.url) as proxy:
        request_ = (
            b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"a") + trailer
        )
        got = proxy.ask(request_ + CLOSED)

    assert [line.body for line in upstream.lines] == [chunked(b"a") + LAST, b""]
    assert b"evil" not in upstream.lines[0].head
    assert got.count(chunked(b"ok") + LAST) == 2
    assert b"x-sum" not in got.lower()


# Routes


def upstreams(*names: str) -> dict[str, Upstream]:
    """Upstreams that do not exist."""
    return {name: upstream_of(f"http://{name}:8000/{name}") for name in names}


def test_routes_are_chosen_by_path_first_and_then_by_model() -> None:
    """The longest path that matches whole parts; `*` in a model's name; the rest, if it goes anywhere."""
    routes = routes_of(
        {
            "a": {"upstream": "http://a:8000", "path": "/a"},
            "ab": {"upstream": "http://ab:8000", "path": "/a/b"},
            "q": {"upstream": "http://q:8000", "models": ["qwen*", "m"]},
        }
    )
    rest = upstream_of("http://rest:8000")
    both, none = Routes(routes, rest), Routes(routes)
    hosts = {
        path: found and (found[0].host, found[1])
        for path in (b"/a", b"/a/", b"/a/v1/x", b"/a/b/v1", b"/ab", b"/v1", b"/%61/v1", b"/A/v1")
        for found in [both.of_path(path)]
    }

    assert hosts == {
        b"/a": ("a", b"/"),
        b"/a/": ("a", b"/"),
        b"/a/v1/x": ("a", b"/v1/x"),
        b"/a/b/v1": ("ab", b"/v1"),
        b"/ab": None,
        b"/v1": None,
        b"/%61/v1": None,
        b"/A/v1": None,
    }
    models: list[Any] = ["qwen3-8b", "m", "mm", "Qwen", None, 5]
    assert [both.of_model(model) for model in models] == [routes[2].upstream, routes[2].upstream, *[rest] * 4]
    assert none.of_model("other") is None


def test_a_request_goes_to_the_upstream_of_its_route() -> None:
    """By path, without what names the route; by model, with its body whole; and to no other."""
    with (
        raw_server(sending(OK)) as large,
        raw_server(sending(OK)) as small,
        raw_server(sending(OK)) as rest,
    ):
        routes = (
            Route("large", upstream_of(f"{large.url}/base"), path="/large"),
            Route("small", upstream_of(small.url), models=("m*",)),
        )
        with proxied(rest.url, routes=routes) as proxy:
            proxy.ask(post(ASK, b"/large/v1/chat/completions?a=1", b"Connection: close"))
            proxy.ask(post(ASK, b"/v1/chat/completions", b"Connection: close"))
            proxy.ask(post(ASK.replace(b'"m"', b'"n"'), b"/v1/chat/completions", b"Connection: close"))
            proxy.ask(CLOSED)

    seen = [[(line.head.split(b" ")[1], line.body) for line in each.lines] for each in (large, small, rest)]
    assert seen == [
        [(b"/base/v1/chat/completions?a=1", ASK)],
        [(b"/v1/chat/completions", ASK)],
        [(b"/v1/chat/completions", ASK.replace(b'"m"', b'"n"')), (b"/v1/models", b"")],
    ]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "it must hold routes by name"),
        ([], "it must hold routes by name"),
        ({"a b": {}}, "'a b' is no name for a route"),
        ({"a": "http://a"}, "the route a must have an `upstream`, and a `path` or `models`"),
        ({"a": {"path": "/a"}}, "the route a has no upstream"),
        ({"a": {"upstream": "a:8000", "path": "/a"}}, "the route a: 'a:8000' is not an HTTP address"),
        ({"a": {"upstream": "http://a", "path": "a"}}, "the path of the route a must look like /a"),
        ({"a": {"upstream": "http://a", "models": "m"}}, "the models of the route a must be a list of names"),
        ({"a": {"upstream": "http://a"}}, "the route a must have either a `path` or `models`"),
        ({"a": {"upstream": "http://a", "modles": ["m"]}}, "the route a has 'modles'"),
        (
            {name: {"upstream": "http://a", "path": "/a"} for name in "ab"},
            "two routes have the path /a; give each a path of its own",
        ),
    ],
)
def test_routes_that_are_none_get_a_sentence(value: object, sentence: str) -> None:
    """It names the route and what to do."""
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        routes_of(value)


# What is read of a body


def test_of_a_body_only_its_parameters_are_kept() -> None:
    """The model and numbers; of texts, lists and the rest that they are there."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "canary"}],
        "prompt": "canary",
        "user": "canary",
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True, "note": "canary"},
        "metadata": {"a": "canary", "b": {"c": "canary"}},
    }
    copy = RequestCopy(wanted=True)
    for byte in json.dumps(body).encode():
        copy.add(bytes([byte]))
    copy.complete()

    assert copy.value() == {
        "model": "m",
        "messages": [],
        "prompt": [],
        "user": [],
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
        "metadata": {},
    }


def test_a_body_that_is_too_long_is_not_kept() -> None:
    """Nor one that is no JSON, or of JSON that is nested too deeply; and none is kept of a request that ended early."""
    long, odd, deep, early = (RequestCopy(wanted=True) for _ in range(4))
    for _ in range(LONGEST_COPY // 2**20 + 1):
        long.add(b" " * 2**20)
    odd.add(b"{")
    deep.add(b"[" * 200_000)
    early.add(b'{"model":')
    early.drop()
    for each in (long, odd, deep, early):
        each.complete()

    assert [each.value() for each in (long, odd, deep, early)] == [None] * 4
