"""`copy.copy()` of clients: we do not change what it does, and a copy is monitored as its original is."""

from __future__ import annotations

import asyncio
import copy
import copyreg
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from midstream.integrations.openai import calls as sdk_calls
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


SHARED: dict[str, Any] = {"default_headers": {"x-team": "a"}, "default_query": {"v": "1"}}
"""What a client hands on to the clients that are derived from it, the very same objects."""
Derive = Callable[[Any], Any]
DERIVED: dict[str, Derive] = {
    "with_options": lambda client: client.with_options(max_retries=1),
    "with_options of nothing": lambda client: client.with_options(),
    "copy": lambda client: client.copy(timeout=9.0),
    "copy.copy": copy.copy,
}


@pytest.mark.parametrize("more", [{}, SHARED], ids=["plain", "shared headers"])
@pytest.mark.parametrize("made", DERIVED)
@pytest.mark.parametrize("kind", KINDS)
def test_monitor_of_a_copy_counts_for_it_and_what_is_made_of_it(
    kind: str, made: str, more: dict[str, Any]
) -> None:
    """Not for the client that it was made of, nor for that one's other copies, made before or after."""
    clock, derive = ManualClock(), DERIVED[made]
    parent = a_client(kind, clock, **more)
    elder, child = derive(parent), derive(parent)
    seen = collect(child, clock=clock)
    others = [
        parent,
        elder,
        *(derive(parent) for derive in DERIVED.values()),
        derive(elder),
        copy.copy(elder),
    ]
    family = [child, *(derive(child) for derive in DERIVED.values())]
    family += [derive(each) for each in family[1:] for derive in DERIVED.values()]

    for client in others:
        asyncio.run(asked_directly(client))
    assert list(seen.records) == []
    for client in family:
        asyncio.run(asked_directly(client))
    assert len(seen.records) == len(family)


@pytest.mark.parametrize("kind", KINDS)
def test_each_member_of_a_family_keeps_its_own_monitor(kind: str) -> None:
    """Parent, child and grandchild with a monitor each: what is made of one has the monitor of that one."""
    clock = ManualClock()
    parent = a_client(kind, clock, **SHARED)
    child = parent.with_options(max_retries=1)
    grandchild = copy.copy(child)
    seen = [collect(client, clock=clock) for client in (grandchild, parent, child)]
    made = [derive(client) for client in (grandchild, parent, child) for derive in DERIVED.values()]

    for client in [grandchild, parent, child, *made]:
        asyncio.run(asked_directly(client))

    assert [len(each.records) for each in seen] == [5, 5, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_is_given_the_url_of_another_is_not_its_copy(kind: str) -> None:
    """Newer SDKs keep the URL object that they are given."""
    clock = ManualClock()
    original = a_client(kind, clock)
    early = a_client(kind, clock, base_url=original.base_url)
    seen = collect(original, clock=clock)
    late = a_client(kind, clock, base_url=original.base_url, default_headers={"x-team": "a"})

    for client in (early, late):
        asyncio.run(asked_directly(client))
    assert list(seen.records) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_offers_for_raw_responses_is_the_client_itself(kind: str) -> None:
    """`with_raw_response` and `with_streaming_response` of a copy are those of the copy."""
    clock = ManualClock()
    parent = a_client(kind, clock)
    child = parent.with_options(max_retries=1)
    seen = collect(child, clock=clock)

    async def raw(client: Any) -> None:
        response = await settled(client.with_raw_response.chat.completions.create(**ASK, stream=True))
        stream = await settled(response.parse())
        if kind == "sync":
            assert len(list(stream)) == 2
        else:
            assert len([chunk async for chunk in stream]) == 2

    asyncio.run(raw(parent))
    assert list(seen.records) == []
    asyncio.run(raw(child))
    assert len(seen.records) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_monitored_clients_that_are_gone_leave_nothing_behind(kind: str) -> None:
    """Neither a client nor its copies are kept alive, nor is their place in the list."""
    clock = ManualClock()
    clients, http = (
        sdk_calls.clients,
        scripted(FRAMES, clock) if kind == "sync" else scripted_async(FRAMES, clock),
    )
    gc.collect()
    before = len(clients._monitors), len(clients._originals)
    for _ in range(5):
        original = a_client(kind, clock, http)
        collect(original, clock=clock)
        made = [derive(original) for derive in DERIVED.values()]
    del original, made
    gc.collect()

    assert (len(clients._monitors), len(clients._originals)) == before


async def asked_directly(client: Any) -> None:
    """Ask through this client, also where the SDK's older `client.chat` of a copy is that of its original."""
    await ask(SimpleNamespace(chat=type(client.chat)(client)))
