"""The last act of `midstream demo`: a stall timeout ends an answer that stops, and a second server continues it.

Three clients keep a small server busy for long. A fourth arrives last, so that vLLM preempts it first, and gets nothing
until the others are done. The sizes are chosen so that this lasts seven seconds at the pace of a real server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from openai import DefaultHttpxClient, OpenAI

from midstream import StreamStalled, monitor
from midstream.cli.demo.story import ENGINE, HARDWARE, LIMIT, MODEL, PROMPT_TOKENS
from midstream.lab.admission import engine
from midstream.lab.apart import serve_apart
from midstream.lab.emulation import Emulated, emulator
from midstream.lab.simulator import simulate
from midstream.lab.workload import closed_loop

OTHERS = 3
OTHERS_TOKENS = 700
TOKENS = 400
POOL: Mapping[str, int] = MappingProxyType({"num_gpu_blocks": 88, "block_size": 16})
STALL_TIMEOUT_S = 2.0
BUSY_WITHIN_S = 30.0
"""How long the others may take to begin."""

Report = Callable[[str], None]
"""Takes a line about what happens."""


@dataclass(frozen=True, slots=True)
class StallResult:
    """How the answer was completed. Durations are seconds of real time."""

    timeout_s: float
    gap_s: float | None
    """The time without output after which the timeout ended the first stream; None if it did not."""
    shown: int
    """Chunks with content that the first server had sent."""
    complete_s: float
    """From the call to the last chunk."""


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """The answer without a timeout, in seconds of real time: when it stops, for how long, and when it is complete."""

    stops_at_s: float
    gap_s: float
    complete_s: float


@dataclass(frozen=True, slots=True)
class StallAct:
    """The act at one speed."""

    speed: float

    @property
    def timeout_s(self) -> float:
        """The stall timeout, in seconds of real time."""
        return STALL_TIMEOUT_S / self.speed

    def without(self) -> SimulatedAnswer:
        """Simulate the answer without a timeout."""
        lengths = [*[(PROMPT_TOKENS, OTHERS_TOKENS)] * OTHERS, (PROMPT_TOKENS, TOKENS)]
        run = simulate(engine(ENGINE, **POOL), closed_loop(OTHERS + 1, lengths, max_tokens=LIMIT), HARDWARE)
        last = run.requests[-1]
        return SimulatedAnswer(
            stops_at_s=(last.longest_gap_at_s or 0.0) / self.speed,
            gap_s=(last.longest_gap_s or 0.0) / self.speed,
            complete_s=last.ended_s / self.speed,
        )

    def play(self, report: Report) -> StallResult:
        """Run both servers and all clients, and return how it went. Raises ChildProcessError if a server cannot run."""
        first = Emulated(ENGINE, dict(POOL), HARDWARE, MODEL, self.speed)
        second = Emulated(ENGINE, {}, HARDWARE, MODEL, self.speed)
        with serve_apart(partial(emulator, first)) as busy_url, serve_apart(partial(emulator, second)) as url:
            others = [_Other(_client(busy_url)) for _ in range(OTHERS)]
            try:
                for other in others:
                    other.begun.wait(BUSY_WITHIN_S)
                client = monitor(_client(busy_url), stall_timeout_s=self.timeout_s)
                return self._answer([client, monitor(_client(url))], report)
            finally:
                for other in others:
                    other.stop()

    def _answer(self, clients: list[OpenAI], report: Report) -> StallResult:
        """Read one answer; where the first server stalls, the second goes on from what was shown."""
        began = time.monotonic()
        text, gap_s, shown = "", None, 0
        for client in clients:
            try:
                for chunk in _ask(client, TOKENS, text):
                    text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                break
            except StreamStalled as stalled:
                gap_s, shown = stalled.gap_s, stalled.content_chunks
                report(
                    f"{time.monotonic() - began:6.2f} s  no output for {gap_s:.1f} s: the stall timeout ends the "
                    "stream, and the second server is asked to continue"
                )
        complete_s = time.monotonic() - began
        report(f"{complete_s:6.2f} s  the answer is complete")
        return StallResult(self.timeout_s, gap_s, shown, complete_s)


class _Other:
    """A client that keeps the first server busy."""

    def __init__(self, client: OpenAI) -> None:
        self.begun = threading.Event()
        self._client = client
        self._thread = threading.Thread(target=self._read, name="demo-other", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the stream."""
        self._client.close()
        self._thread.join(1.0)

    def _read(self) -> None:
        with suppress(Exception):  # of any type: the stream ends with the act
            for _ in _ask(self._client, OTHERS_TOKENS):
                self.begun.set()


def _client(base_url: str) -> OpenAI:
    # Neither a proxy nor a key of this machine has a part in this.
    return OpenAI(
        base_url=base_url, api_key="none", http_client=DefaultHttpxClient(trust_env=False), max_retries=0
    )


def _ask(client: OpenAI, tokens: int, shown: str = "") -> Any:
    """Open a stream: a whole answer, or the rest of one."""
    messages: list[dict[str, str]] = [{"role": "user", "content": "Tell me a long story."}]
    extra: dict[str, Any] = {"emulate": {"prompt_tokens": PROMPT_TOKENS, "answer_tokens": tokens}}
    if shown:
        messages.append({"role": "assistant", "content": shown})
        extra |= {"continue_final_message": True, "add_generation_prompt": False}
    return client.chat.completions.create(
        model=MODEL,
        messages=messages,  # type: ignore[arg-type]  # the SDK's types want literals
        max_tokens=LIMIT,
        stream=True,
        extra_body=extra,
    )
