"""Records with any values that a record may hold, for property tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from midstream import FreezeSpan, Outcome, StreamRecord
from midstream.journal._kinds import LARGEST, LONGEST_S

SECONDS = st.floats(min_value=0.0, max_value=LONGEST_S)
COUNTS = st.integers(min_value=0, max_value=LARGEST)
PHASES: st.SearchStrategy[Any] = st.sampled_from(["text", "reasoning", "tool_call"])
SPANS = st.builds(
    FreezeSpan,
    at_s=SECONDS,
    length_s=SECONDS,
    phase=PHASES,
    hidden=st.booleans(),
    shared=st.booleans(),
    open=st.booleans(),
)
STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "float": SECONDS,
    "int": COUNTS,
    "str": st.text(),
    "bool": st.booleans(),
    "Outcome": st.sampled_from(Outcome),
    "Phase": PHASES,
    "Suspicion": st.sampled_from(["stall", "withheld", "unknown"]),
    "Mapping[str, str]": st.dictionaries(st.text(), st.text(), max_size=8),
    "tuple[str | None, ...]": st.lists(st.none() | st.text(), max_size=4).map(tuple),
    "tuple[FreezeSpan, ...]": st.lists(SPANS, max_size=4).map(tuple),
}


def of_type(annotation: str) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold."""
    if annotation in STRATEGIES:
        return STRATEGIES[annotation]
    kind, _, rest = annotation.rpartition(" | ")
    assert rest == "None", annotation
    return st.none() | STRATEGIES[kind]


RECORDS = st.builds(StreamRecord, **{field.name: of_type(str(field.type)) for field in fields(StreamRecord)})
