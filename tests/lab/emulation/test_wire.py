"""Each engine's dialect on the wire, held against what is known of the real ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from midstream.lab.emulation.words import words
from midstream.lab.hardware import HardwareProfile
from support.emulating import QUICK, Server, Told, emulating
from support.paths import RECORDINGS
from support.waiting import until

ENGINES = ["vllm", "sglang", "tgi", "trtllm", "llamacpp"]
STREAMS = RECORDINGS / "streams"
USAGE = {"include_usage": True}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    """Serve every engine, with room for all that is asked here."""
    with (
        emulating("vllm") as vllm,
        emulating("sglang") as sglang,
        emulating("tgi") as tgi,
        emulating("trtllm") as trtllm,
        emulating("llamacpp") as llamacpp,
    ):
        yield {"vllm": vllm, "sglang": sglang, "tgi": tgi, "trtllm": trtllm, "llamacpp": llamacpp}


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the chunks of a recorded stream."""
    lines = [
        json.loads(line).get("line", "") for line in (STREAMS / f"{name}.jsonl").read_text().splitlines()[2:]
    ]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return [json.loads(text) for text in data]


def shape(value: object) -> object:
    """Return what a chunk is made of: its keys, and the kinds of its values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


def without(chunk: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a chunk less what is left out here: hashes, and fields that are always null."""
    return {name: value for name, value in chunk.items() if name not in names}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_token_asked_for_arrives(engine: str, servers: dict[str, Server]) -> None:
    """Fifty tokens in, fifty counted, fifty words out."""
    told = servers[engine].chat(50, stream_options=USAGE)
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in told.chunks if c["choices"])
    assert told.status == 200
    assert len(text.split()) == 50
    assert told.chunks[-1]["usage"]["completion_tokens"] == 50
    assert told.is_done


@pytest.mark.parametrize("engine", ENGINES)
def test_a_limit_cuts_the_answer(engine: str, servers: dict[str, Server]) -> None:
    """The finish reason says so, and usage agrees."""
    told = servers[engine].chat(50, max_tokens=7, stream_options=USAGE)
    reasons = [c["choices"][0]["finish_reason"] for c in told.chunks if c["choices"]]
    assert [reason for reason in reasons if reason] == ["length"]
    assert told.chunks[-1]["usage"]["completion_tokens"] == 7


def test_vllms_chunks_have_the_shape_of_the_recorded_ones(servers: dict[str, Server]) -> None:
    """Role, a token, the last token and usage, field by field; what is left out is null there, or a hash."""
    real = recorded("vllm_chat_include_usage")
    mine = servers["vllm"].chat(40, max_tokens=40, stream_options=USAGE).chunks
    left_out = ("prompt_token_ids", "prompt_text", "system_fingerprint")
    role = without(real[0], *left_out)
    assert shape({**role, "choices": [{**role["choices"][0], "token_ids": None}]}) == shape(mine[0])
    assert shape(without(real[1], *left_out)) == shape(mine[1])
    assert shape(without(real[-2], *left_out)) == shape(mine[-2])
    assert shape(without(real[-1], *left_out)) == shape(mine[-1])


def test_vllms_completions_have_the_shape_of_the_recorded_ones(servers: dict[str, Server]) -> None:
    """With usage on every chunk. What a slow machine sends too late comes in one, as vLLM's does."""
    real = recorded("vllm_completions_continuous_usage")
    options = {"include_usage": True, "continuous_usage_stats": True}
    mine = servers["vllm"].text(40, max_tokens=40, stream_options=options).chunks
    assert shape(real[0]) == shape(mine[0])
    assert shape(without(real[-1], "system_fingerprint")) == shape(mine[-1])
    counts = [chunk["usage"]["completion_tokens"] for chunk in mine]
    assert (counts[0] >= 1, counts[-2:]) == (True, [40, 40])
    assert counts[:-1] == sorted(set(counts[:-1]))


