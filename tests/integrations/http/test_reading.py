"""Events of three protocols, and the events that are recognised by their bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.integrations.http.events import EventSplitter
from midstream.integrations.http.reading import Steady, parse_event, read_event, read_ollama
from midstream.stream.chunks import NOTHING, REASONING, TEXT, TOOL_CALL, Reading
from midstream.stream.usage import Usage

SHAPES: dict[str, Any] = {
    "chat": lambda text: {
        "id": "c", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}],
    },
    "reasoning": lambda text: {"choices": [{"index": 0, "delta": {"reasoning_content": text}, "finish_reason": None}]},
    "completion": lambda text: {"choices": [{"index": 0, "text": text, "finish_reason": None}]},
    "role too": lambda text: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]},
    "anthropic": lambda text: {
        "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
    },
    "thinking": lambda text: {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": text}},
    "responses": lambda text: {"type": "response.output_text.delta", "delta": text, "item_id": "i"},
}  # fmt: skip


def event(body: Any, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False)}{end}".encode("utf-8", "surrogatepass")


def read_piece(piece: bytes) -> Reading:
    splitter = EventSplitter()
    events = splitter.split(piece)
    return read_event(parse_event(*events[0])) if len(events) == 1 and not splitter.pending else NOTHING


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_that_differs_in_its_text_alone_is_recognised_by_its_bytes(shape: str) -> None:
    """Every shape of a steady answer is recognised without a parser; an event without text is not."""
    first, steady = event(SHAPES[shape](" one")), Steady()

    steady.learn(first, read_piece(first), read_piece)

    assert steady.reading is (REASONING if shape in {"reasoning", "thinking"} else TEXT)
    several = event(SHAPES[shape](" two")) + event(SHAPES[shape]("\u4f60\u597d"))
    assert steady.run(several) == (2, len(several))
    assert steady.run(several + event(SHAPES[shape]("")) + several) == (2, len(several))
    assert steady.run(several + event(SHAPES[shape](" three"))[:-9]) == (2, len(several))


@given(st.sampled_from(sorted(SHAPES)), st.text(min_size=1), st.text(), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_what_is_recognised_is_what_a_parser_reads(shape: str, first: str, then: str, end: str) -> None:
    """Whatever the texts are, an event that is recognised says what it says when it is parsed."""
    learnt, steady = event(SHAPES[shape](first), end), Steady()
    steady.learn(learnt, read_piece(learnt), read_piece)
    piece = event(SHAPES[shape](then), end)

    if steady.run(piece) == (1, len(piece)):
        assert read_piece(piece) is steady.reading


@given(st.binary(max_size=40))
def test_bytes_in_the_place_of_the_text_are_recognised_only_if_a_parser_reads_them(middle: bytes) -> None:
    """Half a character, a quote, an escape or a line end in the text is left to the parser."""
    first, steady = event(SHAPES["chat"](" one")), Steady()
    steady.learn(first, read_piece(first), read_piece)
    before, _, after = first.partition(b" one")
    piece = before + middle + after

    if steady.run(piece) == (1, len(piece)) and not any(byte < 32 for byte in middle):
        assert read_piece(piece) is TEXT


@pytest.mark.parametrize(
    ("name", "data", "reading"),
    [
        (b"", b'{"choices": [', NOTHING),
        (b"", b"not json", NOTHING),
        (b"", b"[" * 100_000, NOTHING),
        (b"", b'{"n": ' + b"9" * 6000 + b"}", NOTHING),
        (b"", b'"text"', NOTHING),
        (b"", b"null", NOTHING),
        (b"", b'{"choices":[{"index":0,"delta":{"content":"\xc3"}}]}', NOTHING),
        (b"", b'{"error": {"message": "m"}}', Reading(error="error_event")),
        (b"error", b"overloaded", Reading(error="error_event")),
        (b"error", b'{"message": "m"}', Reading(error="error_event")),
    ],
)
def test_what_is_no_chunk_carries_no_output(name: bytes, data: bytes, reading: Reading) -> None:
    """Broken JSON, JSON of another kind, half a character: no output. An error in any form is one."""
    assert read_event(parse_event(name, data)) == reading


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        ({"model": "m", "message": {"role": "assistant", "content": "a"}, "done": False}, TEXT),
        ({"message": {"content": "", "thinking": "hm"}, "done": False}, REASONING),
        ({"message": {"content": "", "tool_calls": [{"function": {"name": "f"}}]}, "done": False}, TOOL_CALL),
        ({"response": "a", "done": False}, TEXT),
        ({"response": "", "thinking": "hm", "done": False}, REASONING),
        ({"message": {"content": ""}, "done": False}, NOTHING),
        ({"error": "out of memory"}, Reading(error="error_event")),
        (
            {"response": "", "done": True, "done_reason": "length", "prompt_eval_count": 3, "eval_count": 9},
            Reading(None, (), ((0, "length"),), Usage(3, 9)),
        ),
        ({"message": {"content": ""}, "done": True}, Reading(None, (), ((0, "stop"),))),
        ({"done": True, "eval_count": -1, "prompt_eval_count": 1e9}, Reading(None, (), ((0, "stop"),))),
        (None, NOTHING),
    ],
)
def test_ollamas_lines(line: Any, reading: Reading) -> None:
    """Text, thinking, tool calls, and the last line with its reason and counts."""
    assert read_ollama(line) == reading
