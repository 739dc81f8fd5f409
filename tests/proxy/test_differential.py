"""The same calls, once to the server and once through the proxy: both sides see the same bytes."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPResponse
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, OpenAI

from midstream.testing import DONE, finish, role, text, usage
from real.programs import absent
from support.needs import needs_responses
from support.paths import ROOT
from support.proxying import LAST, Line, chunked, proxied, raw_server

EVENTS = [event.encode() for event in (role(), text("Grüße, "), text("世界"), finish(), usage(9, 2), DONE)]
RESPONSES = b"".join(
    b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())
    for event in (
        {
            "type": "response.created",
            "sequence_number": 0,
            "response": {"id": "resp_1", "status": "in_progress"},
        },
        {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Grüße"},
        {
            "type": "response.completed",
            "sequence_number": 2,
            "response": {"id": "resp_1", "status": "completed"},
        },
    )
)
EMBEDDING = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1.0]}],"model":"m"}'
FILE = b'{"id":"file-1","object":"file","bytes":300000,"created_at":1,"filename":"a","purpose":"batch"}'
BUSY = b'{"error": {"message": "too many requests", "type": "busy", "param": null, "code": 1}}'


def whole(status: bytes, body: bytes, *headers: bytes) -> bytes:
    """An answer with a length."""
    return b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"content-length: %d" % len(body), b"", body])


def stream(*headers: bytes) -> bytes:
    """The head of a stream."""
    lines = [b"HTTP/1.1 200 OK", b"content-type: text/event-stream", b"transfer-encoding: chunked", *headers]
    return b"\r\n".join([*lines, b"", b""])


def answer(line: Line) -> None:
    """Answer as a model server does, with headers of its own and pieces that end anywhere."""
    method, path, _ = line.head.split(b"\r\n")[0].split(b" ")
    own = (
        b"x-request-id: req-1",
        b"set-cookie: a=1; Path=/",
        b"set-cookie: b=2",
        b"openai-processing-ms: 17",
    )
    json_type = b"content-type: application/json"
    if method == b"HEAD":
        line.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\netag: 1\r\n\r\n")
    elif path.startswith(b"/v1/models"):
        body = gzip.compress(b'{"object":"list","data":[{"id":"m","object":"model"}]}', mtime=0)
        line.send(whole(b"200 OK", body, json_type, b"content-encoding: gzip", *own))
    elif path.startswith(b"/v1/embeddings"):
        line.send(whole(b"200 OK", EMBEDDING, json_type, *own))
    elif path.startswith(b"/v1/files"):
        line.send(whole(b"200 OK", FILE, json_type, *own))
    elif path.startswith(b"/v1/responses"):
        line.send(stream(*own), chunked(RESPONSES[:50]), chunked(RESPONSES[50:]) + LAST)
    elif b"busy" in line.body:
        line.send(whole(b"429 Too Many Requests", BUSY, json_type, b"retry-after: 7", *own))
    elif b'"stream":true' in line.body.replace(b" ", b""):
        data = b"".join(EVENTS)
        cuts = (0, 10, 200, 201, len(data) - 3, len(data))
        line.send(stream(*own), *(chunked(data[a:b]) for a, b in pairwise(cuts)), LAST)
    else:
        line.send(
            whole(
                b"200 OK",
                b'{"id":"1","object":"chat.completion","model":"m","created":1,"choices":'
                b'[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}]}',
                json_type,
                *own,
            )
        )


OF_ONE_CONNECTION = {
    "host",
    "connection",
    "keep-alive",
    "te",
    "transfer-encoding",
    "expect",
    "content-length",
}
FORWARDING = {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "via"}


def dechunked(body: bytes) -> bytes:
    """What chunks hold."""
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        found, body = found + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return found


def asked(lines: list[Line]) -> list[dict[str, Any]]:
    """What came to the server: everything but what belongs to one connection and what a proxy adds."""
    found = []
    for line in lines:
        first, *rest = line.head.decode("latin-1").split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (each.partition(":") for each in rest)]
        body = dechunked(line.body) if ("transfer-encoding", "chunked") in headers else line.body
        kept = [each for each in headers if each[0] not in OF_ONE_CONNECTION | FORWARDING]
        boundary = re.search(r"boundary=(\S+)", line.head.decode("latin-1"))
        if boundary is not None:  # each call has one of its own
            kept = [(name, value.replace(boundary[1], "B")) for name, value in kept]
            body = body.replace(boundary[1].encode(), b"B")
        found.append({"first": first, "headers": kept, "body": body})
    return found


def both_ways(call: Callable[[str], Any]) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Call with the server's address, and with the proxy's: what the caller saw, and what the server saw."""
    with raw_server(answer) as upstream, proxied(upstream.url) as proxy:
        for url in (upstream.url, proxy.url):
            upstream.lines.clear()
            yield call(url), asked(list(upstream.lines))


def headers_seen(headers: Any) -> list[tuple[str, str]]:
    """Headers without those of the connection."""
    return sorted((name.lower(), value) for name, value in headers if name.lower() not in OF_ONE_CONNECTION)


