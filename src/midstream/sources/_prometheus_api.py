"""Asks a Prometheus-compatible API, and says in one sentence why there is no answer that can be used."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlencode

from midstream._support.sanitize import clean
from midstream.sources.address import shown, url_of
from midstream.sources.http import Answer, Getter, UnreachableError

Series: TypeAlias = Mapping[str, Any]
"""One series of a result: `metric`, and `value` or `values`, or for native histograms `histogram` or `histograms`."""


class PrometheusError(Exception):
    """The API gave no answer that can be used; the message is one sentence with the remedy."""


class Api:
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
        if not isinstance(found, list):
            raise self._foreign()
        return frozenset(map(str, found))

    def at(self, expression: str, moment: float) -> Sequence[Series]:
        """Evaluate an expression at one moment. Raises PrometheusError."""
        return self._result("query", {"query": expression, "time": moment})

    def over(self, expression: str, since: float, until: float, step: float) -> Sequence[Series]:
        """Evaluate an expression at every step. Raises PrometheusError."""
        asked = {"query": expression, "start": since, "end": until, "step": step}
        return self._result("query_range", asked)

    def _result(self, path: str, asked: Mapping[str, object]) -> Sequence[Series]:
        data = self._get(path, asked)
        result = data.get("result") if isinstance(data, Mapping) else None
        if not isinstance(result, list) or not all(map(_is_series, result)):
            raise self._foreign()
        return result

    def _get(self, path: str, asked: Mapping[str, object]) -> object:
        # Thanos would otherwise answer with what it has, and say so in a warning.
        query = urlencode({**asked, "partial_response": "false"})
        try:
            answer = self._getter.get(f"{self._base}/api/v1/{path}?{query}")
        except UnreachableError as error:
            raise PrometheusError(str(error)) from error
        if answer.status != 200:
            raise PrometheusError(f"{self.url} {_refused(answer)}")
        body = _json(answer.text)
        if body is None or body.get("status") != "success" or "data" not in body:
            raise self._foreign()
        if body.get("isPartial") or body.get("warnings"):
            warnings = body.get("warnings") or []
            said = "; ".join(
                clean(str(each)) for each in (warnings if isinstance(warnings, list) else [warnings])
            )
            raise PrometheusError(
                f"{self.url} has only a part of the data{f' ({said})' if said else ''}; ask again when all of its "
                "stores are up"
            )
        return body["data"]

    def _foreign(self) -> PrometheusError:
        return PrometheusError(f"{self.url} does not answer as a Prometheus does; give the address of one")


def _is_series(found: object) -> bool:
    """Whether this has the outline of a series. What its samples are worth is read later."""
    if not isinstance(found, dict) or not isinstance(found.get("metric"), dict):
        return False
    if not all(isinstance(value, str) for value in found["metric"].values()):
        return False
    samples = [found[one] for one in ("value", "histogram") if one in found]
    for several in ("values", "histograms"):
        more = found.get(several, [])
        if not isinstance(more, list):
            return False
        samples += more
    return all(
        isinstance(sample, list) and len(sample) == 2 and isinstance(sample[0], int | float)
        for sample in samples
    )


def _json(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refused(answer: Answer) -> str:
    because = answer.because
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
        wrong = "parse error" in answer.complaint
        remedy = (
            "see what is said with --where and --by" if wrong else "a shorter span of time needs less of it"
        )
        return f"cannot evaluate the query{because}; {remedy}"
    if answer.status in (429, 503, 504):
        return f"answers {answer.status}{because}: it is too busy; ask again, or for a shorter span of time"
    return f"answers {answer.status}{because}; see its log"
