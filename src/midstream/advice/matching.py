"""Whether a freeze coincides with a preemption that the server counted. Pure.

When a counter moves, by engine: vLLM counts a preemption with the request's next output. With asynchronous scheduling,
its default, that is the token still on its way, so at the beginning of the freeze; without it, the one that ends the
freeze. SGLang counts a retraction when it makes it. TGI's passes are counted when they are queued, so at the
beginning. TensorRT-LLM shows who is paused while they are.

What is counted between two readings happened somewhere between them, so a match is as sharp as the readings are
close together. SLACK_S allows for the rest: the way of a chunk to the client, and of a page to us.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from midstream.advice.watching import Between
from midstream.engines import ENGINES

SLACK_S = 0.5

Place: TypeAlias = Literal["start", "end", "during", "none", "unknown", "never"]
"""Where in a freeze the preemption was counted. never: the engine has none."""


@dataclass(frozen=True, slots=True)
class Match:
    """What the server counted around one freeze. Seconds are from the freeze's beginning, negative before it."""

    place: Place
    preemptions: float | None = None
    earliest_s: float | None = None
    latest_s: float | None = None
    chance: float | None = None
    """How probable it is that a freeze at any other moment would have begun or ended with a preemption as well."""


def match(start: float, end: float, history: Sequence[Between], engine: str) -> Match:
    """Find the preemption that a freeze from `start` to `end`, in Unix seconds, goes with.

    `history` is what happened between all readings, in order. A preemption at the beginning wins over one at the
    end, and that over one in between, which is rather another stream's.
    """
    counting = ENGINES[engine].counting
    if counting.never:
        return Match("never")
    places: list[tuple[Place, float, float]] = [("start", start - SLACK_S, start + SLACK_S)]
    if counting.at_end:
        places.append(("end", end - SLACK_S, end + SLACK_S))
    if counting.during:
        places.append(("during", start, end))
    counted = [each for each in history if each.preemptions.value]
    by_chance = chance(history, tries=1 if len(places) == 1 else 2)
    for place, low, high in places:
        found = [each for each in counted if each.since < high and each.until > low]
        if found:
            centre = end if place == "end" else start
            nearest = min(found, key=lambda each: abs((each.since + each.until) / 2 - centre))
            return Match(
                place,
                nearest.preemptions.value,
                nearest.since - start,
                nearest.until - start,
                by_chance,
            )
    last = end if len(places) > 1 else start
    known = _covered(start - SLACK_S, last + SLACK_S, history)
    return Match("none" if known else "unknown", chance=by_chance if known else None)


def chance(history: Iterable[Between], tries: int = 1) -> float | None:
    """Return how probable it is that one of so many moments of the watched time lies at a preemption."""
    watched = matched = 0.0
    reach = float("-inf")
    for each in history:
        if each.preemptions.value is None:
            continue
        watched += each.until - each.since
        if each.preemptions.value:
            low = max(reach, each.since - SLACK_S)
            reach = max(reach, each.until + SLACK_S)
            matched += max(0.0, reach - low)
    return 1 - (1 - min(1.0, matched / watched)) ** tries if watched > 0 else None


def _covered(low: float, high: float, history: Sequence[Between]) -> bool:
    """Return whether it is known throughout that nothing was counted."""
    reached = low
    for each in history:
        if each.preemptions.value is not None and each.since <= reached < each.until:
            reached = each.until
    return reached >= high


def sentence(found: Match, length_s: float, engine: str, *, ended: bool = True) -> str:
    """Say it: what a freeze of `length_s` seconds goes with. `ended` is False if the stream ended in it."""
    facts = ENGINES[engine]
    word = facts.words.noun
    freeze = f"a freeze of {length_s:.1f} s"
    if found.place == "never":
        return f"{freeze}; {facts.title} never preempts, so look for another cause"
    if found.place == "unknown":
        return f"{freeze}; the server's page was not read in its time, so whether there was a {word} is not known"
    if found.place == "none" and not ended and facts.counting.lost:
        return f"{freeze} in which the stream ended; {facts.counting.lost}"
    if found.place == "none":
        return f"{freeze} without any {word} in its time: look for another cause"
    many = f"a {word}" if found.preemptions == 1 else f"{found.preemptions:.0f} {facts.words.plural}"
    early, late = found.earliest_s or 0.0, found.latest_s or 0.0
    if found.place == "during":
        return f"{freeze}; {many} came while it lasted, but not when it began: rather of another stream"
    if found.place == "end":
        return f"{freeze} that ended with {many}, {facts.counting.at_end}"
    if late <= 0:
        return f"{freeze} that began {-late:.1f} to {-early:.1f} s after {many}"
    return f"{freeze} that began within {max(-early, late):.1f} s of {many}"
