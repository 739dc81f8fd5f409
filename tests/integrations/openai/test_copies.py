"""`copy.copy()` of clients: we do not change what it does, and a copy is monitored as its original is."""

from __future__ import annotations

import asyncio
import copy
import copyreg
import gc
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from midstream.testing import DONE, ManualClock, Script, collect, finish, scripted, scripted_async, text
from support.harness import ASK, settled

KINDS = ["sync", "async"]
FRAMES: Script = [(1.0, text("a")), (1.0, finish()), (1.0, DONE)]


class Slotted(OpenAI):
    __slots__ = ("tenant",)
    tenant: str


class Reduced(OpenAI):
    def __reduce_ex__(self, protocol: Any) -> str:
        return "a global name"


class Stated(OpenAI):
    def __getstate__(self) -> Any:
        return {**self.__dict__, "copied": True}


class Restored(OpenAI):
    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self.restored = True


class Registered(OpenAI):
    via = "class"


class Asking(OpenAI):
    def __copy__(self) -> Any:
        return super().__copy__() if hasattr(super(), "__copy__") else "no __copy__ above"  # type: ignore[misc]


def made_again(_client: Registered) -> Any:
    return dict, ((("made", "by copyreg"),),)


def described(made: Any) -> Any:
    names = ("tenant", "copied", "restored", "via")
    return type(made).__name__, made if isinstance(made, str | dict) else {
        n: getattr(made, n, None) for n in names
    }


def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setitem(copyreg.dispatch_table, Registered, made_again)
    slotted = Slotted(api_key="k")
    slotted.tenant = "acme"
    clients = [
        slotted,
        *(kind(api_key="k") for kind in (Reduced, Stated, Restored, Registered, Asking, OpenAI)),
    ]
    return [described(copy.copy(client)) for client in clients]


def test_copy_of_any_client_is_what_it_is_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots, string reductions, own states and copyreg; and nobody finds a `__copy__` that the SDK does not have."""
    before = copies(monkeypatch)
    clock = ManualClock()
    monitored = OpenAI(api_key="none", http_client=scripted(FRAMES, clock))
    collect(monitored, clock=clock)

    assert copies(monkeypatch) == before
    assert before[0] == ("Slotted", {"tenant": "acme", "copied": None, "restored": None, "via": None})
    assert before[1][0] == "Reduced"
    assert before[4] == ("dict", {"made": "by copyreg"})
    assert before[5] == ("str", "no __copy__ above")
    assert not hasattr(openai.OpenAI, "__copy__")


def a_client(kind: str, clock: ManualClock, http: Any = None, **more: Any) -> Any:
    if kind == "sync":
        return OpenAI(api_key="none", http_client=http or scripted(FRAMES, clock), **more)
    return AsyncOpenAI(api_key="none", http_client=http or scripted_async(FRAMES, clock), **more)


async def ask(client: Any) -> None:
    stream = await settled(client.chat.completions.create(**ASK, stream=True))
    if hasattr(stream, "__aiter__"):
        async for _ in stream:
            pass
    else:
        for _ in stream:
            pass


@pytest.mark.parametrize("kind", KINDS)
def test_copy_is_monitored_and_a_client_that_shares_its_connections_is_not(kind: str) -> None:
    """A copy, a copy of a copy, and a client derived from a copy; another client of the same HTTP client is its own."""
    clock = ManualClock()
    original = a_client(kind, clock)
    url = str(original.base_url)
    seen = collect(original, clock=clock)
    twin = copy.copy(original)
    other = a_client(kind, clock, original._client, base_url=url)

    asyncio.run(ask(twin))
    asyncio.run(ask(copy.copy(twin)))
    asyncio.run(ask(copy.copy(twin.with_options(timeout=3))))
    assert len(seen.records) == 3
    asyncio.run(ask(other))
    assert len(seen.records) == 3

    del original  # the copy lives on, and so does its monitor
    gc.collect()
    asyncio.run(ask(twin))
    assert len(seen.records) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_monitor_of_a_client_counts_for_its_copies(kind: str) -> None:
    """Settings that are replaced are replaced for them, too."""
    clock = ManualClock()
    original = a_client(kind, clock)
    first = collect(original, clock=clock)
    twin = copy.copy(original)
    second = collect(original, clock=clock)

    asyncio.run(ask(twin))

    assert (len(first.records), len(second.records)) == (0, 1)
