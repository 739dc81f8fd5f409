"""`midstream probe` against real servers on loopback: what it prints, and how it fails."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import pty
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from midstream import StreamRecord
from midstream.cli import main
from midstream.cli.probe.table import row
from midstream.lab.library import read_recordings
from midstream.lab.recording import Recording
from midstream.lab.replay import replayer
from midstream.lab.server import serve
from midstream.probe import Seen, Totals, base_urls, clean, enumerated, totals_of, verdict
from midstream.testing import DONE, finish, frame, role, text, usage
from support.certificate import CERTIFICATE
from support.paths import RECORDINGS
from support.records import a_record

LIBRARY = read_recordings([RECORDINGS])
"""What real servers once sent."""

COMPLETE = [role(), text("Once"), text(" upon"), finish("length"), usage(9, 2), DONE]

Answer: TypeAlias = Callable[[dict[str, Any]], "Response | Awaitable[Response]"]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without a key, whatever the machine has."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


class Api:
    """A small OpenAI-compatible server. It answers as it is told, and remembers what it was asked."""

    def __init__(self, answer: Answer, listing: Response | None, prefix: str = "/v1") -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self._answer = answer
        self._listing = listing
        listed = [Route(f"{prefix}/models", self._list)] if listing is not None else []
        paths = ("/chat/completions", "/completions", "/responses")
        streamed = [Route(f"{prefix}{path}", self._stream, methods=["POST"]) for path in paths]
        self.app = Starlette(routes=[*listed, *streamed], exception_handlers={404: nothing_here})

    async def _list(self, request: Request) -> Response:
        self.keys.add(request.headers.get("authorization"))
        assert self._listing is not None
        return self._listing

    async def _stream(self, request: Request) -> Response:
        self.keys.add(request.headers.get("authorization"))
        body = await request.json()
        self.asked.append(body)
        answer = self._answer(body)
        return answer if isinstance(answer, Response) else await answer


async def nothing_here(_request: Request, _error: Exception) -> Response:
    """Answer 404 as FastAPI does."""
    return JSONResponse({"detail": "Not Found"}, status_code=404)


def models(*names: str) -> Response:
    """List these models."""
    return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def refusal(status: int, message: str, **more: Any) -> Response:
    """Refuse as OpenAI does."""
    return JSONResponse({"error": {"message": message, **more}}, status_code=status)


def events(*frames: str) -> Response:
    """Stream these events at once."""
    return Response("".join(frames), media_type="text/event-stream")


def complete(_body: dict[str, Any]) -> Response:
    """Stream a complete answer."""
    return events(*COMPLETE)


def recording(name: str) -> Recording:
    """Return the recording of that name."""
    (found,) = (each for each in LIBRARY if each.name == name)
    return found


class Switchboard:
    """One server for most tests, which puts each of them through to its own application."""

    url = ""
    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


SWITCHBOARD = Switchboard()


@pytest.fixture(scope="module", autouse=True)
def switchboard() -> Iterator[None]:
    """Have the server running."""
    with serve(SWITCHBOARD) as url:
        SWITCHBOARD.url = url.removesuffix("/v1")
        yield


@contextmanager
def api(
    answer: Answer = complete, listing: Response | None = None, *, lists: bool = True, prefix: str = "/v1"
) -> Iterator[tuple[str, Api]]:
    """Put an `Api` through, and give the address of its host with it."""
    made = Api(answer, (listing or models("tiny")) if lists else None, prefix)
    SWITCHBOARD.app = made.app
    yield SWITCHBOARD.url, made


Printed: TypeAlias = "pytest.CaptureFixture[str]"


def probed(*arguments: str, capsys: Printed) -> tuple[int, str, str]:
    """Run the command; return its exit status, its output, and what it said on standard error."""
    status = main(["probe", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def document(*arguments: str, capsys: Printed) -> dict[str, Any]:
    """Run the command with `--json` and return the document."""
    _, out, err = probed(*arguments, "--json", capsys=capsys)
    assert err == ""
    parsed = json.loads(out)
    assert isinstance(parsed, dict)
    return parsed


def blurred(printed: str) -> str:
    """Replace what differs from run to run: the port and every measured number, with the space before it."""
    return re.sub(r" *\b\d+\.\d+", " #", re.sub(r"127\.0\.0\.1:\d+", "HOST", printed))


# What is seen


@pytest.mark.alone
def test_what_was_recorded_is_what_is_seen(capsys: Printed) -> None:
    """A row for each stream; one of the two is the recorded freeze, and the last line says what to do."""
    with serve(replayer([recording("vllm_preempted_0"), recording("vllm_preempted_5")], speed=10)) as url:
        status, out, err = probed(
            url,
            *("--model", "tiny", "-n", "2", "--max-tokens", "700", "--freeze-after", "0.25"),
            capsys=capsys,
        )
    assert (status, err) == (0, "")
    head, rows, totals, last = out.split("\n\n")
    assert blurred(head) == "http://HOST/v1, chat, model tiny: 2 streams, 2 at a time"
    assert sorted(re.sub(r"^\d", "N", line) for line in blurred(rows).splitlines()[2:]) == [
        "N  completed  length # s # s at # s, text        0  700/700 #",
        "N  completed  length # s # s at # s, text        1  700/700 #",
    ]
    assert re.sub(r"\(stream \d\)", "(stream N)", blurred(totals)).splitlines() == [
        "first content  median # s, worst # s",
        "longest gap    median # s, worst # s (stream N)",
        "frozen         1 of 2 (silent for # s or more)",
        "tokens         1400 in # s, # per second in all",
    ]
    assert blurred(last) == (
        "1 of 2 streams froze, for # s: the server fell silent in mid-answer. Look in its log for "
        "preempted (vLLM) or retracted (SGLang) requests, and probe again with a lower --concurrency or "
        "--max-tokens: if that ends it, the server ran out of KV-cache memory.\n"
    )


def test_a_calm_server_is_called_calm(capsys: Printed) -> None:
    """Nothing froze: the table, the totals, and one sentence."""
    with api() as (url, _):
        status, out, err = probed(url, "-n", "2", "--max-tokens", "2", capsys=capsys)
    assert (status, err) == (0, "")
    assert blurred(out) == (
        "http://HOST/v1, chat, model tiny: 2 streams, 2 at a time\n"
        "\n"
        "                        first                                          tokens\n"
        "#  outcome    finish  content  longest gap            freezes  tokens   per s\n"
        "1  completed  length # s # s at # s, text        0     2/2 #\n"
        "2  completed  length # s # s at # s, text        0     2/2 #\n"
        "\n"
        "first content  median # s, worst # s\n"
        f"longest gap    median # s, worst # s (stream {out.partition('(stream ')[2][0]})\n"
        "frozen         0 of 2 (silent for 5 s or more)\n"
        "tokens         4 in # s, # per second in all\n"
        "\n"
        "No stream froze; longest gap # s.\n"
    )


class Froze(logging.Handler):
    """Knows once a stream has frozen, from the warning that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "midstream_event", "") == "freeze":
            self.seen.set()

    async def thaw_then(self, _: dict[str, Any]) -> Response:
        """Stream an answer that freezes, and goes on as soon as that was noticed."""
        return StreamingResponse(self._frames(), media_type="text/event-stream")

    async def _frames(self) -> AsyncIterator[str]:
        yield "".join(COMPLETE[:3])
        await asyncio.to_thread(self.seen.wait, 100)
        yield "".join(COMPLETE[3:])


