"""What a rule is, before anybody renders it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["critical", "warning", "info"]
"""critical: page now; warning: in working hours; info: context for an investigation."""


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule, named `level:metric:operation`."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule. Its texts hold `[who]`, `[value]`, `[percent]` and `[seconds]`, filled in when it fires."""

    name: str
    severity: str
    expr: str
    summary: str
    description: str
    for_: str
    """How long the condition must last: `for`."""
    keep_firing_for: str = "0s"
    """How long the alert goes on after the condition was last met: `keep_firing_for`."""
    dashboard: str = "midstream-overview"
    labels: Mapping[str, str] = field(default_factory=dict)
    by: tuple[str, ...] | None = None
    """The labels of the result, where they are not those of every rule about streams."""
    engine: str | None = None
    """The engine whose metrics it needs; None: only ours."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, one after the other."""

    name: str
    rules: tuple[Record | Alert, ...]
    interval: str | None = None
