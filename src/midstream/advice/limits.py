"""Which `max_tokens` to ask for: what a limit would cut, and what today's reserves for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from midstream._support.statistics import CONFIDENCE
from midstream.advice.lengths import Length, Lengths, groups_of, lengths_of
from midstream.advice.survival import (
    Curve,
    Quantile,
    Unsupported,
    curve_of,
    limit_for,
    naive_limit,
)
from midstream.stream.model import StreamRecord


@dataclass(frozen=True, slots=True)
class Reserved:
    """What requests ask to have set aside for their answers, and what the answers use of it, in tokens.

    `requests` counts those that sent a limit and whose use is known; `asked` and `used` are their sums. `without`
    counts requests that sent no limit.
    """

    requests: int
    asked: int
    used: int
    without: int

    @property
    def unused_share(self) -> float | None:
        """The share of what is asked for that no answer uses; None if no request has a limit."""
        return 1 - self.used / self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Answers for which the server reports reasoning tokens.

    `share` is the median share of reasoning in an answer's tokens; `lengths` are the tokens of reasoning, rising;
    `never_began` counts answers whose limit was used up by reasoning.
    """

    answers: int
    share: float
    lengths: tuple[int, ...]
    never_began: int

    def ended_by(self, limit: int) -> int:
        """Return how many of these answers a limit would have ended before they began."""
        return sum(tokens >= limit for tokens in self.lengths)


@dataclass(frozen=True, slots=True)
class Tried:
    """What a limit would cut: a share of all answers with its band; None where the data do not reach."""

    limit: int
    share: float | None
    low: float | None
    high: float | None
    requests_today: int
    """How many requests ask for this limit today."""


@dataclass(frozen=True, slots=True)
class MaxTokensAdvice:
    """A limit for each model and operation, the one with most answers first."""

    groups: tuple[LimitAdvice, ...]
    without_lengths: int
    """Streams in groups of which no length is known, and so nothing can be advised."""


@dataclass(frozen=True, slots=True)
class LimitAdvice:
    """Everything that is known of one model's answers to one kind of request, and the limit that follows."""

    model: str
    operation: str
    lengths: Lengths
    curve: Curve
    limit: Quantile | Unsupported
    naive: int
    """The limit that follows if answers that were cut are taken as they are: too low if there are any."""
    asked: Counter[int]
    """The limits that requests ask for, and how many of them do."""
    reserved: Reserved
    reasoning: Reasoning | None
    tried: tuple[Tried, ...]
    """Today's limits, and those that were asked about."""

    @property
    def would_cut(self) -> int | None:
        """How many of the answers seen are longer than the advised limit, or were cut at it or above."""
        if isinstance(self.limit, Unsupported):
            return None
        limit = self.limit.limit
        return sum(tokens > limit for tokens in self.curve.exact) + sum(
            tokens >= limit for tokens in self.curve.censored
        )


def advise_max_tokens(
    records: Sequence[StreamRecord],
    *,
    cut: float = 0.001,
    confidence: float = CONFIDENCE,
    limits: Sequence[int] = (),
    by_group: bool = True,
) -> MaxTokensAdvice:
    """Return the smallest `max_tokens`, in tokens, that cuts at most a share `cut` of answers, with its interval.

    For each model and operation, or with `by_group=False` for all records together. `limits` are other limits whose
    effect is of interest. An answer that was cut at its limit, left or broken off counts as longer than it is: the
    share of longer answers is Kaplan and Meier's estimate, and the interval Brookmeyer and Crowley's, both from SciPy
    (see `midstream.advice.survival`). A group's `limit` is a `Quantile`, or an `Unsupported` that names what is
    missing; `limit_verdict(group)` is the advice in a sentence.

    Raises ValueError unless `cut` and `confidence` are above 0 and below 1, and ModuleNotFoundError without SciPy.

    >>> advice = advise_max_tokens(records, cut=0.5)    # records = midstream.journal.read("streams.db").records
    >>> advice.groups[0].limit.limit
    680
    """
    advised, silent = [], 0
    groups = groups_of(records) if by_group else {("", ""): list(records)}
    for (model, operation), group in groups.items():
        lengths = lengths_of(group)
        if lengths.answers:
            advised.append(_advice(model, operation, lengths, cut=cut, confidence=confidence, limits=limits))
        else:
            silent += len(group)
    return MaxTokensAdvice(tuple(advised), silent)


def _advice(
    model: str, operation: str, lengths: Lengths, *, cut: float, confidence: float, limits: Sequence[int]
) -> LimitAdvice:
    curve = curve_of(lengths.exact, lengths.censored, confidence=confidence)
    asked = Counter(
        answer.record.token_limit for answer in lengths.answers if answer.record.token_limit is not None
    )
    most = [limit for limit, _ in asked.most_common(_SHOWN_LIMITS)]
    return LimitAdvice(
        model=model,
        operation=operation,
        lengths=lengths,
        curve=curve,
        limit=limit_for(curve, cut),
        naive=naive_limit([*curve.exact, *curve.censored], cut),
        asked=asked,
        reserved=_reserved(lengths.answers),
        reasoning=_reasoning(lengths.answers),
        tried=tuple(_try(curve, limit, asked[limit]) for limit in sorted({*most, *limits})),
    )


_SHOWN_LIMITS = 5


def _try(curve: Curve, limit: int, today: int) -> Tried:
    share, low, high = curve.at(limit)
    return Tried(limit, share, low, high, today)


def _reserved(answers: Sequence[Length]) -> Reserved:
    asking = [(answer.record.token_limit, answer.tokens) for answer in answers]
    pairs = [(limit, tokens) for limit, tokens in asking if limit is not None]
    return Reserved(
        requests=len(pairs),
        asked=sum(limit for limit, _ in pairs),
        used=sum(min(limit, tokens) for limit, tokens in pairs),
        without=len(asking) - len(pairs),
    )


def _reasoning(answers: Sequence[Length]) -> Reasoning | None:
    pairs = [(answer.record.reasoning_tokens, answer) for answer in answers]
    thought = [(tokens, answer) for tokens, answer in pairs if tokens]
    if not thought:
        return None
    return Reasoning(
        answers=len(thought),
        share=median(min(1.0, tokens / max(1, answer.tokens)) for tokens, answer in thought),
        lengths=tuple(sorted(tokens for tokens, _ in thought)),
        never_began=sum(answer.cause == "limit" and tokens >= answer.tokens for tokens, answer in thought),
    )
