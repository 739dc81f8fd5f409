"""The load that records show: which lengths came together, how many at once, and how much memory they took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from statistics import mean

from midstream._support.statistics import nearest_rank
from midstream.advice.lengths import lengths_of
from midstream.lab.admission import Request
from midstream.lab.workload import Workload, WorkloadCall, generator
from midstream.stream.model import StreamRecord


class LoadError(ValueError):
    """The records do not show enough of the load; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One request as it was: tokens of prompt and answer, the limit it sent, when it came (seconds from the first)."""

    at_s: float
    prompt: int
    answer: int
    limit: int | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """The requests whose lengths are known, in the order in which they came, and how many records have none.

    `peak` and `usual` are how many of all streams were open at once: at most, and for 95 % of the time at most.
    `in_flight` is the most tokens of prompt and answer that were in memory at once, as far as the records show it.
    """

    requests: tuple[Shape, ...]
    unknown: int
    peak: int
    usual: int
    in_flight: int
    thinking: tuple[float, ...] = (0.0,)
    """If as many users as `usual` ask in turn: seconds between an answer and the same user's next call."""

    @property
    def mean_prompt(self) -> float:
        """Mean tokens of a prompt."""
        return mean(request.prompt for request in self.requests)

    @property
    def mean_answer(self) -> float:
        """Mean tokens of an answer, as long as it became: what was cut short took no more memory."""
        return mean(request.answer for request in self.requests)

    @property
    def p95_answer(self) -> float:
        """The 95th percentile of answers, as long as they became."""
        return nearest_rank(sorted(request.answer for request in self.requests), 0.95)

    def as_logged(self, seed: int, users: int | None, count: int) -> Workload:
        """Return `count` calls like those that were made.

        With `users` so many clients make them in turn, begin as far apart as they began, and pause as long as was
        seen. Without, calls come when they came, from one of the first on or, of a long record, from any. Lengths are
        drawn from those that came together, with replacement, by the seed.
        """
        rng = generator("lengths", seed)
        number = min(count, len(self.requests)) if users is None else count
        drawn = [rng.choice(self.requests) for _ in range(number)]
        if users is None:
            first = generator("window", seed).randint(0, len(self.requests) - number)
            times = [
                shape.at_s - self.requests[first].at_s for shape in self.requests[first : first + number]
            ]
        else:
            pauses = generator("thinking", seed)
            begins = self.begins(users)
            times = begins + [pauses.choice(self.thinking) for _ in range(number - users)]
        calls = (
            WorkloadCall(Request(index, shape.prompt, shape.answer, shape.limit), at_s)
            for index, (shape, at_s) in enumerate(zip(drawn, times, strict=False))
        )
        return Workload(tuple(calls), users)

    def begins(self, users: int) -> list[float]:
        """Return when each of the users makes its first call, in seconds.

        As the first calls came, if they came while the first answers were written; else spread over the time of an
        answer, because users who began at other times are not in step.
        """
        usual_s = mean(shape.duration_s for shape in self.requests)
        first = [shape.at_s for shape in self.requests[:users]]
        if len(first) == users and first[-1] <= usual_s:
            return first
        return [usual_s * user / users for user in range(users)]


def load_of(records: Sequence[StreamRecord]) -> RecordedLoad:
    """Return the load that records show. Raises LoadError if none has the lengths of its prompt and answer."""
    shapes = []
    for answer in lengths_of(records).answers:
        record = answer.record
        if record.input_tokens:
            limit = record.token_limit
            tokens = max(1, answer.tokens)
            shapes.append(
                Shape(
                    record.started_at,
                    record.input_tokens,
                    tokens,
                    None if limit is None else max(limit, tokens),
                    record.duration_s,
                )
            )
    if not shapes:
        raise LoadError(
            "none of the streams has the lengths of both its prompt and its answer; "
            "ask servers for usage: stream_options={'include_usage': True}, or monitor(..., include_usage=True)"
        )
    shapes.sort(key=lambda shape: shape.at_s)
    first = shapes[0].at_s
    peak, usual = concurrency(records)
    return RecordedLoad(
        requests=tuple(
            Shape(shape.at_s - first, shape.prompt, shape.answer, shape.limit, shape.duration_s)
            for shape in shapes
        ),
        unknown=len(records) - len(shapes),
        peak=peak,
        usual=usual,
        in_flight=_in_flight(shapes),
        thinking=_thinking(shapes, max(2, usual)),
    )


def concurrency(records: Sequence[StreamRecord]) -> tuple[int, int]:
    """Return how many streams were open at once: at most, and for 95 % of the time in which any was, at most."""
    spans = list(levels((record.started_at, record.duration_s, 1.0) for record in records))
    if not spans:
        return (1, 1) if records else (0, 0)
    busy = sorted((level, seconds) for seconds, level in spans)
    total = sum(seconds for _, seconds in busy)
    passed = 0.0
    for level, seconds in busy:
        passed += seconds
        if passed >= 0.95 * total:
            return round(busy[-1][0]), round(level)
    return round(busy[-1][0]), round(busy[-1][0])


_ABSENT_S = 60.0
"""A user who paused for longer, and for longer than twenty answers take, was away and not thinking."""


def _thinking(shapes: Sequence[Shape], users: int) -> tuple[float, ...]:
    """Return the pauses between answers and next calls, if so many users asked in turn: the first to be free asks."""
    free = [shape.at_s + shape.duration_s for shape in shapes[:users]]
    heapify(free)
    pauses = [
        max(0.0, shape.at_s - heapreplace(free, shape.at_s + shape.duration_s)) for shape in shapes[users:]
    ]
    most = max(_ABSENT_S, 20 * mean(shape.duration_s for shape in shapes))
    return tuple(pause for pause in pauses if pause <= most) or (0.0,)


def _in_flight(shapes: Sequence[Shape]) -> int:
    """Return the most tokens in memory at once, each answer counted in full while it is written: an upper bound."""
    taken = levels((shape.at_s, shape.duration_s, shape.prompt + shape.answer) for shape in shapes)
    return round(max((level for _, level in taken), default=max(s.prompt + s.answer for s in shapes)))


def levels(
    spans: Iterable[tuple[float, float, float]],
) -> Iterator[tuple[float, float]]:
    """Yield for how long, in seconds, and how much of what the spans (start, duration, weight) carry was there."""
    edges = sorted(
        edge for start, duration, weight in spans for edge in ((start, weight), (start + duration, -weight))
    )
    level = 0.0
    for (at, change), (following, _) in pairwise(edges):
        level += change
        if following > at and level > 0.5:
            yield following - at, level
