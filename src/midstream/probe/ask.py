"""The request that a probe sends, and how it changes when a server does not know a part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from midstream.probe.plan import Api, Plan, Server
from midstream.probe.refusal import Refusal
from midstream.sources.address import shown

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types import Completion
    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import ResponseStreamEvent

    Stream: TypeAlias = (
        AsyncStream[ChatCompletionChunk] | AsyncStream[Completion] | AsyncStream[ResponseStreamEvent]
    )

_LIMITS = {Api.CHAT: "max_tokens", Api.COMPLETIONS: "max_tokens", Api.RESPONSES: "max_output_tokens"}
_NEWER_LIMIT = "max_completion_tokens"
_UNKNOWN = re.compile(
    r"max_completion_tokens|not (supported|permitted|allowed|recognized|valid)"
    r"|un(supported|known|recognized|expected)|extra|additional"
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, to the first of `base_urls`. `notes` say what was changed so far, and why."""

    base_urls: tuple[str, ...]
    api: Api
    model: str
    prompt: str
    limit: int
    limit_name: str
    usage: bool
    notes: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        """Where it is sent."""
        return self.base_urls[0]

    @property
    def extra(self) -> Mapping[str, object]:
        """The fields that not every server knows."""
        limit = {self.limit_name: self.limit}
        return {**limit, "stream_options": {"include_usage": True}} if self.usage else limit

    def adapted(self, refusal: Refusal) -> Ask | None:
        """Return what to ask instead after this refusal; None where there is nothing to change."""
        if refusal.is_elsewhere and len(self.base_urls) > 1 and self.model.lower() not in refusal.about:
            _, *others = self.base_urls
            note = (
                f"there is no {self.api.path} at {shown(self.base_url)}; asked at {shown(others[0])} instead"
            )
            return replace(self, base_urls=tuple(others), notes=(*self.notes, note))
        if refusal.status not in {400, 422}:
            return None
        if self.usage and re.search("stream_options|include_usage", refusal.about):
            note = "the server refuses stream_options; asked without, so that token counts may be missing"
            return replace(self, usage=False, notes=(*self.notes, note))
        if self.api is Api.CHAT and self.limit_name != _NEWER_LIMIT and _refuses_limit(refusal.about):
            note = f"the server refuses {self.limit_name}; asked with {_NEWER_LIMIT} instead"
            return replace(self, limit_name=_NEWER_LIMIT, notes=(*self.notes, note))
        return None


def first_ask(plan: Plan, server: Server) -> Ask:
    """Return the request in the words that most servers know."""
    return Ask(
        base_urls=server.base_urls,
        api=plan.api,
        model=server.model,
        prompt=plan.prompt,
        limit=plan.max_tokens,
        limit_name=_LIMITS[plan.api],
        usage=plan.api is not Api.RESPONSES,
    )


async def send(client: AsyncOpenAI, ask: Ask) -> Stream:
    """Send the request and return its stream once the server has answered."""
    if ask.api is Api.CHAT:
        return await client.chat.completions.create(
            model=ask.model,
            messages=[{"role": "user", "content": ask.prompt}],
            stream=True,
            extra_body=ask.extra,
        )
    if ask.api is Api.COMPLETIONS:
        return await client.completions.create(
            model=ask.model, prompt=ask.prompt, stream=True, extra_body=ask.extra
        )
    return await client.responses.create(model=ask.model, input=ask.prompt, stream=True, extra_body=ask.extra)


def _refuses_limit(about: str) -> bool:
    # A limit that is known but too large is named as well, and another name would not help.
    return "max_tokens" in about and _UNKNOWN.search(about) is not None
