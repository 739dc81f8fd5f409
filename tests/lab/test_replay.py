import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from starlette.types import Message, Receive, Scope, Send

from midstream.lab.library import read_recordings
from midstream.lab.recording import PATHS, Recording
from midstream.lab.replay import replayer
from midstream.lab.server import serve
from support.needs import needs_responses
from support.paths import RECORDINGS

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk

SPEED = 20
LIBRARY = read_recordings([RECORDINGS])


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """Serve every recording, twenty times as fast as recorded."""
    with serve(replayer(LIBRARY, speed=SPEED)) as url:
        yield url


@pytest.fixture
def client(base_url: str) -> Iterator[OpenAI]:
    """Give a real client of that server."""
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as opened:
        yield opened


def ask(client: OpenAI, model: str) -> "list[ChatCompletionChunk]":
    """Stream one chat answer to its end."""
    return list(client.chat.completions.create(model=model, messages=[], stream=True))


def request(base_url: str, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """Exchange one request as bytes, and return status, headers and body."""
    with closing(HTTPConnection(urlsplit(base_url).netloc, timeout=10)) as connection:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


def recording(name: str) -> Recording:
    """Return the recording of that name."""
    (found,) = (each for each in LIBRARY if each.name == name)
    return found


@pytest.mark.parametrize(
    ("model", "chunks", "finish_reasons", "usage"),
    [
        ("aimock_chat", 10, ["stop"], (2, 8)),
        ("litellm_chat", 42, ["length"], (4, 40)),
        ("llamacpp_chat", 43, ["length"], (3, 40)),
        ("transformers_chat", 37, ["length"], (4, 40)),
        ("vllm_chat_client_abort", 20, [], None),
        ("vllm_chat_n2", 25, ["length", "length"], None),
        ("vllm_chat_plain", 40, ["length"], None),
        ("vllm_chat_stop_string", 4, ["stop"], None),
        ("vllm_chat_tools_required", 24, ["tool_calls"], (234, 76)),
        ("vllm_preempted_5", 678, ["length"], (49, 700)),
        ("over8-7", 685, ["length"], (49, 700)),
    ],
)
def test_a_chat_client_receives_what_was_recorded(
    client: OpenAI, model: str, chunks: int, finish_reasons: list[str], usage: tuple[int, int] | None
) -> None:
    """A recording asked for by name gives its chunks, finish reasons and usage, and ends cleanly."""
    received = ask(client, model)
    reported = [chunk.usage for chunk in received if chunk.usage]
    assert len(received) == chunks
    assert [c.finish_reason for chunk in received for c in chunk.choices if c.finish_reason] == finish_reasons
    last = (reported[-1].prompt_tokens, reported[-1].completion_tokens) if reported else None
    assert last == usage


def test_a_completions_client_receives_what_was_recorded(client: OpenAI) -> None:
    """Legacy completions are served at their own path."""
    received = list(client.completions.create(model="vllm_completions", prompt="", stream=True))
    assert len(received) == 41
    assert received[-2].choices[0].finish_reason == "length"


@needs_responses
def test_a_responses_client_receives_what_was_recorded(client: OpenAI) -> None:
    """Responses are served at their own path, with their event names."""
    received = list(client.responses.create(model="vllm_responses", input="", stream=True))
    assert len(received) == 37
    assert (received[0].type, received[-1].type) == ("response.created", "response.completed")


@pytest.mark.parametrize(
    ("model", "chunks", "message"),
    [
        ("llamacpp_kv_overflow_0", 232, "Context size has been exceeded."),
        (
            "vllm_enginedeath_6",
            337,
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        ),
    ],
)
def test_a_recorded_error_event_reaches_the_client_as_its_error(
    client: OpenAI, model: str, chunks: int, message: str
) -> None:
    """A stream that failed in the middle fails at the same chunk, with the same words."""
    stream = client.chat.completions.create(model=model, messages=[], stream=True)
    received = list(itertools.islice(stream, chunks))
    with pytest.raises(APIError) as failed:
        next(stream)
    assert len(received) == chunks
    assert failed.value.message == message


def test_a_recorded_refusal_is_a_plain_answer(base_url: str, client: OpenAI) -> None:
    """What was refused before any stream is refused again: same status, same JSON, same bytes."""
    with pytest.raises(BadRequestError, match="maximum context length is 2048 tokens"):
        ask(client, "vllm_400_prompt_too_long")
    with pytest.raises(NotFoundError, match=r"The model `nope` does not exist\. Valid aliases: tiny"):
        ask(client, "vllm_404_model")
    status, headers, body = request(
        base_url, "POST", "/v1/chat/completions", b'{"model": "vllm_404_model", "stream": true}'
    )
    assert status == 404
    assert (headers["content-type"], headers["content-length"]) == ("application/json", "127")
    assert body == recording("vllm_404_model").arrivals[0].data


def test_every_recording_is_replayed_byte_for_byte() -> None:
    """Status, headers worth keeping and body are those of the file, for each of the recordings."""
    with serve(replayer(LIBRARY, speed=1000)) as url:
        for each in LIBRARY:
            body = json.dumps({"model": each.name, "stream": True}).encode()
            status, headers, answer = request(url, "POST", PATHS[each.operation], body)
            assert status == each.status
            assert headers.items() >= dict(each.headers).items()
            assert answer == b"".join(arrival.data for arrival in each.arrivals)


@pytest.mark.alone
def test_a_freeze_lasts_as_long_as_it_did() -> None:
    """At ten times the speed, 5.034 s of silence are 0.503 s, and 19.2 s in all are 1.92 s."""
    gaps = []
    app = replayer([recording("vllm_preempted_5")], speed=10)
    with serve(app) as url, OpenAI(base_url=url, api_key="none") as client:
        begun = last = time.monotonic()
        for _ in client.chat.completions.create(model="tiny", messages=[], stream=True):
            gaps.append(time.monotonic() - last)
            last += gaps[-1]
    assert 0.45 < max(gaps) < 0.9
    assert 1.9 < last - begun < 2.9


@pytest.mark.alone
def test_headers_come_when_they_came(client: OpenAI) -> None:
    """A server that held its headers back for 2.338 s holds them back again: 0.117 s at this speed."""
    begun = time.monotonic()
    with client.chat.completions.create(model="transformers_chat", messages=[], stream=True):
        waited = time.monotonic() - begun
    assert 0.11 < waited < 0.6


def test_what_came_in_one_instant_is_sent_at_once() -> None:
    """One send for the headers, one per recorded instant, and one that ends the answer."""
    sent: list[Message] = []
    body = b'{"model": "vllm_responses", "stream": true}'
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": [], "query_string": b""}

    async def exchange() -> None:
        asked: asyncio.Queue[Message] = asyncio.Queue()
        asked.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def send(message: Message) -> None:
            sent.append(message)

        await replayer(LIBRARY, speed=SPEED)(scope, asked.get, send)

    asyncio.run(exchange())
    assert len(sent) == 1 + 37 + 1
    assert [message.get("body") for message in sent[1:-1]] == [
        arrival.data for arrival in recording("vllm_responses").arrivals
    ]
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_a_recorded_model_takes_turns_among_its_streams(base_url: str) -> None:
    """Eight clients that ask for the load at once get its eight streams, each of them once."""

    async def all_at_once() -> list[str]:
        async with AsyncOpenAI(base_url=base_url, api_key="none") as client:

            async def one() -> str:
                stream = await client.chat.completions.create(model="over8", messages=[], stream=True)
                return {chunk.id async for chunk in stream}.pop()

            return await asyncio.gather(*(one() for _ in range(8)))

    assert sorted(asyncio.run(all_at_once())) == [f"chatcmpl-over8-{i}" for i in range(8)]


def test_models_lists_every_recording(client: OpenAI) -> None:
    """A client that asks for models learns the names it may use."""
    assert [model.id for model in client.models.list()] == [each.name for each in LIBRARY]


CHAT = "/v1/chat/completions"
LIST = "GET /v1/models lists"
EVERYTHING = "POST /v1/chat/completions, POST /v1/completions, POST /v1/responses or GET /v1/models"


def error(code: int, kind: str, param: str | None, message: str) -> dict[str, object]:
    """Return an error object as OpenAI-compatible servers send it."""
    return {"message": message, "type": kind, "param": param, "code": code}


@pytest.mark.parametrize(
    ("method", "path", "body", "refusal"),
    [
        (
            "POST",
            CHAT,
            '{"model": "gpt-9", "stream": true}',
            error(
                404,
                "NotFoundError",
                "model",
                f"The model `gpt-9` does not exist. {LIST} the recordings that do.",
            ),
        ),
        (
            "POST",
            CHAT,
            '{"model": "nope", "stream": true}',
            error(
                404,
                "NotFoundError",
                "model",
                f"The model `nope` does not exist. {LIST} the recordings that do.",
            ),
        ),
        (
            "POST",
            CHAT,
            '{"model": "vllm_responses", "stream": true}',
            error(
                400,
                "BadRequestError",
                "model",
                f"`vllm_responses` was recorded at /v1/responses, not at {CHAT}; ask there.",
            ),
        ),
        (
            "POST",
            "/v1/completions",
            '{"model": "gpt-4o", "stream": true}',
            error(
                400,
                "BadRequestError",
                "model",
                f"`gpt-4o` was recorded at {CHAT}, not at /v1/completions; ask there.",
            ),
        ),
        (
            "POST",
            CHAT,
            '{"model": "vllm_chat_plain"}',
            error(
                400,
                "BadRequestError",
                "stream",
                "This is a recording of a stream; ask for it with stream=true.",
            ),
        ),
        (
            "POST",
            CHAT,
            '{"stream": true}',
            error(
                400,
                "BadRequestError",
                "model",
                f"Say which recording to play: `model` must be its name; {LIST} them.",
            ),
        ),
        (
            "POST",
            CHAT,
            "{",
            error(400, "BadRequestError", None, "The request body is not JSON."),
        ),
        (
            "POST",
            CHAT,
            "[]",
            error(400, "BadRequestError", None, "The request body must be a JSON object."),
        ),
        (
            "GET",
            CHAT,
            "",
            error(
                405, "BadRequestError", None, f"Nothing answers GET /v1/chat/completions; try {EVERYTHING}."
            ),
        ),
        (
            "POST",
            "/v1/embeddings",
            "{}",
            error(404, "NotFoundError", None, f"Nothing answers POST /v1/embeddings; try {EVERYTHING}."),
        ),
    ],
)
def test_what_no_recording_answers_is_refused_with_the_remedy(
    base_url: str, method: str, path: str, body: str, refusal: dict[str, object]
) -> None:
    """A request that cannot be served gets an error object in OpenAI's shape that says what to do."""
    status, _, answer = request(base_url, method, path, body.encode())
    assert status == refusal["code"]
    assert json.loads(answer) == {"error": refusal}


def test_a_client_that_leaves_stops_its_stream() -> None:
    """Nineteen seconds of recording end the moment their client goes, and leave nothing running."""
    app = replayer([recording("vllm_preempted_5")])
    over = threading.Event()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            over.set()

    with serve(watched) as url, OpenAI(base_url=url, api_key="none") as client:
        stream = client.chat.completions.create(model="tiny", messages=[], stream=True)
        assert next(iter(stream)).choices[0].delta.role == "assistant"
        stream.close()
        assert over.wait(timeout=60)


def test_a_client_that_leaves_before_it_has_asked_disturbs_nobody(
    base_url: str, client: OpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a request and a closed connection log nothing, and the next client is served."""
    address = urlsplit(base_url)
    with socket.create_connection((address.hostname, address.port)) as half:
        half.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert len(ask(client, "vllm_chat_stop_string")) == 4
    assert caplog.records == []


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_that_is_no_speed_is_refused(speed: float) -> None:
    """Speed must be a positive number, and the message says what the numbers mean."""
    with pytest.raises(ValueError, match="is as recorded, 2 is twice as fast") as refused:
        replayer(LIBRARY, speed=speed)
    assert str(refused.value) == f"speed must be positive, got {speed}; 1 is as recorded, 2 is twice as fast"


def test_recordings_must_be_given_and_told_apart() -> None:
    """Nothing to serve, or two recordings of one name, is the caller's mistake."""
    twice = recording("vllm_chat_plain")
    for recordings in ([], [twice, twice]):
        with pytest.raises(
            ValueError, match="recordings must be given, and each must have a name of its own"
        ):
            replayer(recordings)
