"""Settings from keywords and from `MIDSTREAM_*` variables: keywords win, then the environment, then the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from midstream.stream.model import Settings
from midstream.telemetry.labels import reserved


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