def test_llamacpps_chunks_have_the_shape_of_the_recorded_ones(servers: dict[str, Server]) -> None:
    """Role without content, tokens, an empty finish chunk, usage; its timings are left out."""
    real = recorded("llamacpp_chat")
    mine = servers["llamacpp"].chat(40, max_tokens=40, stream_options=USAGE).chunks
    assert [shape(chunk) for chunk in (*real[:2], real[-2], without(real[-1], "timings"))] == [
        shape(chunk) for chunk in (*mine[:2], *mine[-2:])
    ]
    real = recorded("llamacpp_completions")
    mine = servers["llamacpp"].text(40, max_tokens=40, stream_options=USAGE).chunks
    assert shape(real[0]) == shape(mine[0])
    assert shape(without(real[-1], "timings")) == shape(mine[-1])


def test_vllms_responses_have_the_recorded_events_in_the_recorded_order(servers: dict[str, Server]) -> None:
    """Two before the engine runs, one for each token, five at the end; cut, it is `completed` all the same."""
    real = [chunk["type"] for chunk in recorded("vllm_responses")]
    body = {"model": "emulated", "input": "hello world", "stream": True, "max_output_tokens": 30}
    told = servers["vllm"].ask("/v1/responses", {**body, "ignore_eos": True})
    mine = [chunk["type"] for chunk in told.chunks]
    once = list(dict.fromkeys(real))
    assert list(dict.fromkeys(mine)) == once
    assert [each for each in mine if not each.endswith("text.delta")] == [
        each for each in real if not each.endswith("text.delta")
    ]
    end = told.chunks[-1]["response"]
    assert (end["status"], end["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert end["usage"]["output_tokens"] == 30
    assert [chunk["sequence_number"] for chunk in told.chunks] == list(range(len(told.chunks)))


@pytest.mark.parametrize(
    ("engine", "roles"),
    [("vllm", [1, 0]), ("sglang", [1, 0]), ("tgi", [1, 1]), ("trtllm", [1, 0]), ("llamacpp", [1, 0])],
)
def test_the_role_comes_as_the_engine_sends_it(
    engine: str, roles: list[int], servers: dict[str, Server]
) -> None:
    """In a chunk of its own with the first output; TGI says it in every chunk."""
    chunks = servers[engine].chat(4).chunks
    assert [int("role" in chunk["choices"][0]["delta"]) for chunk in chunks[:2]] == roles


@pytest.mark.parametrize(
    ("engine", "alone"),
    [("vllm", False), ("sglang", True), ("tgi", False), ("trtllm", False), ("llamacpp", True)],
)
def test_the_finish_reason_is_where_the_engine_puts_it(
    engine: str, alone: bool, servers: dict[str, Server]
) -> None:
    """With the last token, or in a chunk of its own."""
    last = servers[engine].chat(4).chunks[-1]["choices"][0]
    assert last["finish_reason"] == "stop"
    assert bool(last["delta"].get("content")) is not alone


@pytest.mark.parametrize(
    ("engine", "options", "counted"),
    [
        ("vllm", {"continuous_usage_stats": True}, [False, False, False]),
        ("vllm", {"include_usage": True, "continuous_usage_stats": True}, [0, 1, 2]),
        ("sglang", {"continuous_usage_stats": True}, [False, 1, 2]),
        ("tgi", {"include_usage": True, "continuous_usage_stats": True}, [1, 2, 3]),
        ("trtllm", {"continuous_usage_stats": True}, [0, 1, 2]),
        ("llamacpp", {"include_usage": True, "continuous_usage_stats": True}, [False, False, False]),
    ],
)
def test_usage_on_every_chunk_where_the_engine_has_it(
    engine: str, options: dict[str, bool], counted: list[object], servers: dict[str, Server]
) -> None:
    """And for what each of them wants to be asked."""
    # Tokens that a slow reader has not taken come in one chunk: on a loaded machine, there are several attempts.
    for _ in range(20):
        chunks = servers[engine].chat(4, stream_options=options).chunks
        if (
            len(
                [
                    chunk
                    for chunk in chunks
                    if chunk["choices"] and chunk["choices"][0]["delta"].get("content")
                ]
            )
            == 4
        ):
            break
    if engine == "tgi":
        counted = [False, False, False]
    assert [chunk.get("usage", {}).get("completion_tokens", False) for chunk in chunks[:3]] == counted


def test_sglang_ends_all_choices_together(servers: dict[str, Server]) -> None:
    """With n=2 both finish chunks come after both choices are through."""
    chunks = servers["sglang"].chat(4, n=2).chunks
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-2:] == ["stop", "stop"]
    assert not any(reasons[:-2])
    assert {chunk["choices"][0]["index"] for chunk in chunks} == {0, 1}


def test_vllm_opens_all_choices_with_the_first_output_of_any(servers: dict[str, Server]) -> None:
    """Two role chunks, then tokens."""
    deltas = [chunk["choices"][0] for chunk in servers["vllm"].chat(4, n=2).chunks]
    assert [(each["index"], "role" in each["delta"]) for each in deltas[:3]] == [
        (0, True),
        (1, True),
        (0, False),
    ]


def test_tgi_has_neither_ids_nor_choices_nor_responses(servers: dict[str, Server]) -> None:
    """Chunks have an empty id; n is ignored; there is no /v1/responses; completions have '' for no reason."""
    tgi = servers["tgi"]
    assert {chunk["id"] for chunk in tgi.chat(4, n=3).chunks} == {""}
    assert {chunk["choices"][0]["index"] for chunk in tgi.chat(4, n=3).chunks} == {0}
    assert tgi.ask("/v1/responses", {"model": "m", "input": "x"}).status == 404
    chunks = tgi.text(3).chunks
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == ["", "", "eos_token"]
    assert [chunk.get("usage", {}).get("completion_tokens") for chunk in chunks] == [None, None, 3]


SLOW = HardwareProfile("slow", 0.3, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("engine", "least_s", "most_s"),
    [("vllm", 0.0, 0.2), ("tgi", 0.0, 0.2), ("trtllm", 0.0, 0.2), ("sglang", 0.25, 3)],
)
def test_headers_come_before_the_first_token_or_with_it(engine: str, least_s: float, most_s: float) -> None:
    """A step takes 0.3 s here; SGLang sends nothing before it is done."""
    with emulating(engine, hardware=SLOW) as server:
        told = server.chat(1)
    assert least_s <= told.headers_s < most_s
    assert told.events[0][0] >= 0.25


def test_llamacpps_headers_come_when_a_slot_takes_the_request() -> None:
    """With one slot, the second request has its headers when the first is through, and its tokens later."""
    with emulating("llamacpp", hardware=SLOW, parallel=1) as server:
        first = server.begin(
            "/v1/chat/completions",
            {"model": "m", "messages": [], "stream": True, "emulate": {"answer_tokens": 3}},
        )
        first.getresponse()
        told = server.chat(1)
        first.close()
    assert 0.5 < told.headers_s < 3
    assert told.events[0][0] > told.headers_s + 0.2


@pytest.mark.parametrize(
    ("engine", "status", "message"),
    [
        (
            "vllm",
            400,
            "This model's maximum context length is 100 tokens. However, your prompt contains at least 200 ",
        ),
        ("sglang", 400, "The input (200 tokens) is longer than the model's context length (100 tokens)."),
        (
            "trtllm",
            400,
            "The sum of prompt length (200), query length (0) should not exceed max_num_tokens (100)",
        ),
        (
            "llamacpp",
            400,
            "request (200 tokens) exceeds the available context size (100 tokens), try increasing it",
        ),
    ],
)
def test_a_prompt_that_is_too_long_is_refused_in_the_engines_words(
    engine: str, status: int, message: str
) -> None:
    """With a status, and the error object of each."""
    flags = {
        "vllm": "max_model_len",
        "sglang": "context_length",
        "trtllm": "max_seq_len",
        "llamacpp": "ctx_size",
    }
    only: dict[str, Any] = {flags[engine]: 100}
    with emulating(engine, **only) as server:
        told = server.chat(3, emulate={"prompt_tokens": 200})
    assert told.status == status
    error = told.json.get("error", told.json)
    assert error["message"].startswith(message)
    assert error["code"] == status


def test_what_tgi_refuses_is_refused_in_the_stream() -> None:
    """Under HTTP 200, as 422, with an end mark; without a stream it has a status."""
    with emulating("tgi", max_total_tokens=100) as server:
        told = server.chat(3, emulate={"prompt_tokens": 200})
        body = {"model": "m", "messages": [], "emulate": {"prompt_tokens": 200}}
        whole = server.ask("/v1/chat/completions", body)
    assert (told.status, told.chunks[0]["error"]["http_status_code"], told.is_done) == (200, 422, True)
    assert (whole.status, whole.json["error_type"]) == (422, "validation")


def test_prompt_and_limit_together_are_refused_where_the_engine_does() -> None:
    """By vLLM, which names both; TensorRT-LLM and llama.cpp cut the answer in silence."""
    with emulating("vllm", max_model_len=100) as server:
        told = server.chat(3, max_tokens=90, emulate={"prompt_tokens": 20})
    assert told.status == 400
    assert (
        "you requested 90 output tokens and your prompt contains at least 20 input"
        in told.json["error"]["message"]
    )
    with emulating("llamacpp", ctx_size=100) as server:
        told = server.chat(500, max_tokens=500, emulate={"prompt_tokens": 20})
    assert told.chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("engine", "status"), [("vllm", 404), ("sglang", 200), ("tgi", 200), ("trtllm", 200)]
)
def test_another_models_name_matters_to_vllm_alone(
    engine: str, status: int, servers: dict[str, Server]
) -> None:
    """The others answer all the same; SGLang under the name that was asked for."""
    told = servers[engine].chat(2, model="nope")
    assert told.status == status
    if engine == "vllm":
        assert told.json["error"]["type"] == "NotFoundError"
    else:
        assert told.chunks[0]["model"] == ("nope" if engine == "sglang" else "emulated")


