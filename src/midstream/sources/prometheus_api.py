"""The client of a Prometheus-compatible API, for every command that asks one.

What it answers is checked here and comes out as values: labels that are texts, finite numbers, histograms whose buckets
are in order. What is none of it is a PrometheusError of one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from midstream._support.foreign import ForeignError, json_of, number
from midstream._support.sanitize import clean, valid_name
from midstream.sources.address import shown, url_of
from midstream.sources.fleet import Bucket, Histogram
from midstream.sources.http import Answer, Getter, UnreachableError

MOST_SERIES = 50_000
MOST_BUCKETS = 1000
"""In one histogram."""
LATEST = 1e11
"""Unix seconds; no sample is later."""


class PrometheusError(Exception):
    """The API gave no answer that can be used; the message is one sentence with the remedy."""


class QueryRefusedError(PrometheusError):
    """The API cannot evaluate the query. `reason` is its own message in brackets, or empty."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PrometheusSeries:
    """One series of a result: its samples by time, in Unix seconds. None is a value that is no finite number."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float | None], ...] = ()
    histograms: tuple[tuple[float, Histogram], ...] = ()


class PrometheusApi:
    """One API. `url` is what stands before `/api/v1`; it is checked at once: ValueError if it cannot be one."""

    def __init__(self, url: str, getter: Getter) -> None:
        self._base = re.sub(r"/api/v1(/query(_range)?)?$", "", url_of(url))
        self._getter = getter

    @property
    def url(self) -> str:
        """Its address, as it may be shown."""
        return shown(self._base)

    def names(self, match: str, since: float, until: float) -> frozenset[str]:
        """Return the names of all metrics that match. Raises PrometheusError."""
        found = self._get("label/__name__/values", {"match[]": match, "start": since, "end": until})
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self._foreign()
        return frozenset(found)

    def at(self, expression: str, moment: float) -> Sequence[PrometheusSeries]:
        """Evaluate an expression at one moment. Raises PrometheusError."""
        return self._result("query", {"query": expression, "time": moment})

    def over(self, expression: str, since: float, until: float, step: float) -> Sequence[PrometheusSeries]:
        """Evaluate an expression at every step. Raises PrometheusError."""
        asked = {"query": expression, "start": since, "end": until, "step": step}
        return self._result("query_range", asked)

    def has(self, expression: str) -> bool:
        """Return whether an expression such as `count(name)` has a result above 0. Raises PrometheusError."""
        # Posted, since the expression of a rule may be longer than a URL.
        data = self._read(self._send("query", post={"query": expression}))
        return any((value or 0.0) > 0 for series in self._series(data) for _, value in series.values)

    def passed_on(self, path: str, asked: Mapping[str, str]) -> str:
        """Return the answer to a query as it is, for a page that reads it itself. Raises PrometheusError."""
        return self._send(path, post=asked).text

    def _result(self, path: str, asked: Mapping[str, object]) -> Sequence[PrometheusSeries]:
        return self._series(self._get(path, asked))

    def _series(self, data: object) -> Sequence[PrometheusSeries]:
        result = data.get("result") if isinstance(data, Mapping) else None
        if not isinstance(result, list) or len(result) > MOST_SERIES:
            raise self._foreign()
        try:
            return [series_of(each) for each in result]
        except ForeignError:
            raise self._foreign() from None

    def _get(self, path: str, asked: Mapping[str, object]) -> object:
        # Thanos would otherwise answer with what it has, and note that in a warning.
        query = urlencode({**asked, "partial_response": "false"}, errors="replace")
        return self._read(self._send(f"{path}?{query}"))

    def _send(self, path: str, post: Mapping[str, str] | None = None) -> Answer:
        try:
            answer = self._getter.get(f"{self._base}/api/v1/{path}", post)
        except UnreachableError as error:
            raise PrometheusError(str(error)) from error
        if answer.status in (400, 422):
            raise QueryRefusedError(f"{self.url} {_refused(answer)}", answer.error_suffix)
        if answer.status != 200:
            raise PrometheusError(f"{self.url} {_refused(answer)}")
        return answer

    def _read(self, answer: Answer) -> object:
        try:
            body = json_of(answer.text, self._getter.redact)
        except ForeignError:
            raise self._foreign() from None
        if not isinstance(body, dict) or body.get("status", "success") != "success" or "data" not in body:
            raise self._foreign()
        if body.get("isPartial") or body.get("warnings"):
            warnings = body.get("warnings") or []
            said = "; ".join(
                clean(self._getter.redact(str(each)))
                for each in (warnings if isinstance(warnings, list) else [warnings])[:3]
            )
            raise PrometheusError(
                f"{self.url} has only a part of the data{f' ({said})' if said else ''}; ask again when all of its "
                "stores are up"
            )
        return body["data"]

    def _foreign(self) -> PrometheusError:
        return PrometheusError(f"{self.url} does not answer as a Prometheus does; give the address of one")


def series_of(found: object) -> PrometheusSeries:
    """Read a series. Raises ForeignError for what is none."""
    if not isinstance(found, dict) or not isinstance(found.get("metric"), dict):
        raise ForeignError("no series")
    labels = found["metric"]
    if not all(isinstance(value, str) for value in labels.values()):
        raise ForeignError("a label is no text")
    values = [_sample(each) for each in _samples(found, "value", "values")]
    histograms = [_sample(each) for each in _samples(found, "histogram", "histograms")]
    return PrometheusSeries(
        {name: valid_name(value) for name, value in labels.items()},
        tuple((moment, number(value)) for moment, value in values),
        tuple((moment, native_of(value)) for moment, value in histograms),
    )


def _samples(found: Mapping[str, object], one: str, several: str) -> list[object]:
    more = found.get(several, [])
    if not isinstance(more, list):
        raise ForeignError("no list of samples")
    return [*([found[one]] if one in found else []), *more]


def _sample(found: object) -> tuple[float, object]:
    if not isinstance(found, list) or len(found) != 2 or isinstance(found[0], str):
        raise ForeignError("no sample")
    moment = number(found[0], least=-LATEST, most=LATEST)
    if moment is None:
        raise ForeignError("no time")
    return moment, found[1]


def native_of(found: object) -> Histogram:
    """Read a native histogram, in the form that the API documents.

    It is `{"count", "sum", "buckets": [[rule, low, high, count], ...]}`; the rule tells which end belongs to the
    bucket, which no duration's precision can.
    """
    buckets = found.get("buckets", []) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(buckets, list) or len(buckets) > MOST_BUCKETS:
        raise ForeignError("no histogram")
    read = []
    for bucket in buckets:
        if not isinstance(bucket, list) or len(bucket) != 4:
            raise ForeignError("no bucket")
        # The bucket of zero reaches below it; what is counted here never does.
        made = bucket_of(bucket[1], bucket[2], bucket[3])
        if made is not None and made.count:
            read.append(made)
    return Histogram(tuple(sorted(read)), number(found.get("sum")))


def bucket_of(low: object, high: object, samples: object) -> Bucket | None:
    """Return a bucket of durations or counts, which are never below 0; None for one that is not in order, or no number.

    Its upper bound may be infinite.
    """
    least, most = number(low), _bound(high)
    counted = number(samples, least=0.0)
    if least is None or most is None or counted is None or most < max(0.0, least):
        return None
    return Bucket(max(0.0, least), most, counted)


def _bound(found: object) -> float | None:
    return float("inf") if found in ("+Inf", "Inf", "inf", "+inf") else number(found)


def _refused(answer: Answer) -> str:
    because = answer.error_suffix
    if answer.status in (401, 403):
        return (
            f"answers {answer.status}: it wants a token, in MIDSTREAM_PROMETHEUS_TOKEN, or a header such as "
            "X-Scope-OrgID, given with --header"
        )
    if answer.status == 404:
        return (
            "answers 404 to /api/v1: give the path before it, too, such as http://mimir/prometheus or "
            "http://vmselect:8481/select/0/prometheus"
        )
    if answer.status in (400, 422):
        wrong = "parse error" in answer.error_message
        remedy = (
            "see what is said with --where and --by" if wrong else "a shorter span of time needs less of it"
        )
        return f"cannot evaluate the query{because}; {remedy}"
    if answer.status in (429, 503, 504):
        return f"answers {answer.status}{because}: it is too busy; ask again, or for a shorter span of time"
    return f"answers {answer.status}{because}; see its log"