@pytest.fixture
def froze() -> Iterator[Froze]:
    """Listen for freezes."""
    handler = Froze()
    logging.getLogger("midstream").addHandler(handler)
    yield handler
    logging.getLogger("midstream").removeHandler(handler)


def test_json_is_one_document_with_whole_records(froze: Froze, capsys: Printed) -> None:
    """Records come with the names of their fields, and nothing else is on standard output."""
    with api(froze.thaw_then) as (url, _):
        seen = document(url, "-n", "1", "--freeze-after", "0.1", "--max-tokens", "2", capsys=capsys)
    (record,) = seen.pop("records")
    totals = seen.pop("totals")
    assert list(record) == ["stream", *(field.name for field in fields(StreamRecord))]
    assert {name: record[name] for name in ("outcome", "finish_reasons", "freezes", "max_gap_phase")} == {
        "outcome": "completed",
        "finish_reasons": ["length"],
        "freezes": 1,
        "max_gap_phase": "text",
    }
    assert 0.1 <= record["max_gap_s"] < 5
    assert (record["output_tokens"], record["token_limit"], record["limit_hit"]) == (2, 2, True)
    assert record["stream"] == 1
    assert list(totals) == [field.name for field in fields(Totals)]
    assert (totals["frozen_share"], totals["output_tokens"], totals["failed"]) == ("1 of 1", 2, 0)
    assert blurred(seen.pop("verdict")) == (
        "1 of 1 streams froze, for # s: the server fell silent in mid-answer. With one stream at a time, "
        "look at what else the server was doing, and at the network."
    )
    assert seen == {
        "url": f"{url}/v1",
        "api": "chat",
        "model": "tiny",
        "count": 1,
        "concurrency": 4,
        "freeze_after_s": 0.1,
        "interrupted": False,
        "notes": [],
        "failures": [],
    }


@pytest.mark.parametrize(("more", "status"), [([], 0), (["--fail-on-freeze"], 1)])
def test_a_freeze_fails_only_on_request(more: list[str], status: int, froze: Froze, capsys: Printed) -> None:
    """A complete answer that froze is complete; `--fail-on-freeze` makes it a failure, for scripts."""
    with api(froze.thaw_then) as (url, _):
        assert probed(url, "-n", "1", "--freeze-after", "0.1", *more, capsys=capsys)[0] == status


@pytest.mark.parametrize(
    ("kind", "model", "reason", "tokens"),
    [
        ("chat", "vllm_chat_plain", "length", "?/7"),
        ("chat", "transformers_chat", "length", "40/7"),
        ("completions", "vllm_completions", "length", "40/7"),
        ("responses", "vllm_responses", "length", "30/7"),
        ("chat", "vllm_chat_tools_required", "tool_calls", "76/7"),
    ],
)
def test_each_api_is_probed_in_its_own_words(
    kind: str, model: str, reason: str, tokens: str, capsys: Printed
) -> None:
    """Tokens stand against the limit asked for, and are unknown where the server does not report them."""
    with serve(replayer(LIBRARY, speed=20)) as url:
        status, out, _ = probed(
            url, "--api", kind, "--model", model, "-n", "1", "--max-tokens", "7", capsys=capsys
        )
    row = out.splitlines()[4]
    assert status == 0
    assert row.split()[:3] == ["1", "completed", reason]
    assert row.split()[-2] == tokens
    unknown = "tokens         ?: the server did not report them for every stream"
    assert (unknown in out.splitlines()) == tokens.startswith("?")


def test_never_more_at_a_time_than_was_allowed(capsys: Printed) -> None:
    """Five answers, two at a time: the first waits for the second, and none for a third."""
    at_once: list[int] = []
    running: set[int] = set()
    both = threading.Event()

    async def one_of_several(_: dict[str, Any]) -> Response:
        async def body() -> AsyncIterator[str]:
            running.add(len(at_once))
            at_once.append(len(running))
            if len(running) == 2:
                both.set()
            yield role()
            await asyncio.to_thread(both.wait, 100)
            running.pop()
            for each in COMPLETE[1:]:
                yield each

        return StreamingResponse(body(), media_type="text/event-stream")

    with api(one_of_several) as (url, server):
        assert probed(url, "-n", "5", "--concurrency", "2", capsys=capsys)[0] == 0
    assert len(server.asked) == 5
    assert max(at_once) == 2


def test_records_belong_to_their_streams(capsys: Printed) -> None:
    """Whichever ends first, each record stands with the number of its stream."""
    asked = itertools.count(1)

    def answer(_: dict[str, Any]) -> Response:
        number = next(asked)
        return events(role(), *[text("x")] * number, finish(f"end-{number}"), usage(1, number), DONE)

    with api(answer) as (url, _):
        seen = document(url, "-n", "9", "--concurrency", "1", capsys=capsys)
        more = document(url, "-n", "30", "--concurrency", "7", capsys=capsys)
    assert [(r["stream"], r["content_chunks"]) for r in seen["records"]] == [(n, n) for n in range(1, 10)]
    assert [r["stream"] for r in more["records"]] == list(range(1, 31))
    assert sorted(r["content_chunks"] for r in more["records"]) == list(range(10, 40))