# The SDK for Python


def with_python(url: str) -> list[Any]:
    """One call of each kind; what comes of it."""
    seen: list[Any] = []
    with OpenAI(base_url=f"{url}/v1", api_key="sk-1", max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "Grüße"}], stream=True, max_tokens=5
        )
        seen.append(headers_seen(raw.headers.multi_items()))
        seen += [chunk.model_dump() for chunk in raw.parse()]
        seen.append(client.chat.completions.create(model="m", messages=[]).model_dump())
        seen.append(client.embeddings.create(model="m", input="a").model_dump())
        seen.append(client.files.create(file=("a", b"\0\r\n" * 100_000), purpose="batch").model_dump())
        models = client.models.with_raw_response.list()
        seen += [headers_seen(models.headers.multi_items()), models.content]
        try:
            client.chat.completions.create(model="busy", messages=[])
        except APIStatusError as error:
            seen += [error.status_code, error.body, headers_seen(error.response.headers.multi_items())]
    return seen


def test_the_sdk_for_python_sees_no_difference() -> None:
    """Nor does the server: streams, answers in one piece, uploads, compression, errors."""
    direct, through = both_ways(with_python)
    assert through == direct
    assert len(direct[1]) == 6
    assert "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in direct[0][1:4]) == "Grüße, 世界"


@needs_responses
def test_a_stream_of_responses_is_the_same() -> None:
    """Events with names, of which one comes in two pieces."""

    def call(url: str) -> list[Any]:
        with OpenAI(base_url=f"{url}/v1", api_key="sk-1") as client:
            return [event.to_dict() for event in client.responses.create(model="m", input="a", stream=True)]

    direct, through = both_ways(call)
    assert through == direct
    assert [event["type"] for event in direct[0]][1] == "response.output_text.delta"


# The SDK for Node

