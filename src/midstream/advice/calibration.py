"""What a step costs on this server, fitted to the times in its records, with how far the fit can be off.

The streams that are written at the same time share the engine's steps. So the time that an answer takes from its first
content to its last, freezes left out, is a sum of known counts times unknown costs:

    seconds = step * tokens + sequence * tokens * running + context * tokens * context + prefill * prompt tokens

`running` and `context` are averages over the time in which the answer was written, and `prompt tokens` those of the
answers that began meanwhile. The costs are the non-negative least-squares solution, with Huber's weights against
outliers, and a weak pull towards the proportions of `pace.BASIS` where the records leave a cost open.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median, stdev

from midstream.advice.load import RecordedLoad
from midstream.advice.pace import BASIS, ENOUGH_TOKENS, hardware_of, inter_token_latency
from midstream.lab.hardware import HardwareProfile
from midstream.lab.workload import generator
from midstream.stream.model import StreamRecord

_MOST_ROWS = 4000
"""More answers than these make the fit slower and not better."""
_BLOCKS = 20
"""Neighbouring answers share what was odd at the time, so that the error is taken from blocks of them."""
_DRAWS = 20
_HUBER = 1.345
_PULL = 0.0005
"""The weight of the proportions of BASIS against that of the records."""
_MOST_LATENCY_S = 2.0
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs that the records show, and others that they show as well within their uncertainty.

    `error` is the relative standard error of the time from token to token; None if nothing was fitted, because the
    records do not show their pace: then `profile` is the one that was assumed.
    """

    profile: HardwareProfile
    draws: tuple[HardwareProfile, ...]
    error: float | None

    @property
    def known(self) -> bool:
        """Whether the costs come from the records."""
        return self.error is not None

    def of_seed(self, seed: int) -> HardwareProfile:
        """Return the costs for one run: those of the fit for the first, then others as likely."""
        return self.draws[(seed - 1) % len(self.draws)] if seed > 0 and self.draws else self.profile


@dataclass(frozen=True, slots=True)
class _Row:
    """One answer: the seconds of a token, and how often each cost is in them. `weight` counts its tokens."""

    counts: tuple[float, float, float, float]
    seconds: float
    weight: float


@dataclass(frozen=True, slots=True)
class _Written:
    """When one answer was written: Unix seconds, the gaps in between, and its lengths in tokens."""

    first: float
    last: float
    silent: tuple[tuple[float, float], ...]
    prompt: int
    tokens: int

    @property
    def seconds(self) -> float:
        return self.last - self.first - sum(end - start for start, end in self.silent)


