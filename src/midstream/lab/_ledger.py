"""Keeps, for every request of a simulated run, what its client sees."""

from __future__ import annotations

from collections.abc import Iterable

from midstream.lab.admission import PrefillChunk
from midstream.lab.results import Ending, RequestResult
from midstream.lab.workload import WorkloadCall


class Ticket:
    """What a request's client has seen so far."""

    __slots__ = (
        "admitted_s",
        "answer",
        "asked_s",
        "call",
        "first_s",
        "freezes",
        "frozen_s",
        "gap_at_s",
        "gap_s",
        "last_s",
        "preemptions",
        "redone",
        "times_s",
    )

    def __init__(self, call: WorkloadCall, asked_s: float) -> None:
        self.call = call
        self.asked_s = asked_s
        self.admitted_s: float | None = None
        self.first_s: float | None = None
        self.last_s = 0.0
        self.answer = 0
        self.preemptions = 0
        self.redone = 0
        self.gap_s = 0.0
        self.gap_at_s = 0.0
        self.freezes = 0
        self.frozen_s = 0.0
        self.times_s: list[float] = []

    def wait(self, until_s: float, freeze_after_s: float) -> None:
        """Count the time since the last token as a gap."""
        gap = until_s - self.last_s
        if gap > self.gap_s:
            self.gap_s = gap
            self.gap_at_s = self.last_s
        if gap >= freeze_after_s:
            self.freezes += 1
            self.frozen_s += gap

    def result(self, ended_s: float, ending: Ending) -> RequestResult:
        """Return the result of the request."""
        gapped = self.gap_s > 0
        request = self.call.request
        return RequestResult(
            id=request.id,
            asked_s=self.asked_s,
            admitted_s=self.admitted_s,
            first_token_s=self.first_s,
            ended_s=ended_s,
            ending=ending,
            prompt_tokens=request.prompt_tokens,
            answer_tokens=self.answer,
            preemptions=self.preemptions,
            redone_tokens=self.redone,
            longest_gap_s=self.gap_s if gapped else None,
            longest_gap_at_s=self.gap_at_s if gapped else None,
            freezes=self.freezes,
            frozen_s=self.frozen_s,
            times_s=tuple(self.times_s),
        )


class Ledger:
    """All open tickets, and the results of those closed."""

    def __init__(self, freeze_after_s: float, *, keep_times: bool) -> None:
        self._freeze_after_s = freeze_after_s
        self._keep_times = keep_times
        self._open: dict[int, Ticket] = {}
        self.results: list[RequestResult] = []
        self.prefilled = 0
        self.redone = 0

    def __len__(self) -> int:
        """How many tickets are open."""
        return len(self._open)

    def open(self, call: WorkloadCall, asked_s: float) -> None:
        """Note that a client asks."""
        self._open[call.request.id] = Ticket(call, asked_s)

    def close(self, request_id: int, now: float, ending: Ending) -> None:
        """Note that a request ends. A gap that no token ended counts too: most who hang up do so in one."""
        ticket = self._open.pop(request_id)
        if ticket.first_s is not None and now > ticket.last_s:
            ticket.wait(now, self._freeze_after_s)
        self.results.append(ticket.result(now, ending))

    def is_open(self, request_id: int) -> bool:
        """Tell whether a request is still under way."""
        return request_id in self._open

    def close_all(self, now: float) -> None:
        """Note that time is up for those under way."""
        for request_id in list(self._open):
            self.close(request_id, now, "unfinished")

    def admit(self, ids: Iterable[int], now: float) -> None:
        """Note that requests get memory, the first time or again."""
        for request_id in ids:
            ticket = self._open[request_id]
            if ticket.admitted_s is None:
                ticket.admitted_s = now

    def preempt(self, ids: Iterable[int]) -> None:
        """Note that requests lose their memory."""
        for request_id in ids:
            self._open[request_id].preemptions += 1

    def prefill(self, chunks: Iterable[PrefillChunk]) -> None:
        """Note that parts of prompts are computed."""
        for chunk in chunks:
            self.prefilled += chunk.tokens
            self.redone += chunk.redone
            ticket = self._open.get(chunk.id)
            if ticket is not None:
                ticket.redone += chunk.redone

    def token(self, ids: Iterable[int], now: float) -> None:
        """Give each request one token."""
        for request_id in ids:
            ticket = self._open[request_id]
            ticket.answer += 1
            if ticket.first_s is None:
                ticket.first_s = now
            else:
                ticket.wait(now, self._freeze_after_s)
            ticket.last_s = now
            if self._keep_times:
                ticket.times_s.append(now)

    def tokens(self, ids: Iterable[int], times_s: list[float], gap_s: float, gap_at_s: float) -> None:
        """Give each request a token at each of these times; `gap_s` is the longest gap between them."""
        for request_id in ids:
            ticket = self._open[request_id]
            ticket.answer += len(times_s)
            if gap_s > ticket.gap_s:
                ticket.gap_s = gap_s
                ticket.gap_at_s = gap_at_s
            ticket.last_s = times_s[-1]
            if self._keep_times:
                ticket.times_s += times_s
