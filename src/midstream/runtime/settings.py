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
from midstream.telemetry.labels import reserved

Hook: TypeAlias = Callable[[Freeze], object]
EndHook: TypeAlias = Callable[[StreamRecord], object]

MAX_ATTRIBUTES = 8
"""Each attribute multiplies the number of time series, so they are few."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked arguments of `monitor()`. Raises ValueError or TypeError naming the value and the remedy."""

    freeze_after_s: float | None = FREEZE_AFTER_S
    on_freeze: Hook | None = None
    on_thaw: Hook | None = None
    on_end: EndHook | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    include_usage: bool = False
    journal: Path | None = None
    journal_max_mb: float | None = 100.0
    journal_max_days: float | None = 30.0

    def __post_init__(self) -> None:
        after = self.freeze_after_s
        if after is not None:
            if isinstance(after, bool) or not isinstance(after, int | float):
                raise TypeError(f"freeze_after_s must be a number of seconds or None, got {after!r}")
            if not (math.isfinite(after) and after > 0):
                raise ValueError(
                    f"freeze_after_s must be a positive number of seconds, got {after!r}; "
                    "use None to switch freezes off"
                )
            object.__setattr__(self, "freeze_after_s", float(after))
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


def _path(_variable: str, text: str) -> str | None:
    return text.strip() or None


def _attributes(variable: str, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(sign and name.strip() and value.strip() for name, sign, value in pairs):
        raise ValueError(f"{variable} must look like 'team=search,app=web', got {text!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _flag(variable: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise ValueError(f"{variable} must be 1 or 0, got {text!r}")
    return word in _YES


_FROM_ENVIRONMENT: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "freeze_after_s": (FREEZE_AFTER, _number_of("seconds")),
    "attributes": (ATTRIBUTES, _attributes),
    "include_usage": (INCLUDE_USAGE, _flag),
    "journal": (JOURNAL, _path),
    "journal_max_mb": (JOURNAL_MAX_MB, _number_of("megabytes")),
    "journal_max_days": (JOURNAL_MAX_DAYS, _number_of("days")),
}

VARIABLES_ALONE = ("journal_max_mb", "journal_max_days")
"""Settings that are no keywords: they belong to whoever runs the program, not to its code."""