EXAMPLE = ROOT / "examples" / "node"
NODE = pytest.mark.xdist_group("node")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The program, and a folder with the example and the SDK that its lock file names."""
    program, npm = shutil.which("node") or absent("node"), shutil.which("npm") or absent("npm")
    folder = tmp_path_factory.mktemp("node") / "client"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copy(ROOT / "tests" / "proxy" / "differential.mjs", folder)
    installed = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if installed.returncode:
        absent(f"the openai SDK for Node ({installed.stderr.strip()[-200:]})")
    return program, folder


def run_node(node: tuple[str, Path], *arguments: str, **environment: str) -> str:
    """What a program in that folder prints."""
    program, folder = node
    ran = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={"PATH": str(Path(program).parent), "OPENAI_API_KEY": "sk-1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@NODE
@pytest.mark.timeout(180)
def test_the_sdk_for_node_sees_no_difference(node: tuple[str, Path]) -> None:
    """The same calls as with the SDK for Python."""
    direct, through = both_ways(lambda url: json.loads(run_node(node, "differential.mjs", f"{url}/v1")))
    assert through == direct
    assert len(direct[1]) == 6
    assert (
        "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in direct[0][1:4])
        == "Grüße, 世界"
    )


@NODE
@pytest.mark.timeout(180)
def test_the_example_for_node_prints_its_answer_and_leaves_a_record(node: tuple[str, Path]) -> None:
    """Only the address says that there is a proxy. The program is the one in the documentation."""
    with raw_server(answer) as upstream, proxied(upstream.url) as proxy:
        said = run_node(node, "client.mjs", OPENAI_BASE_URL=f"{proxy.url}/v1")
        record = proxy.record

    _, _, code = (EXAMPLE / "client.mjs").read_text().partition("import ")
    assert f"```js\nimport {code}```" in (ROOT / "docs" / "proxy.md").read_text()
    assert said == "Grüße, 世界\n"
    assert (record.outcome, record.content_chunks, record.output_tokens) == ("completed", 2, 2)


# curl


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (
            "/v1/chat/completions?a=%2F&b",
            ["-d", '{"model":"m","stream":true}', "-H", "authorization: Bearer sk-1"],
        ),
        ("/v1/chat/completions", ["-d", '{"model":"busy"}', "-H", "content-type: application/json"]),
        ("/v1/models", ["-H", "accept-encoding: gzip", "-H", "X-Odd: é", "-A", ""]),
        ("/v1/files", ["-T", "{file}"]),
        ("/v1/files", ["-T", "{file}", "-H", "Transfer-Encoding: chunked"]),
        ("/v1/files", ["-F", "file=@{file}", "-F", "purpose=batch"]),
        ("/v1/any/../thing;a=1", ["-I", "--path-as-is"]),
        ("/v1/thing", ["-X", "PURGE"]),
    ],
    ids=["stream", "error", "gzip", "upload", "chunked upload", "form", "head", "odd method"],
)
def test_curl_sees_no_difference(path: str, options: list[str], tmp_path: Path) -> None:
    """The bytes of the body as they are on the wire, and the headers."""
    program = shutil.which("curl") or absent("curl")
    file = tmp_path / "file"
    file.write_bytes(random.Random(1).randbytes(1_500_000))
    given = [option.format(file=file) if "{file}" in option else option for option in options]

    def call(url: str) -> tuple[bytes, str, list[tuple[str, str]]]:
        head = tmp_path / "head"
        command = [program, "-sS", "-N", "--raw", "--max-time", "30", "-D", str(head), *given, f"{url}{path}"]
        ran = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert (ran.returncode, ran.stderr) == (0, b"")
        # The last head: before it may be one with status 100.
        first, *rest = head.read_bytes().decode("latin-1").strip().split("\r\n\r\n")[-1].split("\r\n")
        pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in rest)]
        return (b"" if "-I" in given else ran.stdout), first, headers_seen(pairs)

    direct, through = both_ways(call)
    assert through == direct
    assert direct[0][1].startswith("HTTP/1.1 ")


# Random wires


class Wire:
    """A request and an answer of random parts, by a seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.rng = rng
        self.method = rng.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X-ODD"])
        self.target = "/" + "".join(rng.choices("abcXYZ019/%._~!$&'()*+,;=:@-?", k=rng.randrange(60)))
        self.asked = self._headers()
        self.body = rng.randbytes(rng.choice([0, 1, 100, 70_000])) if self.method != "GET" else b""
        self.in_chunks = rng.random() < 0.5 and bool(self.body)
        self.status = rng.choice([200, 201, 204, 206, 301, 304, 400, 404, 429, 500, 503, 599])
        self.answered = self._headers()
        self.kind = rng.choice(["text/event-stream", "application/json", "application/x-ndjson", "odd"])
        self.answer = (
            rng.randbytes(rng.choice([0, 1, 300, 150_000])) if self.status not in {204, 304} else b""
        )
        self.framing = rng.choice(["length", "chunks", "close"])
        self.asked_for: tuple[str, list[tuple[str, str]], bytes] | None = None

    def _headers(self) -> list[tuple[str, str]]:
        """Names that mean nothing, some of them twice, with any visible sign in their values."""
        rng = self.rng
        names = [f"X-{rng.choice('abc')}{rng.randrange(4)}" for _ in range(rng.randrange(6))]
        signs = [chr(code) for code in (*range(33, 127), *range(161, 256))]
        return [(name, "".join(rng.choices(signs, k=rng.randrange(40)))) for name in names]

    def pieces(self, data: bytes) -> list[bytes]:
        """The bytes, cut anywhere."""
        cuts = sorted({0, len(data), *(self.rng.randrange(len(data) + 1) for _ in range(4))})
        return [data[a:b] for a, b in pairwise(cuts)]

    def request(self) -> bytes:
        """The bytes of the request."""
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.asked]
        if self.in_chunks:
            body = b"".join(chunked(piece) for piece in self.pieces(self.body)) + LAST
            lines.append("Transfer-Encoding: chunked")
        else:
            body = self.body
            lines += [f"Content-Length: {len(body)}"] if body else []
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def play(self, line: Line) -> None:
        """Answer."""
        lines = [f"HTTP/1.1 {self.status} Any", f"Content-Type: {self.kind}"]
        lines += [f"{name}: {value}" for name, value in self.answered]
        pieces = self.pieces(self.answer)
        has_body = self.status not in {204, 304}
        if has_body and self.framing == "length":
            lines.append(f"Content-Length: {len(self.answer)}")
        elif has_body and self.framing == "chunks":
            lines.append("Transfer-Encoding: chunked")
            pieces = [*(chunked(piece) for piece in pieces), LAST]
        else:
            lines.append("Connection: close")
        line.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for piece in pieces:
            line.connection.sendall(piece)
        if not has_body or self.framing == "close":
            line.connection.shutdown(socket.SHUT_WR)

    def ask(self, port: int) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send the request in pieces; what Python's own HTTP client reads."""
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            for piece in self.pieces(self.request()):
                connection.sendall(piece)
            with closing(HTTPResponse(connection, method=self.method)) as response:
                response.begin()
                headers = [each for each in response.getheaders() if each[0].lower() not in OF_ONE_CONNECTION]
                return response.status, headers, response.read()


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_wires_are_the_same(first: int) -> None:
    """Methods, targets, headers, statuses, kinds and framings of all sorts; a failure names its seed."""
    wires: list[Wire] = []

    def play(line: Line) -> None:
        wires[-1].play(line)

    with raw_server(play) as upstream, proxied(upstream.url) as proxy:
        for seed in range(first, first + 20):
            wire = Wire(seed)
            wires.append(wire)
            seen = []
            for port in (int(upstream.url.rpartition(":")[2]), proxy.port):
                wire.rng.seed(seed)
                upstream.lines.clear()
                seen.append((wire.ask(port), asked(list(upstream.lines))))
            assert seen[0][0] == (
                wire.status,
                [("Content-Type", wire.kind), *wire.answered],
                wire.answer,
            ), f"seed {seed}"
            assert seen[1] == seen[0], f"seed {seed}"