def test_a_field_that_it_does_not_know_is_refused_by_tensorrt_llm_alone(servers: dict[str, Server]) -> None:
    """The others let it pass."""
    assert [servers[engine].chat(2, return_token_ids=True).status for engine in ENGINES] == [
        200,
        200,
        200,
        400,
        200,
    ]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "body",
    ["{", "[]", '{"model": "emulated"}', '{"model": "emulated", "messages": [], "max_tokens": "many"}',
     '{"model": "emulated", "messages": [], "emulate": {"answer_tokens": -1}}'],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(engine: str, body: str, servers: dict[str, Server]) -> None:
    """With 400 and an object that says why."""
    told = servers[engine].ask("/v1/chat/completions", body)
    assert told.status == 400
    assert "error" in json.dumps(told.json)


@pytest.mark.parametrize(
    ("engine", "whole", "event", "done"),
    [
        ("vllm", True, {"message", "type", "param", "code"}, True),
        ("sglang", True, {"object", "message", "type", "param", "code"}, True),
        ("tgi", True, {"message", "http_status_code"}, True),
        ("trtllm", False, None, False),
        ("llamacpp", True, {"message", "type", "code"}, False),
    ],
)
def test_an_engine_that_fails_midway_ends_the_stream_in_its_own_way(
    engine: str, whole: bool, event: set[str] | None, done: bool, servers: dict[str, Server]
) -> None:
    """An error event, with an end mark or without; TensorRT-LLM just drops the connection."""
    told = servers[engine].chat(50, emulate={"fail_at": 5})
    assert told.status == 200
    assert told.whole is whole
    assert told.is_done is done
    errors = [chunk["error"] for chunk in told.chunks if "error" in chunk]
    assert [set(error) for error in errors] == ([] if event is None else [event])


