"""Turns a recorded load, many streams' arrival times in one file, into recordings.

A load file has one line a stream: `start` and `end`, every content chunk's arrival (`times`), `finish` and
`usage`. It holds no words, so placeholders stand for them; the chunks speak vLLM's dialect.
"""

from __future__ import annotations

import json
from itertools import cycle

from midstream.lab._lines import RecordingLine, read_lines
from midstream.lab.recording import Arrival, Recording

_WORDS = ("so ", "the ", "answer ", "goes ", "on ", "and ")
_HEADERS = (("content-type", "text/event-stream; charset=utf-8"),)


def parse_load(text: str, *, name: str, source: str) -> tuple[Recording, ...]:
    """Return one recording per stream, called `name-0`, `name-1` ...; all were asked of the model `name`.

    Raises RecordingError when the text is not a recorded load.
    """
    return tuple(_stream(line, name) for line in read_lines(text, source))


def _stream(line: RecordingLine, load: str) -> Recording:
    start = line.seconds("start")
    times = _times(line, start)
    end = line.seconds("end", not_before=times[-1])
    name = f"{load}-{_count(line, 'i', line.fields.get('i'))}"
    arrivals = [
        Arrival(at_s - start, _content(name, load, word))
        for at_s, word in zip(times, cycle(_WORDS), strict=False)
    ]
    arrivals[0] = Arrival(arrivals[0].at_s, _role(name, load) + arrivals[0].data)
    arrivals[-1] = Arrival(arrivals[-1].at_s, arrivals[-1].data + _farewell(line, name, load))
    return Recording(
        name=name,
        operation="chat",
        model=load,
        server="",
        status=200,
        headers=_HEADERS,
        # vLLM sends its headers before it queues the request, so nothing waits for them.
        headers_at_s=0.0,
        arrivals=tuple(arrivals),
        ended_at_s=end - start,
        ending="closed",
    )


def _times(line: RecordingLine, start: float) -> list[float]:
    given = line.fields.get("times")
    if not isinstance(given, list) or not given:
        raise line.wrong(
            "`times` must list the arrival of every content chunk; leave out a stream that has none"
        )
    times: list[float] = []
    for value in given:
        times.append(line.in_order("times", value, times[-1] if times else start))
    return times


def _count(line: RecordingLine, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise line.wrong(f"`{key}` must hold whole numbers from 0 up")
    return value


def _role(name: str, model: str) -> bytes:
    return _chunk(name, model, {"role": "assistant", "content": ""})


def _content(name: str, model: str, word: str) -> bytes:
    return _chunk(name, model, {"content": word})


def _farewell(line: RecordingLine, name: str, model: str) -> bytes:
    """Return what follows the last words: finish reason, usage, end mark. A stream without finish was cut."""
    if line.fields.get("finish") is None:
        return b""
    finish = _chunk(name, model, {}, line.text("finish"))
    usage = line.fields.get("usage")
    if not isinstance(usage, list) or len(usage) != 2:
        raise line.wrong("`usage` must be [prompt tokens, completion tokens]")
    prompt, completion = (_count(line, "usage", value) for value in usage)
    tokens = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return finish + _event({**_head(name, model), "choices": [], "usage": tokens}) + b"data: [DONE]\n\n"


def _chunk(name: str, model: str, delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event({**_head(name, model), "choices": [choice]})


def _head(name: str, model: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "created": 0, "model": model}


def _event(payload: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"
