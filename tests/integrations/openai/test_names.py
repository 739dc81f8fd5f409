"""Names of others, in requests and responses: plain strings, valid Unicode, without control characters, short."""

from __future__ import annotations

import asyncio
import enum
import json
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from midstream.testing import DONE, ManualClock, Script, chunk, finish, text
from support.harness import a_client, settled

KINDS = ["sync", "async"]


class Model(str, enum.Enum):
    BIG = "big-model"


class Name(str):
    """A string of somebody's own, which prints as something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "printed"

    def __format__(self, spec: str) -> str:
        return "formatted"


ANSWER: Script = [(1, text("a")), (1, finish()), (1, DONE)]
NAMES = [
    (Model.BIG, "big-model"),
    (Name("own-model"), "own-model"),
    ("plain", "plain"),
    ("a" * 1_000_000, "a" * 256),
    ("line\nbreak\x1b[31m\x00", "line break\ufffd[31m\ufffd"),
    ("é 日本 🎉", "é 日本 🎉"),
]


def labels(reader: InMemoryMetricReader) -> set[Any]:
    data: Any = reader.get_metrics_data()
    return {
        (type(value).__name__, value)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        for name, value in point.attributes.items()
        if name in {"gen_ai.request.model", "team"}
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("given", "kept"), NAMES, ids=lambda value: ascii(value)[:20])
def test_model_and_attribute_are_kept_as_their_plain_value(given: Any, kept: str, kind: str) -> None:
    """The same in the record, in the open stream and in the labels."""
    reader = InMemoryMetricReader()
    client = a_client(
        kind, ANSWER, ManualClock(), attributes={"team": given}, meter_provider=MeterProvider([reader])
    )

    async def read() -> list[Any]:
        stream: Any = await settled(client.sdk.chat.completions.create(model=given, messages=[], stream=True))
        first = await stream.__anext__() if kind == "async" else next(stream)
        opened = client.seen.streams()[0]
        rest = [c async for c in stream] if kind == "async" else list(stream)
        assert first is not None
        assert rest
        return [opened.request_model, opened.attributes["team"]]

    assert asyncio.run(read()) == [kept, kept]
    record = client.seen.record
    assert (record.request_model, record.attributes) == (kept, {"team": kept})
    assert type(record.request_model) is type(record.attributes["team"]) is str
    assert labels(reader) == {("str", kept)}


@pytest.mark.parametrize("kind", KINDS)
def test_name_that_cannot_be_sent_does_no_harm(kind: str) -> None:
    """The SDK refuses half a surrogate pair, as without us; the labels of the refused call can be encoded."""
    reader = InMemoryMetricReader()
    client = a_client(kind, ANSWER, ManualClock(), meter_provider=MeterProvider([reader]))

    async def ask() -> None:
        await settled(
            client.sdk.chat.completions.create(model=json.loads('"\\ud800x"'), messages=[], stream=True)
        )

    try:
        asyncio.run(ask())
    except UnicodeEncodeError:
        pass
    else:  # an old SDK escapes it, and sends it
        assert version("openai").startswith("1.")
        return
    assert labels(reader) == {("str", "\ufffdx")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("m\ud800", "m\ufffd"),
        ("x" * 300, "x" * 256),
        ("two\nlines", "two lines"),
        ("\x1b]0;t\x07", "\ufffd]0;t\ufffd"),
    ],
    ids=ascii,
)
def test_names_of_a_server_are_kept_in_the_same_way(sent: str, kept: str, kind: str) -> None:
    """The model that answered, the answer's id, and its finish reason, which is the error type of a failure as well."""
    script = [(1, chunk({"content": "a"}, model=sent, id=sent)), (1, finish(f"error {sent}")), (1, DONE)]
    client = a_client(kind, script, ManualClock())

    async def read() -> None:
        async for _ in await client.create():
            pass

    asyncio.run(read())

    record = client.seen.record
    assert (record.response_model, record.response_id) == (kept, kept)
    assert record.finish_reasons == (f"error {kept}"[:256],)
    assert (record.outcome, record.error_type) == ("error", f"error {kept}"[:256])
