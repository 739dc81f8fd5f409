"""Reads a server's own `/metrics` page: which engine it is, what runs and waits, and how full its memory is.

    view = view_of(text, content_type)
    view.engine, view.running.value, view.pool_tokens.value

Pure: the page is an argument, and `scrape` gets it. A number that cannot be read is None with the reason, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from midstream.engines import ENGINES, EngineFacts, titles
from midstream.engines.page import MetricReading, MetricsPage
from midstream.sources._server_view import ServerView, view_of_readings
from midstream.sources.page import PageError, page_of

__all__ = ["ENGINES", "MetricReading", "NothingYetError", "PageError", "ServerView", "view_of"]


class NothingYetError(PageError):
    """The page is one of metrics, and holds none."""


_START = "process_start_time_seconds"
_OTHERS: Mapping[str, str] = {
    "litellm_": "the page of a LiteLLM proxy; give the address of the engine behind it",
    "stream_max_gap": "midstream's own page, of a client; give the address of the server",
    "prometheus_tsdb_": "Prometheus' own page; give the address of the model's server",
    "node_": "the page of a node exporter; give the address of the model's server",
    "DCGM_": "the page of a GPU exporter; give the address of the model's server",
    "envoy_": "the page of a proxy; give the address of the engine behind it",
    "nginx_": "the page of a proxy; give the address of the engine behind it",
    "ray_": "a page of Ray without metrics of an engine; set log_engine_metrics, or give the engine's own /metrics",
}
"""What else may answer at an address that was taken for an engine's."""


def view_of(
    text: str, content_type: str = "", *, engine: str | None = None, deadline: float | None = None
) -> ServerView:
    """Read a page. `engine` is a key of ENGINES: which one is meant where the page names none, or several.

    TensorRT-LLM's list of iterations in JSON is read, too. Raises PageError if this is no page of an engine that
    is known, or of several at once, or not read by the `deadline` (of `time.monotonic`); NothingYetError if it holds
    nothing at all.
    """
    start = text[:1000].lstrip()[:200].lower()
    if start.startswith(("<!doctype", "<html", "<?xml")) or "text/html" in content_type:
        raise PageError("a web page and not metrics; check host, port and path")
    if start.startswith(("[", "{")):
        for facts in ENGINES.values():
            readings = facts.read_json(text) if facts.read_json is not None else None
            if readings is not None:
                return view_of_readings(facts, readings)
        raise PageError("JSON, but not the iterations that TensorRT-LLM returns at /metrics")
    prefixes = {prefix for facts in ENGINES.values() for prefix in (*facts.prefixes, *facts.renamed)}
    page = page_of(text, content_type, prefixes=(*sorted(prefixes), _START), deadline=deadline)
    found = [facts for facts in ENGINES.values() if facts.owns(page)]
    if len(found) == 1:
        return _view(found[0], page)
    if engine is not None:
        return _view(ENGINES[engine], page)
    if found:
        titles = " and ".join(facts.title for facts in found)
        raise PageError(f"the page of {titles} at once; say with --engine which of them is meant")
    raise _unknown(page)


def _unknown(page: MetricsPage) -> PageError:
    if not page.samples and not page.others:
        return NothingYetError(
            "a page without any metric; SGLang's is so until its first request: send one, or say with --engine "
            "which engine it is"
        )
    what = next((what for prefix, what in _OTHERS.items() if page.has(prefix)), None)
    return PageError(
        what
        or f"a page of metrics, but none of {titles()}; vLLM shows none of its own with --disable-log-stats"
    )


def _view(facts: EngineFacts, page: MetricsPage) -> ServerView:
    prefixes = (*facts.prefixes, *facts.renamed)
    models = {
        sample.labels[label]
        for name, samples in page.samples.items()
        if name.startswith(prefixes)
        for sample in samples
        for label in ("model_name", "model")
        if sample.labels.get(label)
    }
    started = page.named(_START)
    readings = facts.read(page)
    usage = readings.kv_usage.value
    if usage is not None and usage > 1.01:
        why = f"it reports that {usage:g} of its KV cache is in use, which is impossible"
        readings = replace(readings, kv_usage=MetricReading(None, why))
    return view_of_readings(facts, readings, tuple(sorted(models)), started[0].value if started else None)
