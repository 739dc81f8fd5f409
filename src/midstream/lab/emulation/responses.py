"""The Responses API, streamed and whole, as vLLM 0.32 was recorded; the other engines took it over from there."""

from __future__ import annotations

import json
from typing import Any

from midstream.engines.dialect import Dialect
from midstream.lab.admission import Reason
from midstream.lab.emulation.mailbox import TokensEmitted
from midstream.lab.emulation.request_body import ParsedRequest
from midstream.lab.emulation.words import words
from midstream.lab.emulation.writing import Head


class ResponseWriter:
    """Turns the engine's news into the events of a response."""

    def __init__(self, dialect: Dialect, asked: ParsedRequest, head: Head) -> None:
        self._asked = asked
        self._head = head
        self._item_id = head.id.replace("resp_", "msg_")
        self._number = 0
        self._count = 0
        self._ended = False

    def finished(self) -> bool:
        """True when the answer has ended."""
        return self._ended

    def queued(self) -> bytes:
        """Return the two events that go out before the engine has run: they are no sign of life."""
        response = self._response("in_progress", [], None, None)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def said(self, news: TokensEmitted) -> bytes:
        """Return the events for some tokens."""
        frames = b""
        if not self._count:
            item = {**self._item("in_progress"), "content": []}
            frames += self._event("response.output_item.added", output_index=0, item=item)
            frames += self._part("response.content_part.added", part=self._text_part(""))
        text = words(0, self._count, news.tokens)
        self._count += news.tokens
        frames += self._part("response.output_text.delta", delta=text, logprobs=[])
        if news.reason is None:
            return frames
        self._ended = True
        text = words(0, 0, self._count)
        frames += self._part("response.output_text.done", text=text, logprobs=[])
        frames += self._part("response.content_part.done", part=self._text_part(text))
        item = self._item("completed")
        frames += self._event("response.output_item.done", output_index=0, item=item)
        return frames + self._event("response.completed", response=self._final(news.reason, self._count))

    def failed(self, fault: dict[str, Any], *, done: bool) -> bytes:
        """Return what is sent when the engine gives up; there is no end mark here."""
        return b"event: error\ndata: " + json.dumps({"type": "error", **fault}).encode() + b"\n\n"

    def whole(self, reasons: dict[int, Reason], counts: dict[int, int]) -> dict[str, Any]:
        """Return the answer in one piece."""
        self._count = counts[0]
        return self._final(reasons[0], counts[0])

    def _event(self, kind: str, **fields: Any) -> bytes:
        payload = {**fields, "sequence_number": self._number, "type": kind}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(payload, separators=(',', ':'))}\n\n".encode()

    def _part(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, content_index=0, item_id=self._item_id, output_index=0, **fields)

    def _text_part(self, text: str) -> dict[str, Any]:
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": []}

    def _item(self, status: str) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "content": [self._text_part(words(0, 0, self._count))],
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }

    def _final(self, reason: Reason, tokens: int) -> dict[str, Any]:
        cut = reason == "length"
        usage = {
            "input_tokens": self._asked.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._asked.prompt_tokens + tokens,
        }
        details = {"reason": "max_output_tokens"} if cut else None
        return self._response("incomplete" if cut else "completed", [self._item("completed")], details, usage)

    def _response(
        self,
        status: str,
        output: list[dict[str, Any]],
        details: dict[str, str] | None,
        usage: dict[str, Any] | None,
    ) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "created_at": self._head.created,
            "incomplete_details": details,
            "instructions": None,
            "metadata": None,
            "model": self._head.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self._asked.limit,
            "previous_response_id": None,
            "status": status,
            "truncation": "disabled",
            "usage": usage,
        }