def test_a_long_probe_needs_no_more_threads_than_a_short_one(capsys: Printed) -> None:
    """Two streams at a time need two threads for hooks, however many streams there are."""
    threads: list[int] = []

    def answer(body: dict[str, Any]) -> Response:
        threads.append(sum(thread.name == "midstream-hooks" for thread in threading.enumerate()))
        return complete(body)

    with api(answer) as (url, _):
        before = sum(thread.name == "midstream-hooks" for thread in threading.enumerate())
        assert probed(url, "-n", "30", "--concurrency", "2", capsys=capsys)[0] == 0
    assert max(threads) <= before + 2


# What is asked, of whom


def test_the_request_is_what_the_options_say(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, prompt, limit and usage are in the body; the key is in the header, and nowhere else."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with api() as (url, server):
        status, out, err = probed(
            url,
            *("--model", "big", "--prompt", "Hello?", "--max-tokens", "7", "-n", "1"),
            capsys=capsys,
        )
    assert status == 0
    assert server.asked == [
        {
            "model": "big",
            "messages": [{"role": "user", "content": "Hello?"}],
            "stream": True,
            "max_tokens": 7,
            "stream_options": {"include_usage": True},
        }
    ]
    assert server.keys == {"Bearer sk-secret"}
    assert "sk-secret" not in out + err


def test_a_model_that_writes_text_is_picked_among_several(capsys: Printed) -> None:
    """Without `--model` the server's list decides, and the user is told what else there is."""
    with api(listing=models("text-embedding-3", "whisper-1", "big", "small")) as (url, server):
        status, out, _ = probed(url, "-n", "1", capsys=capsys)
    assert status == 0
    assert {body["model"] for body in server.asked} == {"big"}
    assert out.splitlines()[1] == (
        "Note: the server has text-embedding-3, whisper-1, big and small; --model chooses another."
    )


@pytest.mark.parametrize(
    "listing", [{"object": "list", "data": [{"id": "tiny"}], "models": []}, [{"id": "tiny"}]]
)
def test_lists_of_models_of_either_shape_are_read(listing: Any, capsys: Printed) -> None:
    """Some servers add to OpenAI's list, and some give a bare one."""
    with api(listing=JSONResponse(listing)) as (url, _):
        assert document(url, "-n", "1", capsys=capsys)["model"] == "tiny"


@pytest.mark.parametrize(
    "written",
    ["{}", "{}/", "{}/v1", "{}/v1/", "{}/v1/chat/completions", "{}/v1/models", "http://{}", "HTTP://{}/v1"],
)
def test_a_server_is_found_however_its_address_is_written(written: str, capsys: Printed) -> None:
    """With or without scheme, version or endpoint: what is used is said."""
    with api() as (url, _):
        seen = document(written.format(url.removeprefix("http://")), "-n", "1", capsys=capsys)
    assert seen["url"] == f"{url}/v1"


@pytest.mark.parametrize(
    ("prefix", "written"), [("", ""), ("", "/v1"), ("/proxy/v1", "/proxy"), ("/v2", "/v2")]
)
def test_an_api_is_found_at_any_path(prefix: str, written: str, capsys: Printed) -> None:
    """Not every server puts its API below /v1."""
    with api(prefix=prefix) as (url, _):
        seen = document(f"{url}{written}", "-n", "1", capsys=capsys)
    assert seen["url"] == f"{url}{prefix}"


def test_an_api_without_a_list_of_models_is_found_by_asking(capsys: Printed) -> None:
    """With `--model` no list is needed; where the streams are is found out by asking for one."""
    with api(lists=False, prefix="") as (url, server):
        status, out, _ = probed(url, "--model", "tiny", "-n", "2", capsys=capsys)
    assert status == 0
    assert len(server.asked) == 2
    assert out.splitlines()[:2] == [
        f"{url}, chat, model tiny: 2 streams, 2 at a time",
        f"Note: there is no /chat/completions at {url}/v1; asked at {url} instead.",
    ]


def test_a_redirect_on_the_same_host_is_followed(capsys: Printed) -> None:
    """Streams are asked for where the list of models was found: a redirected POST would become a GET."""
    with api(prefix="/new/v1") as (url, server):
        server.app.add_route("/v1/models", lambda _: RedirectResponse("/new/v1/models"))
        seen = document(url, "-n", "1", capsys=capsys)
    assert seen["url"] == f"{url}/new/v1"
    assert seen["totals"]["completed"] == 1


# Servers that do not know all of OpenAI's fields

UNSUPPORTED = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead."
)


def test_the_newer_name_of_the_limit_is_tried_once(capsys: Printed) -> None:
    """OpenAI's reasoning models refuse max_tokens; the limit still counts, and the user is told."""

    def picky(body: dict[str, Any]) -> Response:
        if "max_tokens" in body:
            return refusal(400, UNSUPPORTED, param="max_tokens", code="unsupported_parameter")
        return complete(body)

    with api(picky) as (url, server):
        seen = document(url, "-n", "3", "--concurrency", "1", "--max-tokens", "2", capsys=capsys)
    assert [sorted(body) for body in server.asked] == [
        ["max_tokens", "messages", "model", "stream", "stream_options"],
        *[["max_completion_tokens", "messages", "model", "stream", "stream_options"]] * 3,
    ]
    assert seen["notes"] == ["the server refuses max_tokens; asked with max_completion_tokens instead"]
    assert [(record["token_limit"], record["limit_hit"]) for record in seen["records"]] == [(2, True)] * 3


def test_a_server_without_stream_options_is_asked_without(capsys: Printed) -> None:
    """Usage may be missing then: unknown, never 0."""

    def strict(body: dict[str, Any]) -> Response:
        if "stream_options" in body:
            wrong = {
                "loc": ["body", "stream_options"],
                "msg": "Extra inputs are not permitted",
                "input": body,
            }
            return JSONResponse({"detail": [wrong]}, status_code=422)
        return events(role(), text("Once"), text(" upon"), finish(), DONE)

    with api(strict) as (url, server):
        status, out, _ = probed(url, "-n", "2", "--max-tokens", "9", capsys=capsys)
    assert status == 0
    assert sum("stream_options" in body for body in server.asked) in {1, 2}
    assert all("max_tokens" in body for body in server.asked)
    assert out.splitlines()[1] == (
        "Note: the server refuses stream_options; asked without, so that token counts may be missing."
    )
    assert [line.split()[-2:] for line in out.splitlines()[5:7]] == [["?/9", "?"]] * 2