def test_when_llamacpps_memory_runs_out_all_streams_fail_together() -> None:
    """Both had tokens; both get the error event, and neither an end mark or a finish reason."""
    with emulating("llamacpp", ctx_size=64) as server:
        answers: list[Any] = []
        threads = [threading.Thread(target=lambda: answers.append(server.chat(60))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for told in answers:
        assert told.chunks[-1] == {
            "error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
        }
        assert len(told.chunks) > 10
        assert not told.is_done


@pytest.mark.parametrize(
    ("engine", "flags", "status"),
    [
        ("vllm", {"max_num_seqs": 1, "max_num_queued_reqs": 1}, 503),
        ("sglang", {"max_running_requests": 1, "max_queued_requests": 1}, 200),
    ],
)
def test_a_full_queue_is_a_503(engine: str, flags: dict[str, Any], status: int) -> None:
    """One runs, one waits, a third has no place: before vLLM's stream, and in SGLang's, under HTTP 200."""
    body = {"model": "emulated", "messages": [], "stream": True, "emulate": {"answer_tokens": 400}}
    with emulating(engine, **flags) as server:
        first = server.begin("/v1/chat/completions", body)
        answer = first.getresponse()
        answer.read1(1)  # it runs
        second = server.begin("/v1/chat/completions", body)
        refused: list[Told] = []

        def third_is_refused() -> bool:
            told = server.chat(3) if not refused else refused[0]
            if "503" in told.rest + "".join(event for _, event in told.events):
                refused.append(told)
            return bool(refused)

        until(third_is_refused)
        for connection in (first, second):
            connection.close()
        answer.close()
    assert refused[0].status == status
    error = refused[0].json["error"] if status == 503 else refused[0].chunks[0]["error"]
    assert error["code"] == 503


def _value(server: Server, name: str) -> str:
    return next(line.split()[-1] for line in server.page()[2].splitlines() if line.startswith(name))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tool_call_is_held_back_as_the_engines_parser_does(engine: str, servers: dict[str, Server]) -> None:
    """Nothing until the name is known, then piece by piece; or the whole call at once. No text meanwhile."""
    told = servers[engine].chat(None, tools=[TOOL], tool_choice="required", stream_options=USAGE)
    deltas = [chunk["choices"][0]["delta"] for chunk in told.chunks if chunk["choices"]]
    pieces = [delta["tool_calls"][0] for delta in deltas if delta.get("tool_calls")]
    assert pieces[0]["function"]["name"] == "get_weather"
    assert json.loads("".join(piece["function"]["arguments"] for piece in pieces)) == {"city": "Paris"}
    assert (len(pieces) == 1) is (engine == "trtllm")
    assert not any(delta.get("content") for delta in deltas)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in told.chunks if chunk["choices"]]
    assert reasons[-1] == ("stop" if engine == "tgi" else "tool_calls")
    assert told.chunks[-1]["usage"]["completion_tokens"] > len(pieces)


@pytest.mark.parametrize(("engine", "comment"), [("vllm", ": keep-alive"), ("tgi", ":"), ("llamacpp", ":")])
def test_a_silent_stream_is_kept_alive_as_the_engine_does(engine: str, comment: str) -> None:
    """Two steps of 0.3 s, a comment after each 0.1 s of silence, and never one between tokens that come."""
    with emulating(engine, hardware=SLOW, keep_alive_s=0.1) as server:
        told = server.chat(2)
    assert [event for _, event in told.events].count(comment) >= 2
    assert told.is_done


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_engines_without_comments_send_none(engine: str, servers: dict[str, Server]) -> None:
    """Unless they are asked to, there is nothing but data."""
    assert all(event.startswith("data: ") for _, event in servers[engine].chat(5).events)


def test_a_client_that_leaves_frees_its_memory() -> None:
    """The blocks are back as soon as the connection is gone, and nobody counts the request as a success."""
    with emulating("vllm", hardware=HardwareProfile("slow", 0.05, 0, 0, 0)) as server:
        body = {"model": "emulated", "messages": [], "stream": True, "emulate": {"answer_tokens": 5000}}
        connection = server.begin("/v1/chat/completions", body)
        until(lambda: _value(server, "vllm:num_requests_running{") == "1.0")
        assert float(_value(server, "vllm:kv_cache_usage_perc{")) > 0
        connection.close()
        until(lambda: _value(server, "vllm:num_requests_running{") == "0.0")
        assert _value(server, "vllm:kv_cache_usage_perc{") == "0.0"
        page = server.page()[2]
    assert 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="emulated"} 0.0' in page


