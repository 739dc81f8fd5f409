"""What servers say, at random: every kind of frame that was met in the field, and some that no server has sent yet."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from midstream.testing import DONE, chunk, finish, frame, role, text, usage
from support.hostile_wire import Act, Answer, Piece

DELAYS_S = [0.0, 0.0, 0.0, 0.001, 0.05, 0.3, 1.0, 2.6, 4.9, 5.0, 5.1, 20.0, 59.0]
ENDS = [Act.EOF, Act.CUT, Act.SILENCE, Act.CANCEL, Act.EOF, Act.CUT, Act.SILENCE, Act.CANCEL]
ENDS += [Act.INTERRUPT, Act.EXIT, Act.ABANDON, Act.FAULT]
MEANWHILE = [Act.GARBAGE, Act.LOOK, Act.CLOSE, Act.READ]

words = st.sampled_from(["a", "Hel", "", " ", "\n", "x\u2028y\u0085z", "ß", "🧊", "\x00", "0", "x" * 300])
counts = st.sampled_from([0, 1, 7, 240, -3, None, True, 1.5, "3", 10**30])
reasons: st.SearchStrategy[Any] = st.sampled_from(
    ["stop", "length", "tool_calls", "content_filter", "function_call", "", None, "eos_token", "abort", "error",
     "stop_sequence", "STOP", 3, ["stop"], {"type": "stop"}]
)  # fmt: skip
indices = st.sampled_from([0, 0, 0, 1, 2, None, "0", -1, 10**12])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _junk(draw: st.DrawFn) -> str:
    """A frame of the right outline with anything at all in its places."""
    return frame(
        draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "choices": anything
                    | st.lists(
                        st.fixed_dictionaries(
                            {},
                            optional={
                                "index": anything,
                                "delta": anything,
                                "finish_reason": anything,
                                "text": anything,
                            },
                        ),
                        max_size=2,
                    ),
                    "usage": anything,
                    "type": anything,
                    "error": anything,
                    "model": anything,
                    "response": anything,
                    "delta": anything,
                },
            )
        )
    )


@st.composite
def _delta(draw: st.DrawFn) -> str:
    """A chunk whose delta carries something other than plain text, or several things."""
    call = st.fixed_dictionaries(
        {},
        optional={
            "index": indices,
            "id": st.sampled_from(["t1", None, ""]),
            "type": st.just("function"),
            "function": st.none()
            | st.fixed_dictionaries({}, optional={"name": st.none() | words, "arguments": st.none() | words}),
        },
    )
    delta = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "role": st.just("assistant"),
                "content": st.none() | words,
                "refusal": st.none() | words,
                "reasoning": st.none() | words,
                "reasoning_content": st.none() | words,
                "tool_calls": st.none() | st.lists(call, max_size=2),
                "function_call": st.none() | st.just({"name": "f", "arguments": ""}),
                "audio": st.none() | st.just({"data": "AAA="}),
            },
        )
    )
    return chunk(delta, draw(reasons), index=draw(indices))


chat = st.one_of(
    words.map(text),
    words.map(text),
    words.map(text),
    _delta(),
    _delta(),
    st.builds(role),
    reasons.map(finish),
    st.builds(finish),
    st.builds(
        lambda p, c: chunk(choices=[], usage={"prompt_tokens": p, "completion_tokens": c}), counts, counts
    ),
    st.builds(usage, st.integers(0, 99), st.integers(0, 99)),
    st.builds(lambda word, index: text(word, index=index), words, indices),
    st.builds(lambda word, n: text(word, usage={"prompt_tokens": 3, "completion_tokens": n}), words, counts),
    st.just(frame({"id": "x", "usage": {"prompt_tokens": 3, "completion_tokens": 2}})),
    st.just(frame({"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": []})),
    st.just(text("a", usage=None)),
    st.just(chunk({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})),
    st.just(frame({"id": "", "choices": [{"index": 0, "finish_reason": None}]})),
    st.just(
        frame(
            {
                "id": "",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": None,
                        "content_filter_offsets": {"check_offset": 44, "start_offset": 44, "end_offset": 198},
                    }
                ],
            }
        )
    ),
    st.just(frame({"choices": [], "cost": "0"})),
    st.just(chunk({"content": ""}, "error", error={"code": 502, "message": "gone"})),
)
completions = st.builds(
    lambda word, reason, index: frame(
        {"id": "c", "model": "m", "choices": [{"index": index, "text": word, "finish_reason": reason}]}
    ),
    st.none() | words,
    reasons,
    indices,
)
responses = st.one_of(
    st.builds(lambda word: frame({"type": "response.output_text.delta", "delta": word}), words),
    st.builds(
        lambda kind, body: f"event: {kind}\n" + frame({"type": kind, "response": body}),
        st.sampled_from(
            ["response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"]
        ),
        st.sampled_from(
            [
                None,
                {"id": "r", "model": "served", "output": []},
                {"id": "r", "incomplete_details": {"reason": "max_output_tokens"}, "output": []},
                {"id": "r", "status": "failed", "usage": {"input_tokens": 3, "output_tokens": 64}, "output": [None]},
            ]
        ),
    ),
    st.builds(
        lambda kind, fields: frame({"type": kind, **fields}),
        st.sampled_from(
            ["keepalive", "response.reasoning_text.delta", "response.function_call_arguments.delta", "error", "ping",
             "response.output_item.added", "response.image_generation_call.partial_image", ""]
        ),
        st.dictionaries(
            st.sampled_from(["delta", "item", "code", "message", "partial_image_b64"]), anything, max_size=2
        ),
    ),
)  # fmt: skip
noise = st.one_of(
    st.sampled_from(
        [
            ": ping\n\n",
            ": OPENROUTER PROCESSING\n\n",
            "\n",
            "\n\n\n",
            "retry: 3000\n\n",
            "id: 1\n" + text("a"),
            "data: : keepalive\n\n",
            "data:\n\n",
            "data: \n\n",
            "data\n\n",
            'event: ping\ndata: {"type": "ping"}\n\n',
            "event: error\n" + frame({"message": "boom", "code": 500}),
            "event: error\n" + frame({"error": {"message": "boom"}}),
            "event: thread.message.delta\n" + frame({"id": "m", "delta": {}}),
            "event: nonsense\n" + text("a"),
            'error: {"code":400,"message":"too long"}\n\n',
            frame({"error": "boom"}),
            frame({"error": {"message": "boom", "code": 500, "type": "x", "param": "p"}}),
            frame({"error": []}),
            "data: null\n\n",
            "data: []\n\n",
            "data: 7\n\n",
            'data: "x"\n\n',
            "data: {\n\n",
            "data: x\n\n",
            'data: {"choices":\ndata: []}\n\n',
            "data: NaN\n\n",
            "\ufeff" + text("a"),
            DONE,
            DONE,
            "data: [DONE] and more\n\n",
            "data: [DONE]",
            text("a").rstrip("\n"),
            text("x" * 100_000),
            text("x" * 1_500_000),
            "id: 1\n" + text("a") + ": ping\n\n" + text("b"),
            'data: {"id": "c1", "object": "chat.completion", "choices": []}',
        ]
    ),
    _junk(),
    st.text(max_size=20),
    anything.map(lambda value: "data: " + json.dumps(value) + "\n\n"),
)
raw = st.sampled_from(
    [b"data: \xff\xfe\n\n", b"\xef\xbb\xbf", b"data: \xed\xa0\x80\n\n", b"\x00", b"data: {}\r\r"]
)
FRAMES: dict[str, Any] = {"chat": chat, "completions": completions, "responses": responses}


@st.composite
def pieces(draw: st.DrawFn, api: str) -> tuple[Piece, ...]:
    """The body of an answer: frames with their delays, cut at any byte, with other things happening in between."""
    usual = FRAMES[api]
    frames = draw(st.lists(st.one_of(usual, usual, usual, usual, usual, noise, raw), max_size=9))
    if draw(st.booleans()):
        frames += [finish(), DONE]
    newline = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]))
    found: list[Piece] = []
    for content in frames:
        data = (
            content
            if isinstance(content, bytes)
            else content.replace("\n", newline).encode("utf-8", "replace")
        )
        cuts = sorted(draw(st.lists(st.floats(0, 1), max_size=2)))
        edges = [0, *(int(cut * len(data)) for cut in cuts), len(data)]
        for begin, end in pairwise(edges):
            found.append(
                (
                    draw(st.sampled_from(DELAYS_S)) if begin == 0 or draw(st.booleans()) else 0.0,
                    data[begin:end],
                )
            )
    for act in draw(st.lists(st.sampled_from(MEANWHILE), max_size=2)):
        found.insert(draw(st.integers(0, len(found))), (draw(st.sampled_from(DELAYS_S)), act))
    if draw(st.integers(0, 3)) == 0:
        cut = draw(st.integers(0, len(found)))
        found[cut:] = [(draw(st.sampled_from(DELAYS_S)), draw(st.sampled_from(ENDS)))]
    return tuple(found)


WHOLE = {
    "chat": json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}],
        }
    ).encode(),
    "completions": b'{"id": "c1", "object": "text_completion", "choices": [{"index": 0, "text": "ab"}]}',
    "responses": b'{"id": "r1", "object": "response", "output": []}',
}
"""What a server answers that does not know of streaming."""


@st.composite
def answers(draw: st.DrawFn, api: str) -> tuple[Answer, ...]:
    """What the server says to one call: a stream as a rule, now and then a refusal before it, or something else."""
    stream = Answer(
        draw(pieces(api)),
        kind=draw(st.sampled_from(["sse"] * 8 + ["json", "html"])),
        framing=draw(st.sampled_from(["chunked", "chunked", "counted", "open"])),
        headers_at_s=draw(st.sampled_from([0.0, 0.2, 7.0])),
        whole=draw(st.sampled_from([True, True, True, False])),
        at_once=draw(st.booleans()),
        missing=draw(st.sampled_from([0, 0, 0, 5])),
        headers=draw(st.sampled_from([(), (("connection", "close"),), (("x-request-id", "r1"),)])),
    )
    if stream.kind == "json" and draw(st.booleans()):
        stream = replace(stream, pieces=((draw(st.sampled_from(DELAYS_S)), WHOLE[api]),))
    if stream.kind == "html":
        stream = replace(stream, pieces=((0.1, b"<!doctype html>\n<p>data: {}</p>\n"),))
    body = b'{"error": {"message": "no", "code": "c"}}'
    refused = Answer(
        ((0.1, body),), status=429, kind="json", framing="counted", headers=(("retry-after-ms", "1"),)
    )
    first = draw(st.integers(0, 11))
    if first == 0:
        return (refused, stream)
    if first == 1:
        status = draw(st.sampled_from([400, 401, 404, 422]))
        return (Answer(((0.1, body),), status=status, kind="json", framing="counted"),)
    return (stream,)