def test_both_at_once_is_no_problem_either(capsys: Printed) -> None:
    """Streams that run side by side learn from each other what the server takes."""

    def old(body: dict[str, Any]) -> Response:
        for name in ("stream_options", "max_tokens"):
            if name in body:
                return refusal(400, f"Unrecognized request argument supplied: {name}")
        return complete(body)

    with api(old) as (url, _):
        seen = document(url, "-n", "6", "--concurrency", "6", capsys=capsys)
    assert seen["totals"]["completed"] == 6
    assert len(seen["notes"]) == 2


# What can go wrong before a stream begins


def failing(*arguments: str, capsys: Printed) -> str:
    """Run the command, which must fail with one sentence, and return it."""
    status, out, err = probed(*arguments, capsys=capsys)
    assert (status, out) == (1, "")
    assert err.startswith("midstream: ")
    assert err.count("\n") == 1
    return err.removeprefix("midstream: ").removesuffix("\n")


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            refusal(400, "Bad temperature."),
            "{}/v1 refuses the request (400: Bad temperature); see --model, --max-tokens and --api",
        ),
        (
            refusal(400, "max_tokens is too large"),
            "{}/v1 refuses the request (400: max_tokens is too large); see --model, --max-tokens and --api",
        ),
        (refusal(401, "No key"), "{}/v1 wants a key (401: No key); set OPENAI_API_KEY"),
        (refusal(403, ""), "{}/v1 denies access (403); set OPENAI_API_KEY to a key that has it"),
        (
            JSONResponse({"detail": "Not Found"}, 404),
            "{}/v1/chat/completions is not served (404: Not Found); try another --api, or check the URL",
        ),
        (refusal(405, ""), "{}/v1/chat/completions is not served (405); try another --api, or check the URL"),
        (
            refusal(404, "The model `big` does not exist."),
            "there is no model big at {}/v1; it has small and tiny",
        ),
        (refusal(400, "Invalid model name passed"), "there is no model big at {}/v1; it has small and tiny"),
        (
            refusal(429, "Slow down."),
            "{}/v1 takes no more requests now (429: Slow down); wait, or lower --count and --concurrency",
        ),
        (refusal(500, "Boom"), "{}/v1 fails (500: Boom); see the server's log"),
        (
            Response("upstream is away", 503),
            "{}/v1 is not available (503: upstream is away); wait until the server is up and has room",
        ),
        (
            Response("teapot", 418),
            "{}/v1 does not answer as an OpenAI-compatible server does (418: teapot); check the URL",
        ),
        (
            HTMLResponse("<h1>Sorry</h1>", 502),
            "{}/v1 answers with a web page (502), not with an API; check the URL",
        ),
        (HTMLResponse("<h1>Hello</h1>"), "{}/v1 answers with a web page, not with an API; check the URL"),
        (
            JSONResponse({"choices": []}),
            (
                "{}/v1 does not stream: it answers stream=true with application/json; "
                "switch streaming on in the server, or in the proxy before it"
            ),
        ),
        (
            Response(""),
            (
                "{}/v1 does not stream: it answers stream=true with no content type; "
                "switch streaming on in the server, or in the proxy before it"
            ),
        ),
        (
            events("data: hello\n\n"),
            "{}/v1 streams events that are not JSON; check that it is an OpenAI-compatible server",
        ),
        (events(), "{}/v1 ended the stream without having sent anything; see the server's log"),
    ],
)
def test_a_refused_stream_is_one_sentence(
    answer: Response, sentence: str, more: list[str], capsys: Printed
) -> None:
    """What, where and what to do, and status 1; nothing on standard output, with `--json` or without."""
    with api(lambda _: answer, models("small", "tiny")) as (url, _):
        said = failing(url, "--model", "big", "-n", "1", *more, capsys=capsys)
    assert said == sentence.format(url)


@pytest.mark.parametrize(
    ("listing", "sentence"),
    [
        (models(), "{}/v1 has no model; load one there, or name one with --model"),
        (refusal(401, "No key"), "{}/v1 wants a key (401: No key); set OPENAI_API_KEY"),
        (
            refusal(404, "Nothing"),
            "{}/v1 has no list of models (404); check the URL, or name a model with --model",
        ),
        (
            refusal(501, "Nothing"),
            "{}/v1 has no list of models (501); check the URL, or name a model with --model",
        ),
        (
            HTMLResponse("<!doctype html>"),
            "{}/v1 answers with a web page (200), not with an API; check the URL",
        ),
        (
            Response("Ollama is running"),
            (
                "{}/v1 does not answer as an OpenAI-compatible server does (200: Ollama is running); "
                "check the URL"
            ),
        ),
        (
            JSONResponse({"models": []}),
            "{}/v1 does not answer as an OpenAI-compatible server does (200); check the URL",
        ),
        (Response("[" * 100_000), None),
        (
            refusal(503, "Loading model"),
            "{}/v1 is not available (503: Loading model); wait until the server is up and has room",
        ),
    ],
)
def test_a_server_whose_models_are_unknown_needs_to_be_told(
    listing: Response, sentence: str | None, capsys: Printed
) -> None:
    """Without a list and without `--model` there is nothing to ask for."""
    with api(listing=listing) as (url, server):
        said = failing(url, capsys=capsys)
        if sentence is not None:
            assert said == sentence.format(url)
        assert server.asked == []


@pytest.mark.parametrize(
    "listing", [models(), refusal(403, "No"), refusal(404, "No"), refusal(500, "No"), HTMLResponse("<html>")]
)
def test_a_model_that_was_named_needs_no_list(listing: Response, capsys: Printed) -> None:
    """A key may be allowed to use a model and not to list them."""
    with api(listing=listing) as (url, _):
        assert probed(url, "--model", "tiny", "-n", "1", capsys=capsys)[0] == 0


def test_models_are_named_up_to_a_point(capsys: Printed) -> None:
    """A server with a hundred models does not fill the screen with them."""
    names = [f"m{number}" for number in range(100)]
    with api(lambda _: refusal(404, "No such model"), models(*names)) as (url, _):
        assert failing(url, "--model", "big", capsys=capsys) == (
            f"there is no model big at {url}/v1; it has m0, m1, m2, m3, m4, m5, m6, m7 and 92 more"
        )
    assert [enumerated(names[:count]) for count in (1, 2, 3)] == ["m0", "m0 and m1", "m0, m1 and m2"]