def test_the_same_seed_gives_the_same_answers_in_the_same_order(servers: dict[str, Server]) -> None:
    """By order of arrival; and by the request's own seed, whatever came before."""
    lengths = []
    for _ in range(2):
        with emulating("vllm") as server:
            answers = [server.chat(None, stream_options=USAGE).chunks[-1]["usage"] for _ in range(3)]
            seeded = server.chat(None, seed=7, stream_options=USAGE).chunks[-1]["usage"]
        lengths.append([usage["completion_tokens"] for usage in (*answers, seeded)])
    assert lengths[0] == lengths[1]
    assert len(set(lengths[0])) > 1
    again = servers["vllm"].chat(None, seed=7, stream_options=USAGE).chunks[-1]["usage"]["completion_tokens"]
    assert again == lengths[0][-1]


def test_a_word_in_the_prompt_tells_the_length(servers: dict[str, Server]) -> None:
    """For clients that can send nothing but text; the prompt has a token for each four characters."""
    messages = [{"role": "user", "content": "Write a story, tokens=12"}]
    told = servers["vllm"].chat(None, messages=messages, stream_options=USAGE)
    assert told.chunks[-1]["usage"] == {"prompt_tokens": 6, "completion_tokens": 12, "total_tokens": 18}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("operation", ["chat", "text", "responses"])
