"""From options and a file to settings, and the settings as a file that explains itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from midstream.cli.common.errors import CliError
from midstream.cli.common.yaml_files import load_yaml
from midstream.monitoring.alerts import Tuning

_ALERT_PARTS = {"severity", "for", "keep_firing_for", "enabled"}


def read_settings(path: Path | None) -> dict[str, Any]:
    """Read a configuration file; none is one without settings."""
    if path is None:
        return {}
    try:
        read = load_yaml(path)
    except FileNotFoundError:
        raise CliError(
            f"there is no file {path}; `midstream rules --settings` prints one to start from"
        ) from None
    if not isinstance(read or {}, dict):
        raise CliError(
            f"{path} must hold settings by name; `midstream rules --settings` prints one to start from"
        )
    return dict(read or {})


def with_assignments(settings: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Add what `--set NAME=VALUE` says; a name with a dot is a part of an alert."""
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        alert, dot, part = name.rpartition(".")
        if not equals or not name:
            raise CliError(f"{assignment!r} is not NAME=VALUE; write it as --set min_streams=50")
        if not dot:
            settings[name] = value
        elif part in _ALERT_PARTS:
            settings.setdefault("alerts", {}).setdefault(alert, {})[part] = value
        else:
            raise CliError(f"an alert has no {part}; it has {', '.join(sorted(_ALERT_PARTS))}")
    return settings


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """Read `NAME=VALUE` options."""
    read: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise CliError(f"{one!r} is not NAME=VALUE; write it as {option} team=llm")
        read[name] = value
    return read


def explained(tuning: Tuning) -> str:
    """Write settings as a configuration file, each with its reason."""
    lines = [
        "# Settings of `midstream rules --config FILE`. What is left out has the value shown by --settings."
    ]
    for one in dataclasses.fields(Tuning):
        lines += ["", f"# {one.metadata['why']}", f"{one.name}: {_written(getattr(tuning, one.name))}"]
        if one.name == "alerts":
            lines += [
                "# alerts:",
                "#   StreamFrozen: {severity: critical, for: 30s, keep_firing_for: 0s, labels: {team: llm}}",
                "#   StreamTailLong: {enabled: false}",
            ]
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        value = {
            key: {
                {"for_": "for"}.get(part, part): one
                for part, one in dataclasses.asdict(of).items()
                if one not in (None, {})
            }
            if dataclasses.is_dataclass(of) and not isinstance(of, type)
            else of
            for key, of in value.items()
        }
    return json.dumps(list(value) if isinstance(value, tuple) else value)  # all JSON is YAML
