"""Why a server refused to stream, or to list its models, in one sentence: what, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from midstream._support.sanitize import clean
from midstream.probe.refusal import Refusal
from midstream.sources.address import shown

LISTED = 8
"""How many of a server's models are named."""


def refused(
    refusal: Refusal, url: str, path: str, model: str, *, models: Sequence[str] | None, key: str | None
) -> str:
    """Return why a request for this model, to this path of the server at `url`, was not answered with a stream."""
    where = shown(url)
    if _lacks_model(refusal, model, models):
        has = f"it has {enumerated(models)}" if models else "name another with --model"
        return f"there is no model {clean(model)} at {where}; {has}"
    if refusal.status in {404, 405} and not refusal.is_html:
        return f"{where}{path} is not served{_said(refusal, key)}; try another --api, or check the URL"
    if refusal.status in {400, 422}:
        return f"{where} refuses the request{_said(refusal, key)}; see --model, --max-tokens and --api"
    return denied(refusal, where, key) or _unexpected(refusal, where, key)


def unlisted(refusal: Refusal, url: str, key: str | None) -> str:
    """Say why the server's models are not known, where they have to be."""
    where = shown(url)
    if refusal.status in {404, 405, 501} and not refusal.is_html:
        return (
            f"{where} has no list of models ({refusal.status}); check the URL, or name a model with --model"
        )
    return denied(refusal, where, key) or _unexpected(refusal, where, key)


def denied(refusal: Refusal, where: str, key: str | None) -> str | None:
    """Return what the status alone explains."""
    said = _said(refusal, key)
    if refusal.is_html:
        return f"{where} answers with a web page ({refusal.status}), not with an API; check the URL"
    if refusal.status == 401 and key is None:
        return f"{where} wants a key{said}; set OPENAI_API_KEY"
    if refusal.status == 401:
        return f"{where} does not accept the key in OPENAI_API_KEY{said}; set it to a valid one"
    if refusal.status == 403:
        return f"{where} denies access{said}; set OPENAI_API_KEY to a key that has it"
    if refusal.status == 429:
        return f"{where} takes no more requests now{said}; wait, or lower --count and --concurrency"
    if refusal.status == 503:
        return f"{where} is not available{said}; wait until the server is up and has room"
    if refusal.status >= 500:
        return f"{where} fails{said}; see the server's log"
    return None


def enumerated(models: Sequence[str]) -> str:
    """Name the models, or the first of them and how many more there are."""
    names = [clean(model) for model in models[:LISTED]]
    if len(models) > LISTED:
        return f"{', '.join(names)} and {len(models) - LISTED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _lacks_model(refusal: Refusal, model: str, models: Sequence[str] | None) -> bool:
    if refusal.is_html or refusal.status not in {400, 404, 422}:
        return False
    if models is None:
        return "model_not_found" in refusal.about or model.lower() in refusal.about
    return model not in models and "model" in refusal.about


def _unexpected(refusal: Refusal, where: str, key: str | None) -> str:
    return f"{where} does not answer as an OpenAI-compatible server does{_said(refusal, key)}; check the URL"


def _said(refusal: Refusal, key: str | None) -> str:
    message = clean(refusal.message, key).rstrip(".")
    return f" ({refusal.status}: {message})" if message else f" ({refusal.status})"