def test_answers_in_one_piece_hold_all_of_it(engine: str, operation: str, servers: dict[str, Server]) -> None:
    """Text, finish reason and usage."""
    if (engine, operation) == ("tgi", "responses"):
        return
    more = {"model": "emulated", "emulate": {"answer_tokens": 5}}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("/v1/chat/completions", {"messages": []}),
        "text": ("/v1/completions", {"prompt": "x"}),
        "responses": ("/v1/responses", {"input": "x"}),
    }
    path, body = asked[operation]
    told = servers[engine].ask(path, {**body, **more})
    assert told.status == 200
    if operation == "responses":
        assert len(told.json["output"][0]["content"][0]["text"].split()) == 5
        assert told.json["usage"]["output_tokens"] == 5
        return
    choice = told.json["choices"][0]
    text = choice["message"]["content"] if operation == "chat" else choice["text"]
    assert len(text.split()) == 5
    assert choice["finish_reason"] in ("stop", "eos_token")
    assert told.json["usage"]["completion_tokens"] == 5


def test_a_slow_reader_gets_tokens_merged_where_the_server_merges() -> None:
    """What a reader did not take in time vLLM hands over together; TGI keeps one event a token."""
    assert QUICK.step_s < 0.01
    for engine, merges in (("vllm", True), ("tgi", False)):
        with emulating(engine, speed=1000) as server:
            chunks = [c for c in server.chat(300).chunks if c["choices"][0]["delta"].get("content")]
        assert (len(chunks) < 300) is merges


def test_a_machine_that_cannot_keep_up_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """A million times as fast is too fast: the clock is set forward, and every token arrives all the same."""
    with emulating("vllm", speed=1e6) as server:
        told = server.chat(2000, stream_options=USAGE)
    assert told.chunks[-1]["usage"]["completion_tokens"] == 2000
    assert [record.message for record in caplog.records] == [
        "this machine cannot keep up with the emulated engine, whose clock is set forward: use a lower --speed"
    ]


def test_vllm_continues_the_last_message(servers: dict[str, Server]) -> None:
    """The answer goes on after the words that are there, and is as long as both together."""
    messages = [
        {"role": "user", "content": "tokens=9"},
        {"role": "assistant", "content": words(0, 0, 4)},
    ]
    continued = {"continue_final_message": True, "add_generation_prompt": False}

    streamed = servers["vllm"].ask(
        "/v1/chat/completions", {"messages": messages, "stream": True, **continued}
    )
    whole = servers["vllm"].ask("/v1/chat/completions", {"messages": messages, **continued})
    begun = servers["vllm"].ask("/v1/chat/completions", {"messages": messages})
    refused = servers["vllm"].ask(
        "/v1/chat/completions", {"messages": messages, "continue_final_message": True}
    )

    pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in streamed.chunks]
    assert "".join(pieces) == words(0, 4, 5)
    assert whole.json["choices"][0]["message"]["content"] == words(0, 4, 5)
    assert begun.json["choices"][0]["message"]["content"] == words(0, 0, 9)
    assert refused.status == 400
    assert "Cannot set both" in refused.json["error"]["message"]