def test_a_wrong_key_is_never_repeated(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers quote the key that they refuse; we do not."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with api(lambda _: refusal(401, "Incorrect API key provided: sk-secret.")) as (url, _):
        assert failing(url, capsys=capsys) == (
            f"{url}/v1 does not accept the key in OPENAI_API_KEY (401: Incorrect API key provided: ***); "
            "set it to a valid one"
        )


@pytest.mark.parametrize("key", ["sk-\N{HORIZONTAL ELLIPSIS}", "sk-1\nX-Other: 2"])
def test_a_key_that_no_header_can_carry_is_not_sent(
    key: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key pasted with an ellipsis or a second line is a mistake, and is not printed either."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    assert (
        failing("localhost:9", capsys=capsys)
        == "OPENAI_API_KEY holds characters that a key cannot have; set it again"
    )


def test_what_a_server_says_cannot_take_over_the_terminal(capsys: Printed) -> None:
    """Control characters are gone, lines are one, and 200 characters are enough."""
    hostile = "\x1b[31mRed\x1b[0m\x1b]0;title\x07 \r\n\u202ebackwards\x9b\x00 " + "long " * 100
    with api(lambda _: refusal(400, hostile)) as (url, _):
        said = failing(url, capsys=capsys)
    quoted = said.partition("400: ")[2].partition("); see")[0]
    assert quoted == ("Red backwards " + "long " * 100)[:199] + "…"
    assert clean("a\tb\u2028c\ud800") == "a b c"


def test_a_finish_reason_is_shown_as_it_came(capsys: Printed) -> None:
    """Whatever a server calls its finish, it is text, and no markup of the table's."""
    with api(lambda _: events(role(), text("a"), finish("[/red] :smile:\x1b[31m"), DONE)) as (url, _):
        status, out, _ = probed(url, "-n", "1", capsys=capsys)
    assert status == 0
    assert out.splitlines()[4].startswith("1  completed  [/red] :smile:\ufffd[31m  ")


def test_a_hopeless_server_is_not_asked_again_and_again(capsys: Printed) -> None:
    """Of a thousand streams, those that were under way learn that the key is wrong; no other is begun."""
    with api(lambda _: refusal(401, "No")) as (url, server):
        failing(url, "-n", "1000", "--concurrency", "2", capsys=capsys)
    assert len(server.asked) <= 2


def test_a_server_that_is_down_is_named(capsys: Printed) -> None:
    """Connection refused: where, and what to do."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    for written in (address, f"http://{address}/v1"):
        assert failing(written, "--model", "tiny", capsys=capsys) == (
            f"nothing listens at http://{address}; start the server there, or check host and port"
        )


def test_a_host_that_does_not_exist_is_named(capsys: Printed) -> None:
    """No such host: its name, for that is where the mistake is."""
    assert failing("http://user:word@nope.invalid:8000/v1", capsys=capsys) == (
        "no host is called nope.invalid; check how it is spelt, or the DNS of this machine"
    )


@contextmanager
def raw_server(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """Answer each connection's first bytes with bytes, and hang up; give host and port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer(connection.recv(65536)))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.9\r\n"])
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_what_does_not_speak_http_is_named(scheme: str, answer: bytes, capsys: Printed) -> None:
    """Another service at that port hangs up, or says something else."""
    with raw_server(lambda _: answer) as address:
        assert failing(f"{scheme}{address}", capsys=capsys) == (
            f"http://{address} hangs up without an answer in HTTP; check the port, and whether it wants https://"
        )


def test_https_to_a_server_without_tls_is_named(capsys: Printed) -> None:
    """The remedy is one letter less."""
    with api() as (url, _):
        where = url.replace("http://", "https://")
        assert (
            failing(where, capsys=capsys)
            == f"{where} does not speak TLS as expected; write http:// if it has none"
        )


class Lists(BaseHTTPRequestHandler):
    """Lists one model and streams one answer, over whatever socket it is given."""

    def do_GET(self) -> None:
        self._send("application/json", b'{"data": [{"id": "tiny"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._send("text/event-stream", "".join(COMPLETE).encode())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class TlsServer(ThreadingHTTPServer):
    """Serves TLS; clients that do not like it are no news."""

    def handle_error(self, *_: object) -> None:
        pass


def test_a_certificate_that_is_not_trusted_is_named_and_the_remedy_works(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with a certificate of its own making is probed once its authority is known."""
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with TlsServer(("127.0.0.1", 0), Lists) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            for written in (address, f"https://{address}"):
                assert re.fullmatch(
                    rf"https://{address} shows a certificate that is not trusted here \(self.signed "
                    r"certificate\); name a file with its authority's certificate in SSL_CERT_FILE",
                    failing(written, capsys=capsys),
                )
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert document(address, "-n", "1", capsys=capsys)["url"] == f"https://{address}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_does_not_answer_is_given_up(capsys: Printed) -> None:
    """Headers that never come: how long was waited, and how to wait longer."""
    go = threading.Event()

    async def late(body: dict[str, Any]) -> Response:
        await asyncio.to_thread(go.wait, 100)
        return complete(body)

    with api(late) as (url, _):
        said = failing(url, "--timeout", "0.2", capsys=capsys)
        go.set()
    assert said == (
        f"{url}/v1 did not answer within 0.2 s; see whether the server is overloaded, or raise --timeout"
    )


def test_a_redirect_to_another_host_is_not_followed(capsys: Printed) -> None:
    """A key must not go where the user did not send it."""
    server = Api(complete, models("tiny"))
    with serve(server.app) as elsewhere:
        other = elsewhere.replace("127.0.0.1", "localhost").removesuffix("/v1")
        with api(listing=RedirectResponse(f"{other}/v1/models")) as (url, _):
            assert failing(url, capsys=capsys) == (
                f"{url}/v1 redirects to {other}; probe that address instead, if it may have your key"
            )
    assert server.asked == []


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("1", "MIDSTREAM_DISABLED switches midstream off, so that it sees nothing; unset it to probe"),
        ("maybe", "MIDSTREAM_DISABLED must be 1 or 0, got 'maybe'"),
    ],
)
def test_midstream_switched_off_cannot_probe(
    value: str, sentence: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch in the environment that makes us blind is named."""
    monkeypatch.setenv("MIDSTREAM_DISABLED", value)
    with api() as (url, _):
        assert failing(url, capsys=capsys) == sentence


# What can go wrong in mid-stream


def mid_stream(answer: Answer, *more: str, capsys: Printed) -> tuple[list[str], list[str]]:
    """Probe a server once, whose stream fails; return the row's words and the lines after the totals."""
    with api(answer) as (url, _):
        status, out, err = probed(url, "-n", "1", *more, capsys=capsys)
    assert (status, err) == (1, "")
    lines = blurred(out).replace(blurred(url), "URL").splitlines()
    return lines[4].split(), lines[11:]


def test_an_error_event_fails_the_stream(capsys: Printed) -> None:
    """What the server says of its failure is quoted, and the gap before it is counted."""
    words, lines = mid_stream(
        lambda _: events(role(), text("a"), frame({"error": {"message": "KV cache\x1b[2J is full"}}), DONE),
        capsys=capsys,
    )
    assert words[:3] == ["1", "error", "-"]
    assert "never ended" in " ".join(words)
    assert lines == [
        "Stream 1: URL/v1 failed while streaming (KV cache is full); see the server's log.",
        "1 of 1 streams failed. No stream froze; longest gap # s.",
    ]


def test_a_broken_connection_fails_the_stream(capsys: Printed) -> None:
    """An answer that is shorter than announced was cut."""

    def answer(request: bytes) -> bytes:
        if request.startswith(b"GET"):
            return b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"data": [{"id": "tiny"}]}'
        frames = "".join([role(), text("a"), text("b")])
        return f"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{frames}".encode()

    with raw_server(answer) as address:
        status, out, err = probed(address, "-n", "1", capsys=capsys)
    assert (status, err) == (1, "")
    assert out.splitlines()[4].split()[:3] == ["1", "error", "-"]
    assert out.splitlines()[11] == (
        f"Stream 1: http://{address}/v1 broke off while streaming; "
        "see the server's log, and that of any proxy between."
    )


def test_silence_beyond_the_timeout_fails_the_stream(capsys: Printed) -> None:
    """A gap that nothing ended is the longest, and a freeze."""

    async def freezing() -> AsyncIterator[str]:
        yield role() + text("a") + text("b")
        await asyncio.Event().wait()

    words, lines = mid_stream(
        lambda _: StreamingResponse(freezing(), media_type="text/event-stream"),
        *("--timeout", "0.6", "--freeze-after", "0.1", "--concurrency", "1"),
        capsys=capsys,
    )
    assert " ".join(words) == "1 timeout - # s # s at # s, text, never ended 1 ?/256 ?"
    assert lines == [
        "Stream 1: URL/v1 sent nothing for # s while streaming; raise --timeout to wait longer.",
        (
            "1 of 1 streams failed. 1 of 1 streams froze, for # s: the server fell silent in mid-answer. "
            "With one stream at a time, look at what else the server was doing, and at the network."
        ),
    ]


@pytest.mark.parametrize(
    "busy", [": ping\n\n", frame({"id": "x", "choices": []})], ids=["comments", "events"]
)
@pytest.mark.parametrize("begun", [False, True])
def test_a_stream_that_is_only_kept_alive_is_given_up(busy: str, begun: bool, capsys: Printed) -> None:
    """Bytes come all the time, so the client's own timeout never ends it; output comes never, or no more."""

    async def pinging() -> AsyncIterator[str]:
        if begun:
            yield role() + text("a") + text("b")
        while True:
            yield busy
            await asyncio.sleep(0.02)

    sentence = (
        "sent no output for 0.3 s, and kept the connection busy with comments or empty events; "
        "see the server's log, or raise --timeout to wait longer"
    )
    answer = StreamingResponse(pinging(), media_type="text/event-stream")
    if begun or "data" in busy:
        words, lines = mid_stream(lambda _: answer, "--timeout", "0.3", capsys=capsys)
        assert words[:2] == ["1", "cancelled"]
        assert lines[0] == f"Stream 1: URL/v1 {sentence.replace('0.3', '#')}."
    else:
        with api(lambda _: answer) as (url, _):
            assert failing(url, "-n", "1", "--timeout", "0.3", capsys=capsys) == f"{url}/v1 {sentence}"


def test_headers_that_come_a_byte_at_a_time_are_not_waited_for(capsys: Printed) -> None:
    """Each byte is in time, and the last one never comes."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                    while not over.wait(0.02):
                        connection.sendall(b"a")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        said = failing(url, "--timeout", "0.3", capsys=capsys)
        over.set()
        thread.join()
    assert said == (
        f"{url}/v1 did not answer within 0.3 s; see whether the server is overloaded, or raise --timeout"
    )


@pytest.mark.parametrize(
    ("frames", "outcome", "problem"),
    [
        (
            [role(), text("a"), text("b"), DONE],
            "no_finish",
            (
                "URL/v1 ended the stream without a finish reason: "
                "the answer was cut, or the server gives none; see its log"
            ),
        ),
        (
            [frame({"type": "message_start"}), frame({"type": "message_stop"})],
            "no_finish",
            (
                "URL/v1 sent 2 events without any output or finish; check that it is an OpenAI-compatible "
                "server, or try another --api"
            ),
        ),
    ],
)
def test_a_stream_that_is_no_answer_fails(
    frames: list[str], outcome: str, problem: str, capsys: Printed
) -> None:
    """Neither a cut answer nor another protocol passes for a complete one."""
    words, lines = mid_stream(lambda _: events(*frames), capsys=capsys)
    assert words[:2] == ["1", outcome]
    assert lines[0] == f"Stream 1: {problem}."


def test_some_streams_may_fail_where_others_do_not(capsys: Printed) -> None:
    """Each failure is told once, with its streams, beside what the others did."""
    with api(lambda _: refusal(429, "Slow down.") if len(server.asked) > 2 else events(*COMPLETE)) as (
        url,
        server,
    ):
        status, out, err = probed(url, "-n", "4", "--concurrency", "1", capsys=capsys)
    lines = out.replace(url, "URL").splitlines()
    assert (status, err) == (1, "")
    assert [line.split()[:2] for line in lines[4:8]] == [
        ["1", "completed"],
        ["2", "completed"],
        ["3", "refused"],
        ["4", "refused"],
    ]
    assert lines[11] == "frozen         0 of 4 (silent for 5 s or more)"
    assert lines[12] == "tokens         ?: the server did not report them for every stream"
    assert lines[14] == (
        "Streams 3, 4: URL/v1 takes no more requests now (429: Slow down); "
        "wait, or lower --count and --concurrency."
    )
    assert blurred(lines[15]) == "2 of 4 streams failed. No stream froze; longest gap # s."


# On a terminal, and interrupted


class Freezing:
    """A server whose streams stop after two words until they are let go, and that notices who leaves."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.left = threading.Event()

    def answer(self, _: dict[str, Any]) -> Response:
        return StreamingResponse(self._frames(), media_type="text/event-stream")

    async def _frames(self) -> AsyncIterator[str]:
        try:
            yield "".join(COMPLETE[:3])
            await asyncio.to_thread(self.go.wait, 100)
            yield "".join(COMPLETE[3:])
        except asyncio.CancelledError:
            self.left.set()
            raise


@contextmanager
def running(*arguments: str, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process of its own, which is gone when the block ends."""
    command = [sys.executable, "-m", "midstream", "probe", *arguments]
    with subprocess.Popen(command, text=True, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_interrupted_probe_tells_what_it_saw(more: list[str]) -> None:
    """Ctrl-C in the middle of a freeze: the freeze is told, the server is let go, the exit status is 130."""
    server = Freezing()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        api(server.answer) as (url, _),
        running(url, "-n", "2", "--concurrency", "1", "--freeze-after", "0.1", *more, **pipes) as process,
    ):
        assert process.stderr is not None
        assert "stream froze" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert server.left.wait(timeout=60)
        server.go.set()
    assert process.returncode == 130
    assert err.startswith("midstream: stream ended while frozen (cancelled): no output from tiny at ")
    assert err.count("\n") == 1
    told = (
        "Interrupted: 0 of 1 streams had completed. 1 of 1 streams froze, for # s: the server fell silent in "
        "mid-answer. With one stream at a time, look at what else the server was doing, and at the network."
    )
    if more:
        seen = json.loads(out)
        (record,) = seen["records"]
        assert (seen["interrupted"], seen["failures"]) == (True, [])
        assert (record["outcome"], record["max_gap_open"]) == ("cancelled", True)
        assert blurred(seen["verdict"]) == told
    else:
        lines = blurred(out).splitlines()
        assert " ".join(lines[4].split()) == "1 cancelled - # s # s at # s, text, never ended 1 ?/256 ?"
        assert lines[-1] == told


def test_an_interrupt_before_anything_was_seen_says_nothing() -> None:
    """Ctrl-C while the server is still looked for."""
    asked, go = threading.Event(), threading.Event()

    async def waits(_: Request) -> Response:
        asked.set()
        await asyncio.to_thread(go.wait, 100)
        return models("tiny")

    app = Starlette(routes=[Route("/v1/models", waits)])
    with serve(app) as url, running(url, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert asked.wait(timeout=60)
        process.send_signal(signal.SIGINT)
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 130)
        go.set()


def read_all(terminal: int) -> str:
    """Return what was written to a terminal until nobody has it open any more."""
    said = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            return said.decode()
        if not part:
            return said.decode()
        said += part


def test_a_terminal_shows_the_streams_while_they_run() -> None:
    """One line a stream on standard error, frozen ones marked; the table alone is on standard output."""
    server = Freezing()
    out, out_side = pty.openpty()
    err, err_side = pty.openpty()
    with (
        api(server.answer) as (url, _),
        running(
            *(url, "-n", "1", "--freeze-after", "0.1"),
            stdout=out_side,
            stderr=err_side,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"},
        ) as process,
    ):
        os.close(out_side)
        os.close(err_side)
        shown = ""
        while "FROZEN" not in shown:
            shown += os.read(err, 4096).decode()
        server.go.set()
        shown += read_all(err)
        table = read_all(out)
        assert process.wait(timeout=60) == 0
    os.close(out)
    os.close(err)
    assert f"{url}/v1  0 of 1 streams have ended" in shown
    assert re.search(r"   1  FROZEN        3 chunks     \d\.\d s since the last content", shown)
    assert "FROZEN" not in table
    assert blurred(table).splitlines()[0] == "http://HOST/v1, chat, model tiny: 1 stream, 1 at a time"
    assert "1 of 1 streams froze" in table


# Usage


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["ftp://host"],
            "Invalid value for URL: only http and https can be asked; write it like http://localhost:8000",
        ),
        (
            ["http://"],
            "Invalid value for URL: its host or port is malformed; write it like http://localhost:8000",
        ),
        (
            ["http://host:99999"],
            "Invalid value for URL: its host or port is malformed; write it like http://localhost:8000",
        ),
        (
            ["http://[::1"],
            "Invalid value for URL: its host or port is malformed; write it like http://localhost:8000",
        ),
        (
            ["no url at all"],
            "Invalid value for URL: a URL is not empty and holds no spaces; write it like http://localhost:8000",
        ),
        (
            ["http://host/v1?key=1"],
            "Invalid value for URL: an address has no part after ? or #; leave it out",
        ),
        (["host", "--timeout", "0"], "Invalid value for --timeout: 0.0 is not a positive number of seconds"),
        (
            ["host", "--freeze-after", "nan"],
            "Invalid value for --freeze-after: nan is not a positive number of seconds",
        ),
        ([], "Missing argument 'URL'"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], sentence: str, capsys: Printed) -> None:
    """A mistake in the command is named before anything is asked."""
    assert probed(*arguments, capsys=capsys) == (
        2,
        "",
        f"midstream: {sentence}; `midstream probe --help` explains\n",
    )


def test_help_teaches_with_two_examples(capsys: Printed) -> None:
    """Lines to copy, each on a line of its own."""
    status, out, _ = probed("--help", capsys=capsys)
    assert status == 0
    examples = [line for line in out.splitlines() if line.startswith("  midstream probe ")]
    assert len(examples) == 2


@pytest.mark.parametrize(
    ("written", "tried"),
    [
        (
            "localhost:8000",
            [
                "http://localhost:8000/v1",
                "http://localhost:8000",
                "https://localhost:8000/v1",
                "https://localhost:8000",
            ],
        ),
        ("10.0.0.7", ["http://10.0.0.7/v1", "http://10.0.0.7", "https://10.0.0.7/v1", "https://10.0.0.7"]),
        (
            "[::1]:8000/v1",
            ["http://[::1]:8000/v1", "http://[::1]:8000", "https://[::1]:8000/v1", "https://[::1]:8000"],
        ),
        (
            "gpu-box.local/v1",
            [
                "http://gpu-box.local/v1",
                "http://gpu-box.local",
                "https://gpu-box.local/v1",
                "https://gpu-box.local",
            ],
        ),
        (
            "llm.models.svc/v1",
            [
                "http://llm.models.svc/v1",
                "http://llm.models.svc",
                "https://llm.models.svc/v1",
                "https://llm.models.svc",
            ],
        ),
        ("api.example.com", ["https://api.example.com/v1", "https://api.example.com"]),
        ("8.8.8.8:8000", ["https://8.8.8.8:8000/v1", "https://8.8.8.8:8000"]),
        ("http://api.example.com", ["http://api.example.com/v1", "http://api.example.com"]),
        (
            "https://api.example.com/openai/v1/responses",
            ["https://api.example.com/openai/v1", "https://api.example.com/openai"],
        ),
        (
            " https://api.example.com/v1beta/openai/ ",
            ["https://api.example.com/v1beta/openai", "https://api.example.com/v1beta/openai/v1"],
        ),
    ],
)
def test_a_key_crosses_the_internet_in_the_clear_only_on_request(written: str, tried: list[str]) -> None:
    """Without a scheme, plain HTTP is tried only with hosts of one's own network."""
    assert base_urls(written) == tuple(tried)


def ended(**measured: Any) -> StreamRecord:
    """Make the record of a stream that is complete, and of which nothing but this is known."""
    return a_record(**{"hidden": 0, "shared": 0, "suspected": "unknown", **measured})


@pytest.mark.parametrize(
    ("seen", "cells"),
    [
        (
            Seen(1, ended(output_tokens=50, token_limit=50, time_to_first_content_s=0.123), None),
            ("1", "completed", "stop", "0.12 s", "-", "0", "50/50", "100.0"),
        ),
        (
            Seen(2, ended(max_gap_s=6.4, max_gap_at_s=1.25, max_gap_phase="tool_call", freezes=1), None),
            ("2", "completed", "stop", "-", "6.40 s at 1.2 s, tool call", "1", "1/?", "2.0"),
        ),
        (
            Seen(3, ended(max_gap_s=0.0, max_gap_at_s=0.4, output_tokens=None, buffered=True), None),
            ("3", "completed", "stop", "-", "hidden: one burst", "0", "?/?", "?"),
        ),
        (
            Seen(4, ended(finish_reasons=("st\x1b[1mop", None), usage_complete=False), "cut"),
            ("4", "completed", "stop, -", "-", "-", "0", "1+/?", "?"),
        ),
        (Seen(5, None, "refused"), ("5", "refused", "-", "-", "-", "-", "-", "-")),
        (Seen(6, None, None), ("6", "cancelled", "-", "-", "-", "-", "-", "-")),
    ],
)
def test_a_row_says_what_is_known_and_what_is_not(seen: Seen, cells: tuple[str, ...]) -> None:
    """What was not reported is unknown, never 0; what came in one burst is hidden, never smooth."""
    assert row(seen) == cells


def test_totals_leave_out_what_was_not_measured() -> None:
    """The gap of 0 of an answer in one burst counts for nothing, nor do tokens that only some reported."""
    seen = [
        Seen(1, ended(max_gap_s=0.0, buffered=True, output_tokens=None, usage_complete=False), None),
        Seen(2, ended(max_gap_s=0.5, time_to_first_content_s=1.0), None),
        Seen(3, ended(max_gap_s=1.5, time_to_first_content_s=2.0, output_tokens=2), None),
        Seen(4, None, "refused"),
    ]
    assert totals_of(seen, 2.0) == Totals(
        streams=4,
        completed=3,
        failed=1,
        frozen=0,
        frozen_share="0 of 4",
        freezes=0,
        frozen_s=0,
        shared=0,
        withheld=0,
        buffered=1,
        max_gap_s=1.5,
        max_gap_stream=3,
        median_max_gap_s=1.0,
        max_time_to_first_content_s=2.0,
        median_time_to_first_content_s=1.5,
        output_tokens=None,
        tokens_per_s=None,
        median_tokens_per_s=3.0,
        elapsed_s=2.0,
    )


FROZEN = {"max_gap_s": 6.0, "freezes": 1, "frozen_s": 6.0}


@pytest.mark.parametrize(
    ("records", "at_a_time", "said"),
    [
        ([{}], 4, "No gap could be measured: that takes an answer that arrives in several pieces."),
        ([{"max_gap_s": 0.094}], 4, "No stream froze; longest gap 0.09 s."),
        (
            [{"max_gap_s": 0.1}, {"max_gap_s": 0.0, "buffered": True}],
            4,
            (
                "No stream froze; longest gap 0.10 s. 1 of 2 streams arrived in one burst, which hides "
                "any freeze: something between holds answers back; look for a proxy that buffers."
            ),
        ),
        (
            [FROZEN, {"max_gap_s": 0.1}],
            4,
            (
                "1 of 2 streams froze, for 6.00 s: the server fell silent in mid-answer. Look in its log for "
                "preempted (vLLM) or retracted (SGLang) requests, and probe again with a lower --concurrency "
                "or --max-tokens: if that ends it, the server ran out of KV-cache memory."
            ),
        ),
        (
            [{**FROZEN, "shared": 1}, {**FROZEN, "shared": 1}],
            2,
            (
                "2 of 2 streams froze, for 6.00 s at worst: the server fell silent in mid-answer. All its "
                "streams fell silent together: look in its log for a long prefill or an engine that stood "
                "still, and at the network."
            ),
        ),
        (
            [{**FROZEN, "suspected": "withheld"}],
            1,
            (
                "1 of 1 streams froze, for 6.00 s: the server fell silent in mid-answer. The tokens of that "
                "gap came all at once after it, so they were held back: look at the server's parser for "
                "tool calls or reasoning, and at proxies between."
            ),
        ),
        (
            [FROZEN, FROZEN],
            1,
            (
                "2 of 2 streams froze, for 6.00 s at worst: the server fell silent in mid-answer. With one "
                "stream at a time, look at what else the server was doing, and at the network."
            ),
        ),
    ],
)
def test_verdicts_are_plain_words(records: list[dict[str, Any]], at_a_time: int, said: str) -> None:
    """What was seen, what it means, and what to look at next."""
    seen = [Seen(number, ended(**fields_), None) for number, fields_ in enumerate(records, 1)]
    assert verdict(totals_of(seen, 1.0), at_a_time, interrupted=False) == said
