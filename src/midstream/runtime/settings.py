"""Settings from keywords and from `MIDSTREAM_*` variables: keywords win, then the environment, then the defaults."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Final, TypeAlias

from midstream._support.limits import positive_or_none
from midstream._support.sanitize import valid_name
from midstream.stream.model import FREEZE_AFTER_S, Freeze, StreamRecord
from midstream.stream.phases import PHASES, PhaseSeconds, StallLimits
from midstream.telemetry.labels import reserved

ByPhase: TypeAlias = float | Mapping[str, float | None] | PhaseSeconds | None
"""Seconds: one number for all phases, or one for each; None is no limit."""
Hook: TypeAlias = Callable[[Freeze], object]
EndHook: TypeAlias = Callable[[StreamRecord], object]

MAX_ATTRIBUTES = 8
"""Each attribute multiplies the number of time series, so they are few."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked arguments of `monitor()`. Raises ValueError or TypeError naming the value and the remedy."""

    freeze_after_s: ByPhase = FREEZE_AFTER_S
    on_freeze: Hook | None = None
    on_thaw: Hook | None = None
    on_end: EndHook | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    include_usage: bool = False
    journal: Path | None = None
    journal_max_mb: float | None = 100.0
    journal_max_days: float | None = 30.0
    stall_timeout_s: ByPhase = None
    first_content_timeout_s: float | None = None

    def __post_init__(self) -> None:
        checked = _seconds_by_phase("freeze_after_s", self.freeze_after_s, FREEZE_AFTER_S, "freezes")
        object.__setattr__(self, "freeze_after_s", checked)
        checked = _seconds_by_phase("stall_timeout_s", self.stall_timeout_s, None, "the timeout")
        object.__setattr__(self, "stall_timeout_s", checked)
        first = _seconds("first_content_timeout_s", self.first_content_timeout_s, "the timeout")
        object.__setattr__(self, "first_content_timeout_s", first)
        for name in ("on_freeze", "on_thaw", "on_end"):
            hook = getattr(self, name)
            if hook is not None and not callable(hook):
                raise TypeError(f"{name} must be callable with one argument, got {hook!r}")
            if iscoroutinefunction(hook):
                raise TypeError(
                    f"{name} must be a plain function, got the coroutine function {hook.__qualname__}; hooks run on a "
                    "thread of their own, so hand over to a loop with asyncio.run_coroutine_threadsafe"
                )
        if not isinstance(self.include_usage, bool):
            raise TypeError(f"include_usage must be True or False, got {self.include_usage!r}")
        object.__setattr__(self, "attributes", _checked_attributes(self.attributes))
        object.__setattr__(self, "journal", _checked_path(self.journal))
        for name in ("journal_max_mb", "journal_max_days"):
            object.__setattr__(self, name, positive_or_none(name, getattr(self, name)))

    @property
    def freeze_limits(self) -> float | PhaseSeconds | None:
        """The freeze threshold: one number, or one for each phase."""
        after: Any = self.freeze_after_s
        return after  # type: ignore[no-any-return]  # a mapping was replaced above

    @property
    def stall_limits(self) -> StallLimits | None:
        """The limits of the stall timeout; None if there are none."""
        after: Any = self.stall_timeout_s
        gap = after if isinstance(after, PhaseSeconds) else PhaseSeconds(after, after, after)
        limits = StallLimits(gap, self.first_content_timeout_s)
        return None if limits.shortest is None else limits


def _seconds_by_phase(
    name: str, value: object, default: float | None, what: str
) -> float | PhaseSeconds | None:
    if isinstance(value, PhaseSeconds):
        return value
    if not isinstance(value, Mapping):
        return _seconds(name, value, what, "a number of seconds, a mapping by phase or None")
    unknown = [phase for phase in value if phase not in PHASES]
    if unknown or not value:
        got = f"{unknown[0]!r}" if unknown else "an empty mapping"
        raise ValueError(f"{name} may have a number for each of {', '.join(PHASES)}, got {got}")
    return PhaseSeconds(
        **{phase: _seconds(f"{name}[{phase!r}]", value.get(phase, default), what) for phase in PHASES}
    )


def _seconds(name: str, value: object, what: str, takes: str = "a number of seconds or None") -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be {takes}, got {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"{name} must be a positive number of seconds, got {value!r}; use None to switch {what} off"
        )
    return float(value)


def _checked_path(journal: object) -> Path | None:
    if journal is None:
        return None
    if not isinstance(journal, str | os.PathLike) or isinstance(os.fspath(journal), bytes):
        raise TypeError(f"journal must be the path of a file or None, got {journal!r}")
    if not os.fspath(journal):
        raise ValueError("journal must be the path of a file, got an empty one; use None for no journal")
    return Path(journal).expanduser().absolute()  # the program may change its directory


