"""Finds out where a server's API is and which models it has, by asking for its list of models."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from openai import APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

from midstream._support.foreign import ForeignError, json_of
from midstream._support.sanitize import clean, valid_name
from midstream.probe.limits import IDENTITY, Limits
from midstream.probe.patience import GRACE_S
from midstream.probe.plan import Plan, ProbeError, Server
from midstream.probe.problems import unreachable
from midstream.probe.refusal import Refusal, Response, refusal_of, text_of
from midstream.probe.refused import unlisted
from midstream.sources.address import host_of, origin, shown
from midstream.sources.connection_errors import is_untrusted

if TYPE_CHECKING:
    from typing import Protocol

    class _Answered(Response, Protocol):
        @property
        def url(self) -> object: ...
        @property
        def history(self) -> Sequence[object]: ...


CONNECT_S = 10.0
"""How long a connection may take: a server that is there accepts at once, however busy it is."""

_NOT_FOR_TEXT = re.compile(
    r"embed|rerank|moderation|whisper|transcribe|tts|audio|realtime|image|dall-e|sora|babbage|davinci"
)


def open_client(plan: Plan) -> AsyncOpenAI:
    """Return a client that asks once and no more, so that the numbers are the server's own."""
    return AsyncOpenAI(
        api_key=plan.key or "none",
        base_url=plan.base_urls[0],
        max_retries=0,
        timeout=Timeout(plan.timeout_s, connect=min(CONNECT_S, plan.timeout_s)),
        default_headers=IDENTITY,
        http_client=DefaultAsyncHttpxClient(event_hooks={"response": [Limits(plan)]}),
    )


async def find_server(plan: Plan) -> Server:
    """Ask the plan's base URLs in turn. Raises ProbeError if none can be used."""
    async with open_client(plan) as client:
        try:
            return await _find(client, plan)
        except ProbeError as error:
            raise ProbeError(plan.secrets.redact(str(error))) from error


async def _find(client: AsyncOpenAI, plan: Plan) -> Server:
    refusals: dict[str, Refusal] = {}
    silent: dict[str, tuple[bool, str]] = {}
    for url in plan.base_urls:
        if origin(url) in silent:
            continue
        try:
            # The client's own timeout begins anew with each byte.
            found, answer = await asyncio.wait_for(_list_models(client, url), plan.timeout_s + GRACE_S)
        except Exception as exc:
            why = unreachable(exc, url, plan.timeout_s)
            if why is None:
                raise
            # When two schemes were tried, the one that came as far as a certificate was the right one.
            silent[origin(url)] = (not is_untrusted(exc), why)
            continue
        if isinstance(answer, tuple):
            models = tuple(map(plan.secrets.redact, answer))
            return Server((found,), models, plan.model or _pick(models, found))
        refusals[found] = answer
        if not answer.is_elsewhere:
            break
    if not refusals:
        raise ProbeError(min(silent.values(), key=lambda failure: failure[0])[1])
    if plan.model is None:
        url, refusal = next(iter(refusals.items()))
        raise ProbeError(unlisted(refusal, url, plan.key))
    # The list may be missing where the API is; what serves web pages is tried last.
    return Server(tuple(sorted(refusals, key=lambda url: refusals[url].is_html)), None, plan.model)


async def _list_models(client: AsyncOpenAI, url: str) -> tuple[str, tuple[str, ...] | Refusal]:
    """Return the base URL that answered, perhaps after a redirect, and its models or what it said instead."""
    response: _Answered
    try:
        response = (await client.with_options(base_url=url).models.with_raw_response.list()).http_response
    except APIStatusError as exc:
        response = exc.response
    found = _moved(url, response)
    names = _names(text_of(response)) if response.status_code == 200 else None
    return found, refusal_of(response) if names is None else names


def _moved(url: str, response: _Answered) -> str:
    final = str(response.url)
    if not response.history:
        return url
    if host_of(final) != host_of(url):
        raise ProbeError(
            f"{shown(url)} redirects to {clean(origin(final))}; probe that address instead, if it may have your key"
        )
    path = urlsplit(final).path.rstrip("/")
    return f"{origin(final)}{path.removesuffix('/models')}" if path.endswith("/models") else url


def _names(text: str) -> tuple[str, ...] | None:
    """Return the models in a list as OpenAI gives it, or in a bare list; None if it is neither."""
    try:
        body = json_of(text)
    except ForeignError:
        return None
    entries = body.get("data") if isinstance(body, dict) else body
    if not isinstance(entries, list):
        return None
    names = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return tuple(valid_name(name) for name in names if isinstance(name, str) and name)


def _pick(models: Sequence[str], url: str) -> str:
    """Return the first model whose name does not say that it is for something else than text."""
    if not models:
        raise ProbeError(f"{shown(url)} has no model; load one there, or name one with --model")
    return next((model for model in models if not _NOT_FOR_TEXT.search(model.lower())), models[0])