def calibrate(
    records: Sequence[StreamRecord], load: RecordedLoad, running: int, otherwise: HardwareProfile
) -> Calibration:
    """Fit the costs of a step and of a call to the records; `otherwise` is assumed if they do not show their pace.

    `running` is about how many requests ran at once. Times are seconds.
    """
    pace = inter_token_latency(records)
    if pace is None:
        return Calibration(otherwise, (), None)
    start = hardware_of(records, load, running, otherwise)
    written = _written(records, pace)
    rows = _rows(written)
    if len(rows) < _BLOCKS:
        return Calibration(start, (), 0.5)
    factor = start.step_s / BASIS.step_s
    before = (start.step_s, start.sequence_s, start.context_s, BASIS.prefill_token_s * factor)
    weights, costs = [row.weight for row in rows], before
    for _ in range(_ROUNDS):
        costs = _solve(_normal(rows, weights), before)
        off = [row.seconds - _dot(row.counts, costs) for row in rows]
        scale = 1.4826 * median(abs(each) for each in off) or 1e-9
        weights = [
            row.weight * min(1.0, _HUBER * scale / max(abs(each), 1e-12))
            for row, each in zip(rows, off, strict=True)
        ]
    profile = _profile(costs, records, start, pace)
    size = -(-len(rows) // _BLOCKS)
    parts = [_normal(rows[at : at + size], weights[at : at + size]) for at in range(0, len(rows), size)]
    rng = generator("calibration", 0)
    draws = [_profile(_solve(_resampled(parts, rng), before), records, start, pace) for _ in range(_DRAWS)]
    usual = [sum(row.counts[place] for row in rows) / len(rows) for place in range(4)]
    times = [_dot(usual, _costs(draw)) for draw in draws]
    return Calibration(profile, tuple(draws), stdev(times) / _dot(usual, costs))


def _written(records: Sequence[StreamRecord], pace: float) -> list[_Written]:
    found = []
    for record in records[-2 * _MOST_ROWS :]:
        first, tokens = record.time_to_first_content_s, record.output_tokens
        if first is None or not tokens or not record.input_tokens or record.buffered:
            continue
        begin = record.started_at + first
        end = record.started_at + record.duration_s - (record.tail_s or 0.0)
        if end > begin:
            found.append(_Written(begin, end, _gaps_of(record, pace), record.input_tokens, tokens))
    return sorted(found, key=lambda each: each.first)


def _gaps_of(record: StreamRecord, pace: float) -> tuple[tuple[float, float], ...]:
    """Return when an answer stood still for longer than prefills explain: it was preempted, and not running."""
    spans = [(span.at_s, span.length_s) for span in record.freeze_spans]
    gap, at = record.max_gap_s, record.max_gap_at_s
    if not spans and gap is not None and at is not None and (record.freezes or gap > 5 * pace):
        spans = [(at, gap)]
    return tuple((record.started_at + at, record.started_at + at + length) for at, length in spans)


def _rows(written: Sequence[_Written]) -> list[_Row]:
    """Return a row for each answer that is long enough to show a pace."""
    if not written:
        return []
    origin = written[0].first
    running, contexts = _Integral(origin), _Integral(origin)
    for each in written:
        held = each.prompt + each.tokens / 2
        edges = [each.first, *(edge for span in each.silent for edge in span), each.last]
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if end > start:
                running.add(start, end, 1.0)
                contexts.add(start, end, held)
    running.close()
    contexts.close()
    # Who comes back after a preemption has its prompt and the answer so far computed again, unless they are cached.
    prefills = sorted(
        [(each.first, each.prompt) for each in written]
        + [(end, each.prompt + each.tokens // 2) for each in written for _, end in each.silent]
    )
    firsts = [at for at, _ in prefills]
    prompts = [0, *accumulate(tokens for _, tokens in prefills)]
    rows = []
    for each in written:
        seconds, tokens = each.seconds, each.tokens - 1
        if each.tokens < ENOUGH_TOKENS or seconds <= 0:
            continue
        beside = held_beside = 0.0
        begun = 0
        edges = [each.first, *(edge for span in each.silent for edge in span), each.last]
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if end > start:
                beside += running.between(start, end)
                held_beside += contexts.between(start, end)
                begun += prompts[bisect_right(firsts, end)] - prompts[bisect_right(firsts, start)]
        counts = (1.0, beside / seconds, held_beside / seconds, begun / tokens)
        rows.append(_Row(counts, seconds / tokens, float(tokens)))
    return rows[:: max(1, len(rows) // _MOST_ROWS)]


class _Integral:
    """A level that changes in steps, summed over time. Times count from an origin, which keeps them exact."""

    def __init__(self, origin: float) -> None:
        self._origin = origin
        self._changes: list[tuple[float, float]] = []
        self._times: list[float] = []
        self._sums: list[float] = []
        self._levels: list[float] = []

    def add(self, start: float, end: float, level: float) -> None:
        self._changes += [(start - self._origin, level), (end - self._origin, -level)]

    def close(self) -> None:
        level = total = 0.0
        before = 0.0
        for at, change in sorted(self._changes):
            total += level * (at - before)
            level += change
            before = at
            self._times.append(at)
            self._sums.append(total)
            self._levels.append(level)

    def between(self, start: float, end: float) -> float:
        return self._until(end - self._origin) - self._until(start - self._origin)

    def _until(self, at: float) -> float:
        place = bisect_right(self._times, at) - 1
        return self._sums[place] + self._levels[place] * (at - self._times[place]) if place >= 0 else 0.0


_Normal = tuple[list[list[float]], list[float]]


def _normal(rows: Sequence[_Row], weights: Sequence[float]) -> _Normal:
    """Return the normal equations of weighted rows."""
    matrix = [[0.0] * 4 for _ in range(4)]
    right = [0.0] * 4
    for row, weight in zip(rows, weights, strict=True):
        for i, count in enumerate(row.counts):
            weighted = weight * count
            right[i] += weighted * row.seconds
            for j in range(i, 4):
                matrix[i][j] += weighted * row.counts[j]
    for i in range(4):
        for j in range(i):
            matrix[i][j] = matrix[j][i]
    return matrix, right


def _resampled(parts: Sequence[_Normal], rng: random.Random) -> _Normal:
    drawn = [rng.choice(parts) for _ in parts]
    matrix = [[sum(part[0][i][j] for part in drawn) for j in range(4)] for i in range(4)]
    return matrix, [sum(part[1][i] for part in drawn) for i in range(4)]


def _solve(normal: _Normal, before: Sequence[float]) -> tuple[float, float, float, float]:
    """Solve for costs of 0 or more, each pulled a little towards what it was `before`, by coordinate descent."""
    matrix, right = normal
    pulls = [_PULL * matrix[i][i] or 1.0 for i in range(4)]
    costs = list(before)
    for _ in range(2000):
        moved = 0.0
        for i in range(4):
            rest = sum(matrix[i][j] * costs[j] for j in range(4) if j != i)
            value = max(0.0, (right[i] + pulls[i] * before[i] - rest) / (matrix[i][i] + pulls[i]))
            moved = max(moved, abs(value - costs[i]) / (abs(value) + 1e-12))
            costs[i] = value
        if moved < 1e-6:
            break
    return costs[0], costs[1], costs[2], costs[3]


def _dot(counts: Sequence[float], costs: Sequence[float]) -> float:
    return sum(count * cost for count, cost in zip(counts, costs, strict=True))


def _costs(profile: HardwareProfile) -> tuple[float, float, float, float]:
    return profile.step_s, profile.sequence_s, profile.context_s, profile.prefill_token_s


def _profile(
    costs: Sequence[float], records: Sequence[StreamRecord], start: HardwareProfile, pace: float
) -> HardwareProfile:
    """Return the costs as a profile, with the time of a call before the engine: that of the call that waited least.

    Where every call waited in a queue it is too long, and so it is cut at `_MOST_LATENCY_S`.
    """
    step, sequence, context, prefill = costs
    before = [
        record.time_to_first_content_s - step - sequence - prefill * record.input_tokens
        for record in records[-_MOST_ROWS:]
        if record.time_to_first_content_s is not None and record.input_tokens and not record.buffered
    ]
    fixed = min(max(0.0, min(before, default=0.0)), _MOST_LATENCY_S)
    return replace(
        start,
        name=f"a server that takes {1000 * pace:.3g} ms a token, as these streams show",
        step_s=max(step, 1e-6),
        sequence_s=sequence,
        context_s=context,
        prefill_token_s=prefill,
        prefill_pair_s=0.0,
        latency_s=fixed,
        front_end_s=0.0,
        source="fitted to the recorded streams",
    )
