"""Every number, window and label of the rules, each with its reason, and where the reason comes from."""
# ruff: noqa: E501, RUF009 - a table with one setting a line; `_set` makes a field

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from midstream.monitoring.alerts._duration import seconds
from midstream.telemetry.instruments import ADDRESS, MODEL, PORT
from midstream.telemetry.naming import Naming

ANY = "*"
"""In overrides: every alert that has none of its own."""


class TuningError(ValueError):
    """A setting that cannot be; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Override:
    """What to change in one alert; None leaves it as it is."""

    severity: str | None = None
    for_: str | None = None
    keep_firing_for: str | None = None
    enabled: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def _set(default: Any, why: str) -> Any:
    if isinstance(default, dict):
        return field(default_factory=lambda: default, metadata={"why": why})
    return field(default=default, metadata={"why": why})


# fmt: off
@dataclass(frozen=True)
class Tuning:
    """The settings of the rules. Sources are named in brackets; what has none is a choice of ours."""

    naming: Naming = _set(Naming.PROMETHEUS, "How the server writes OTel's names: as a scrape or OTLP by default do.")
    selector: str = _set("", 'Matchers for our metrics, such as job="app".')
    server_selector: str = _set("", 'Matchers for the metrics of the engines, such as namespace="llm".')
    by: tuple[str, ...] = _set(("job", MODEL, ADDRESS, PORT), "One alert for each of these: the one who must act differs.")
    server_by: tuple[str, ...] = _set(("job", "instance", "model_name"), "The same for the engines' own metrics.")
    labels: Mapping[str, str] = _set({}, "Labels for every alert, such as team: llm.")
    interval: str = _set("", "How often to evaluate; nothing: as the server does by default.")
    runbook_url: str = _set("docs/runbook.md", "Where the runbook is: an alert adds # and its name.")
    dashboard_url: str = _set("", "Grafana's base URL, such as https://grafana.example; without it alerts link to no dashboard.")
    join_on_model: bool = _set(True, "Blame an engine only for freezes of the model that it serves. False where a proxy renames models.")

    window: str = _set("10m", "Long enough for twenty streams where people watch, short enough to act.")
    traffic_window: str = _set("3m", "A rule about streams that ended is silent when none ended for this long and none is open.")
    min_streams: int = _set(20, "With fewer in the window one stream is more than 5 %, and a share is not meaningful [python-discord/kubernetes#75].")

    frozen_streams: int = _set(1, "Frozen at the same time, for as long as the alert waits.")
    frozen_share: float = _set(0.5, "Frozen of those that are open: the server as a whole is stuck [vllm-project/vllm#15996].")
    frozen_share_streams: int = _set(3, "So many must be frozen before a share of them means the server.")
    open_gap_s: float = _set(60.0, "Readers do not wait a minute in mid-sentence; the SDK gives up only after 600 s [openai-python].")
    gap_p99_s: float = _set(10.0, "One in a hundred answers stops for as long as attention lasts [Nielsen: 10 s]. A bucket's bound.")
    freeze_s: float = _set(5.0, "The gap that the objective forbids: midstream's own threshold. A bucket's bound.")
    objective: float = _set(99.5, "Percent of streams without a freeze, over 30 days.")
    freeze_share: float = _set(0.05, "One in twenty: users talk about it.")
    freezes: int = _set(5, "In `rising_window`: fewer are single events.")
    freezes_factor: float = _set(3.0, "So many times as at the same hour yesterday.")
    rising_window: str = _set("30m", "Compared with the same window `baseline` ago.")
    baseline: str = _set("1d", "What is usual: the same hour yesterday, as load follows the day.")
    stall_timeouts: int = _set(5, "In `window`: answers that the stall timeout ended. One is an accident, five are a server.")
    hidden_freezes: int = _set(5, "In `window`: gaps that a busy caller did not wait for.")

    length_share: float = _set(0.05, "Answers cut off by the limit. Depends on the work: below 0.1 % if limits were set from p99.9.")
    limit_hit_share: float = _set(0.05, "The same by token counts, which also sees truncated tool calls [vllm-project/vllm#53269].")
    limit_used_p99: float = _set(0.1, "99 % of answers use no more of max_tokens: ten times too large. A bucket's bound.")
    limit_window: str = _set("1d", "Lengths differ between day and night.")
    limit_min_streams: int = _set(200, "A p99 of fewer is one or two answers.")
    first_content_p95_s: float = _set(10.0, "Engines that reserve memory make requests wait here. A bucket's bound.")
    no_finish_share: float = _set(0.05, "Ends without a finish reason: cut, and the SDK does not report it.")
    never_finishes_share: float = _set(0.95, "Past this over `baseline` the server never sends one [pydantic/pydantic-ai#6610].")
    error_share: float = _set(0.05, "One in twenty.")
    timeout_share: float = _set(0.02, "Each one cost its user the whole timeout.")
    empty_share: float = _set(0.02, "A 200 without a single chunk: HTML, or JSON instead of a stream [mistral-vibe#619].")
    usage_missing_share: float = _set(0.2, "Without usage there are no lengths to set limits from.")
    buffered_share: float = _set(0.2, "Behind a proxy that buffers, gaps are blind [ggml-org/llama.cpp#20872].")
    tail_s: float = _set(10.0, "After the finish reason there is nothing to wait for [earendil-works/pi#7959]. A bucket's bound.")
    tail_share: float = _set(0.05, "One in twenty.")

    expect_jobs: tuple[str, ...] = _set((), "Jobs that always have traffic: alert when their metrics or streams are missing.")
    silence: str = _set("15m", "How long such a job may have no stream.")
    traffic_streams: int = _set(20, "Streams in `rising_window`, yesterday and a week ago, that make traffic expected now.")

    preemptions: int = _set(5, "In `window`: near zero is right [published: rate of preemptions near zero].")
    freezes_with_preemptions: int = _set(1, "Freezes in `window`: with preemptions beside them they may be the cause.")
    kv_low: float = _set(0.5, "KV cache in use for 95 % of `kv_window` stays below: the cap is too low, or there is no traffic.")
    kv_waiting: float = _set(1.0, "Requests waiting on average of `window`, and more than on average of `kv_window`.")
    kv_window: str = _set("1h", "Long enough to be a habit.")

    alerts: Mapping[str, Override] = _set({}, "Changes to single alerts; * is all of them.")
# fmt: on

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            _check(one.name, getattr(self, one.name))
        if not 0 < self.objective < 100:
            raise TuningError(f"objective is {self.objective:g}; give percent, such as 99.5")


_DURATIONS = {"window", "traffic_window", "rising_window", "baseline", "limit_window", "silence", "kv_window"}
_SELECTORS = {"selector", "server_selector"}
_MATCHER = r"""("[^"\n]+"|[a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*("(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'|`[^`]*`)"""
_MATCHERS = re.compile(rf"\s*({_MATCHER}\s*(,\s*{_MATCHER}\s*)*,?\s*)?")
_NOT_ABOVE_ONE = {"kv_low", "limit_used_p99"}


def _check(name: str, value: Any) -> None:
    if name in _DURATIONS or (name == "interval" and value):
        _duration(name, value)
    elif isinstance(value, float | int) and not isinstance(value, bool):
        if not (math.isfinite(value) and value > 0):
            raise TuningError(f"{name} is {value}; it must be a positive number")
        if (name.endswith("_share") or name in _NOT_ABOVE_ONE) and value > 1:
            raise TuningError(f"{name} is {value:g}; it is a share, such as 0.05 for 5 %")
    elif name == "alerts":
        for alert, override in value.items():
            for part, duration in (("for", override.for_), ("keep_firing_for", override.keep_firing_for)):
                if duration is not None:
                    _duration(f"{alert}.{part}", duration)
    elif name in _SELECTORS and not _MATCHERS.fullmatch(value):
        raise TuningError(
            f'{name} is {value}, which is no list of matchers such as job="app"; in a shell, put single quotes around it'
        )
    elif name in ("by", "server_by") and not value:
        raise TuningError(f"{name} is empty; name at least one label, such as job")


def _duration(name: str, value: str) -> None:
    try:
        long = seconds(value)
    except ValueError as error:
        raise TuningError(f"{name}: {error}") from None
    if name in _DURATIONS and long <= 0:
        raise TuningError(f"{name} is {value}; a window must have a length")


def tuning_of(given: Mapping[str, Any]) -> Tuning:
    """Return the settings that a configuration describes: the fields of `Tuning`, in words.

    Raises TuningError for what is unknown or of another type.
    """
    fields = {one.name: one for one in dataclasses.fields(Tuning)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in fields:
            raise TuningError(f"there is no setting {name}; `midstream rules --settings` lists them")
        values[name] = _read(name, value, getattr(Tuning, name, {}))
    return Tuning(**values)


def _read(name: str, value: Any, default: Any) -> Any:
    try:
        if name == "alerts":
            return {alert: _override(alert, parts) for alert, parts in value.items()}
        if isinstance(default, Naming):
            return Naming(value)
        if isinstance(default, bool):
            return _bool(value)
        if isinstance(default, tuple):
            return tuple(value.split(",")) if isinstance(value, str) else tuple(map(str, value))
        if isinstance(default, int | float):
            return type(default)(value)
        return _labels(value) if name == "labels" else str(value)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, TuningError):
            raise
        raise TuningError(f"{name} cannot be {value!r}; its default is {default!r}") from None


_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def _labels(given: Mapping[Any, Any]) -> dict[str, str]:
    """Return labels by name. Raises TuningError for a name that Prometheus does not take."""
    for name in given:
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise TuningError(
                f"{str(name)!r} is not the name of a label; it takes letters, digits and _, and begins with no digit"
            )
    return {name: str(value) for name, value in given.items()}


def _bool(value: Any) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]


_PARTS = {"severity", "for", "keep_firing_for", "enabled", "labels"}


def _override(alert: str, parts: Mapping[str, Any]) -> Override:
    unknown = set(parts) - _PARTS
    if unknown:
        raise TuningError(f"{alert} has no {min(unknown)}; it has {', '.join(sorted(_PARTS))}")
    optional = {name: None if parts.get(name) is None else str(parts[name]) for name in _PARTS}
    return Override(
        severity=optional["severity"],
        for_=optional["for"],
        keep_firing_for=optional["keep_firing_for"],
        enabled=None if parts.get("enabled") is None else _bool(parts["enabled"]),
        labels=_labels(parts.get("labels", {})),
    )
