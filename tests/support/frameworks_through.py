"""A server that freezes in mid-answer, read through a framework as it is, and again with the process instrumented."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from benchmarks.wire import Script, WireServer

import midstream
from midstream import StreamRecord
from midstream.runtime.monitor import PROCESS
from midstream.testing import DONE, finish, frame, role, text, usage

if TYPE_CHECKING:
    from typing_extensions import Self

FREEZE_AFTER_S = 0.3
SENT_BEFORE, SENT_AFTER = 2, 3
"""The frames around the freeze, in both scripts."""

CHAT: Script = [
    (0.05, role()),
    (0.1, text("Hel")),
    (0.2, text("lo")),
    (0.9, text(" you")),
    (0.9, finish()),
    (0.9, usage(5, 3)),
    (0.9, DONE),
]


def event(kind: str, **fields: Any) -> str:
    """One event of the Responses API."""
    return f"event: {kind}\n" + frame({"type": kind, "sequence_number": 0, **fields})


def _response(status: str, *output: Any) -> dict[str, Any]:
    counts = {
        "input_tokens": 5, "output_tokens": 3, "total_tokens": 8,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": "r1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": list(output),
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": counts if status == "completed" else None,
    }  # fmt: skip


def _message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "i1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def _delta(text: str) -> str:
    return event(
        "response.output_text.delta", item_id="i1", output_index=0, content_index=0, delta=text, logprobs=[]
    )


RESPONSES: Script = [
    (0.05, event("response.created", response=_response("in_progress"))),
    (0.1, _delta("Hel")),
    (0.2, _delta("lo")),
    (0.9, _delta(" you")),
    (0.9, event("response.output_item.done", output_index=0, item=_message("Hello you"))),
    (0.9, event("response.completed", response=_response("completed", _message("Hello you")))),
]


def _row(*cells: str) -> str:
    widths = (34, 9, 9, 7, 7, 8)
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


ROWS = [_row("framework", "version", "openai", "records", "gap", "true gap")]
"""What was measured, as lines of a table."""


class Through:
    """One test's server and records."""

    def __init__(self) -> None:
        self.server = WireServer(CHAT)
        self.responses = WireServer(RESPONSES)
        self._records: list[StreamRecord] = []
        self._loop = asyncio.new_event_loop()  # one for all: frameworks keep their clients

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        midstream.uninstrument()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self.server.close()
        self.responses.close()

    @property
    def records(self) -> list[StreamRecord]:
        """What has ended since the process was instrumented."""
        PROCESS.flush()
        return self._records

    def monitor(self, client: Any) -> Any:
        """Monitor a client with the settings of these tests."""
        return midstream.monitor(client, freeze_after_s=FREEZE_AFTER_S, on_end=self._records.append)

    def instrument(self) -> None:
        """Monitor all clients of the process with these settings."""
        midstream.instrument(freeze_after_s=FREEZE_AFTER_S, on_end=self._records.append)

    def check(
        self, name: str, package: str, use: Callable[[], Any], output: Any, *, explicit: bool = False
    ) -> StreamRecord:
        """Read through a framework: the same output with and without us, and one record with the true gap.

        With `explicit` the framework was given a monitored client, and the process is left alone.
        """
        if not explicit:
            assert self.settled(use()) == output
            self.instrument()
        assert self.settled(use()) == output
        (record,) = self.records
        server = self.responses if record.operation == "responses" else self.server
        exchange = server.exchanges[-1]
        true_gap_s = exchange.sent[SENT_AFTER] - exchange.sent[SENT_BEFORE]
        self.row(name, package, record, true_gap_s)
        assert (record.outcome, record.freezes, record.server_port) == ("completed", 1, server.port)
        assert (record.content_chunks, record.output_tokens) == (3, 3)
        assert midstream.streams() == ()
        return record

    def row(self, name: str, package: str, record: StreamRecord, true_gap_s: float) -> None:
        """Add a line to the table, and hold the gap that was measured against the true one."""
        assert record.max_gap_s is not None
        gaps = (f"{record.max_gap_s:.3f} s", f"{true_gap_s:.3f} s")
        ROWS.append(_row(name, version(package), version("openai"), str(len(self.records)), *gaps))
        assert abs(record.max_gap_s - true_gap_s) < 0.1

    def check_left(self, use: Callable[[], Any]) -> StreamRecord:
        """Leave in the middle of the freeze: one record all the same, as soon as the framework has let go."""
        self.instrument()
        self.settled(use())
        deadline = time.monotonic() + 5
        while not self.records and time.monotonic() < deadline:
            time.sleep(0.01)  # the framework may close in a task or thread of its own
        (record,) = self.records
        return record

    def settled(self, result: Any) -> Any:
        """Give what a function or a coroutine function came up with."""
        return self._loop.run_until_complete(result) if asyncio.iscoroutine(result) else result
