"""Legacy completions, streamed and whole, as an engine's dialect has them."""

from __future__ import annotations

from typing import Any

from midstream.engines.dialect import Dialect
from midstream.lab.admission import Reason
from midstream.lab.emulation.mailbox import TokensEmitted
from midstream.lab.emulation.request_body import ParsedRequest
from midstream.lab.emulation.words import words
from midstream.lab.emulation.writing import DONE, Head, event, usage_of


class CompletionWriter:
    """Turns the engine's news into the chunks of a completion."""

    def __init__(self, dialect: Dialect, asked: ParsedRequest, head: Head) -> None:
        self._dialect = dialect
        self._asked = asked
        self._head = head.fields("text_completion")
        self._counts = [0] * asked.choices
        self._ended = 0
        self._held: list[bytes] = []

    def finished(self) -> bool:
        """True when every choice has ended."""
        return self._ended == self._asked.choices

    def queued(self) -> bytes:
        """Nothing is sent before there is output."""
        return b""

    def said(self, news: TokensEmitted) -> bytes:
        """Return the chunks for some tokens."""
        start = self._counts[news.choice]
        self._counts[news.choice] = start + news.tokens
        text = words(news.choice, start, news.tokens)
        if news.reason is None:
            return self._chunk(news.choice, text, self._dialect.no_reason)
        self._ended += 1
        finish = self._finish(news.reason)
        frames: list[bytes] = []
        if self._dialect.finish_alone:
            frames.append(self._chunk(news.choice, text, self._dialect.no_reason))
            self._held.append(self._chunk(news.choice, "", finish, last=True))
        else:
            frames.append(self._chunk(news.choice, text, finish, last=True))
        if self.finished() or not self._dialect.finish_last:
            frames += self._held
            self._held = []
        if self.finished():
            if self._asked.include_usage and self._dialect.text_usage == "asked":
                frames.append(event({**self._head, "choices": [], "usage": self._usage()}))
            frames.append(DONE)
        return b"".join(frames)

    def failed(self, fault: dict[str, Any], *, done: bool) -> bytes:
        """Return what is sent when the engine gives up."""
        return event(fault) + (DONE if done else b"")

    def whole(self, reasons: dict[int, Reason], counts: dict[int, int]) -> dict[str, Any]:
        """Return the answer in one piece."""
        choices = [
            {
                "index": choice,
                "text": words(choice, 0, counts[choice]),
                "finish_reason": self._finish(reason),
                "logprobs": None,
                **self._dialect.last_choice,
            }
            for choice, reason in sorted(reasons.items())
        ]
        usage = usage_of(self._dialect, self._asked.prompt_tokens, sum(counts.values()))
        return {**self._head, "choices": choices, "usage": usage}

    def _finish(self, reason: Reason) -> str:
        return self._dialect.text_reasons.get(reason, reason)

    def _usage(self) -> dict[str, Any]:
        return usage_of(self._dialect, self._asked.prompt_tokens, sum(self._counts))

    def _chunk(self, choice: int, text: str, finish: str | None, *, last: bool = False) -> bytes:
        more = self._dialect.last_choice if last else {}
        one = {"index": choice, "text": text, "finish_reason": finish, **self._dialect.text_choice, **more}
        payload = {**self._head, "choices": [one]}
        if self._asked.continuous_usage:
            payload["usage"] = usage_of(self._dialect, self._asked.prompt_tokens, self._counts[choice])
        if last and self.finished():
            where = self._dialect.text_usage
            if where == "last chunk" or (where == "last chunk if asked" and self._asked.include_usage):
                payload["usage"] = self._usage()
        return event(payload)
