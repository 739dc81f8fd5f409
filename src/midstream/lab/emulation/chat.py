"""Chats, streamed and whole, as an engine's dialect has them."""

from __future__ import annotations

from typing import Any

from midstream.engines.dialect import Dialect
from midstream.lab.admission import Reason
from midstream.lab.emulation.mailbox import TokensEmitted
from midstream.lab.emulation.request_body import ParsedRequest
from midstream.lab.emulation.words import OPENING_TOKENS, words
from midstream.lab.emulation.writing import DONE, Head, event, usage_of


class ChatWriter:
    """Turns the engine's news into the chunks of a chat."""

    def __init__(self, dialect: Dialect, asked: ParsedRequest, head: Head) -> None:
        self._dialect = dialect
        self._asked = asked
        self._head = head.fields("chat.completion.chunk")
        self._counts = [0] * asked.choices
        self._ended = 0
        self._opened = False
        self._held: list[bytes] = []
        """Finish chunks that wait for the other choices."""

    def finished(self) -> bool:
        """True when every choice has ended."""
        return self._ended == self._asked.choices

    def queued(self) -> bytes:
        """Nothing is sent before there is output."""
        return b""

    def said(self, news: TokensEmitted) -> bytes:
        """Return the chunks for some tokens."""
        dialect, choice = self._dialect, news.choice
        frames: list[bytes] = []
        role: dict[str, Any] = {}
        if dialect.role == "every":
            role = {"role": "assistant"}
        elif not self._opened:
            self._opened = True
            frames += [self._role(each) for each in range(self._asked.choices)]
        start = self._counts[choice]
        self._counts[choice] = start + news.tokens
        delta = self._delta(choice, start, news.tokens, last=news.reason is not None)
        finish = None if news.reason is None else self._finish(news.reason)
        if finish is not None and not dialect.finish_alone:
            frames.append(self._chunk(choice, {**role, **(delta or {})}, finish))
        elif delta is not None:
            frames.append(self._chunk(choice, {**role, **delta}))
        if finish is not None:
            self._ended += 1
            if dialect.finish_alone:
                self._held.append(self._chunk(choice, {}, finish, counted=False))
            if self.finished() or not dialect.finish_last:
                frames += self._held
                self._held = []
        if self.finished():
            frames.append(self._tail())
        return b"".join(frames)

    def failed(self, fault: dict[str, Any], *, done: bool) -> bytes:
        """Return what is sent when the engine gives up."""
        return event(fault) + (DONE if done else b"")

    def whole(self, reasons: dict[int, Reason], counts: dict[int, int]) -> dict[str, Any]:
        """Return the answer in one piece."""
        choices = []
        for choice, reason in sorted(reasons.items()):
            message: dict[str, Any] = {"role": "assistant", "content": None}
            if self._asked.call is None:
                message["content"] = words(choice, self._asked.continues, counts[choice])
            else:
                pieces = self._asked.call.pieces[: max(0, counts[choice] - OPENING_TOKENS)]
                function = {"name": self._asked.call.name, "arguments": "".join(pieces)}
                message["tool_calls"] = [
                    {"id": self._call_id(choice), "type": "function", "function": function}
                ]
            choices.append(
                {
                    "index": choice,
                    "message": message,
                    "finish_reason": self._finish(reason),
                    "logprobs": None,
                    **self._dialect.last_choice,
                }
            )
        usage = usage_of(self._dialect, self._asked.prompt_tokens, sum(counts.values()))
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage}

    def _finish(self, reason: Reason) -> str:
        if self._asked.call is not None and reason == "stop":
            return self._dialect.tool_reason
        return self._dialect.reasons.get(reason, reason)

    def _delta(self, choice: int, start: int, tokens: int, *, last: bool) -> dict[str, Any] | None:
        """Return what these tokens add to the message; None while a parser holds them back."""
        call = self._asked.call
        if call is None:
            return {**self._dialect.delta, "content": words(choice, self._asked.continues + start, tokens)}
        if self._dialect.tool_call == "whole":
            start, tokens = (0, start + tokens) if last else (start, 0)
        end = start + tokens - OPENING_TOKENS
        first = start - OPENING_TOKENS
        if end < 0 or not tokens:
            return None
        function: dict[str, Any] = {"arguments": "".join(call.pieces[max(0, first) : end])}
        item: dict[str, Any] = {"index": 0, "function": function}
        if first < 0:
            function["name"] = call.name
            item |= {"id": self._call_id(choice), "type": "function"}
        return {**self._dialect.delta, "content": None, "tool_calls": [item]}

    def _call_id(self, choice: int) -> str:
        return f"call-{self._head['created']}-{choice}"

    def _role(self, choice: int) -> bytes:
        delta = {**self._dialect.delta, "role": "assistant", "content": self._dialect.role_content}
        return self._chunk(choice, delta, counted=self._dialect.continuous == "with include_usage")

    def _chunk(
        self, choice: int, delta: dict[str, Any], finish: str | None = None, *, counted: bool = True
    ) -> bytes:
        last = self._dialect.last_choice if finish is not None else {}
        one = {"index": choice, "delta": delta, "finish_reason": finish, **self._dialect.choice, **last}
        payload = {**self._head, "choices": [one]}
        if self._asked.continuous_usage and counted:
            payload["usage"] = usage_of(self._dialect, self._asked.prompt_tokens, self._counts[choice])
        return event(payload)

    def _tail(self) -> bytes:
        if not self._asked.include_usage:
            return DONE
        usage = usage_of(self._dialect, self._asked.prompt_tokens, sum(self._counts))
        return event({**self._head, "choices": [], "usage": usage}) + DONE
