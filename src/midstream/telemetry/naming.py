"""How servers write the names of metrics and attributes: the one translation from OpenTelemetry's names."""

from __future__ import annotations

from enum import Enum

from midstream.telemetry.instruments import Metric, prometheus_label, prometheus_name


class Naming(str, Enum):
    """The names of a scrape, or those of one of the translations of Prometheus' OTLP receiver."""

    PROMETHEUS = "prometheus"
    """A scrape, or UnderscoreEscapingWithSuffixes, the default: stream_max_gap_seconds."""
    WITHOUT_SUFFIXES = "without-suffixes"
    """UnderscoreEscapingWithoutSuffixes: stream_max_gap."""
    UTF8 = "utf8"
    """NoUTF8EscapingWithSuffixes: stream.max_gap_seconds. Needs Prometheus 3."""
    UNTRANSLATED = "untranslated"
    """NoTranslation: stream.max_gap. Needs Prometheus 3."""

    @property
    def dotted(self) -> bool:
        """Whether names keep their dots, and must be quoted in PromQL."""
        return self in (Naming.UTF8, Naming.UNTRANSLATED)

    def metric(self, metric: Metric) -> str:
        """Return a metric's name. A histogram's series add `_bucket`, `_sum` and `_count` to it."""
        if self is Naming.PROMETHEUS:
            return prometheus_name(metric)
        if self is Naming.UNTRANSLATED:
            return metric.name
        plain = metric.name.replace(".", "_")
        if self is Naming.WITHOUT_SUFFIXES:
            return plain
        return metric.name + prometheus_name(metric).removeprefix(plain)

    def label(self, attribute: str) -> str:
        """Return the name of an attribute."""
        return attribute if self.dotted else prometheus_label(attribute)