def _checked_attributes(attributes: object) -> Mapping[str, str]:
    if not isinstance(attributes, Mapping):
        raise TypeError(f"attributes must map names to strings, got {attributes!r}")
    if len(attributes) > MAX_ATTRIBUTES:
        raise ValueError(
            f"attributes may have at most {MAX_ATTRIBUTES} entries, got {len(attributes)}; "
            "each one multiplies the number of time series"
        )
    for name, value in attributes.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"attribute names must be non-empty strings, got {name!r}")
        if not isinstance(value, str) or not value:
            raise ValueError(
                f"attribute {name!r} must be a non-empty string, got {value!r}; leave it out where it has no value"
            )
    return {valid_name(name): valid_name(value) for name, value in attributes.items()}


class Unset:
    """Stands for a keyword that was not given, so that the environment may decide."""

    def __repr__(self) -> str:
        return "<from the environment>"


UNSET: Final = Unset()

FREEZE_AFTER = "MIDSTREAM_FREEZE_AFTER_S"
STALL_TIMEOUT = "MIDSTREAM_STALL_TIMEOUT_S"
FIRST_CONTENT_TIMEOUT = "MIDSTREAM_FIRST_CONTENT_TIMEOUT_S"
ATTRIBUTES = "MIDSTREAM_ATTRIBUTES"
INCLUDE_USAGE = "MIDSTREAM_INCLUDE_USAGE"
JOURNAL = "MIDSTREAM_JOURNAL"
JOURNAL_MAX_MB = "MIDSTREAM_JOURNAL_MAX_MB"
JOURNAL_MAX_DAYS = "MIDSTREAM_JOURNAL_MAX_DAYS"
DISABLED = "MIDSTREAM_DISABLED"

_YES = {"1", "true", "yes", "on"}
_NO = {"", "0", "false", "no", "off"}


def settings_from(environ: Mapping[str, str], keywords: Mapping[str, Any]) -> Settings:
    """The checked settings. Raises ValueError or TypeError naming the keyword or variable, its value and the remedy."""
    values = {name: value for name, value in keywords.items() if value is not UNSET}
    for name, (variable, read) in _FROM_ENVIRONMENT.items():
        if name not in values and variable in environ:
            values[name] = read(variable, environ[variable])
    if values.get("attributes", {}) is None:
        del values["attributes"]
    settings = Settings(**values)
    for name in settings.attributes:
        if reserved(name):
            raise ValueError(
                f"attribute {name!r} would overwrite a label that the metrics have; give it another name"
            )
    return settings


def disabled(environ: Mapping[str, str]) -> bool:
    """Whether `MIDSTREAM_DISABLED` switches everything off. Raises ValueError if it says neither yes nor no."""
    return _flag(DISABLED, environ.get(DISABLED, ""))


def _number_of(unit: str) -> Callable[[str, str], float | None]:
    def read(variable: str, text: str) -> float | None:
        if text.strip().lower() in {"off", "none"}:
            return None
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0.0 < number < float("inf"):
            raise ValueError(f"{variable} must be a positive number of {unit} or 'off', got {text!r}")
        return number

    return read


def _by_phase(variable: str, text: str) -> float | dict[str, float | None] | None:
    if "=" not in text:
        return _number_of("seconds")(variable, text)
    pairs = _pairs(text)
    if pairs is None or not set(pairs) <= set(PHASES):
        raise ValueError(
            f"{variable} must look like '30' or 'text=30,reasoning=300,tool_call=120', got {text!r}"
        )
    return {phase: _number_of("seconds")(variable, value) for phase, value in pairs.items()}


def _path(_variable: str, text: str) -> str | None:
    return text.strip() or None


def _attributes(variable: str, text: str) -> dict[str, str]:
    pairs = _pairs(text)
    if pairs is None:
        raise ValueError(f"{variable} must look like 'team=search,app=web', got {text!r}")
    return pairs


def _pairs(text: str) -> dict[str, str] | None:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(sign and name.strip() and value.strip() for name, sign, value in pairs):
        return None
    return {name.strip(): value.strip() for name, _, value in pairs}


def _flag(variable: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise ValueError(f"{variable} must be 1 or 0, got {text!r}")
    return word in _YES


_FROM_ENVIRONMENT: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "freeze_after_s": (FREEZE_AFTER, _by_phase),
    "stall_timeout_s": (STALL_TIMEOUT, _by_phase),
    "first_content_timeout_s": (FIRST_CONTENT_TIMEOUT, _number_of("seconds")),
    "attributes": (ATTRIBUTES, _attributes),
    "include_usage": (INCLUDE_USAGE, _flag),
    "journal": (JOURNAL, _path),
    "journal_max_mb": (JOURNAL_MAX_MB, _number_of("megabytes")),
    "journal_max_days": (JOURNAL_MAX_DAYS, _number_of("days")),
}

VARIABLES_ALONE = ("journal_max_mb", "journal_max_days")
"""Settings that are no keywords: they belong to the operation of a program, not to its code."""
