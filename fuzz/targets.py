"""What is fuzzed: one function for each parser, which raises if it did anything but return or refuse as it says.

A target takes bytes. What it may raise is caught where it is called; whatever else comes out is a finding.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fuzz import proxying
from fuzz.seeds import CHUNKS, CONFIGS, LOGS, PROMETHEUS, files, journals, named, rows
from midstream._support.foreign import ForeignError, count, json_of, number
from midstream._support.sanitize import LONGEST, clean
from midstream.advice.kv import ConfigError, kv_cache_of
from midstream.advice.pool import PoolError, bytes_of, pool_of_log, pool_of_model, pool_of_view
from midstream.cli.common.errors import CliError
from midstream.cli.rules.settings import read_settings
from midstream.engines import ENGINES
from midstream.journal import JournalError, read
from midstream.journal._kinds import DamagedRowError
from midstream.journal._rows import COLUMNS, reader_of, row_of
from midstream.lab.emulation.request_body import BadRequestError, read_body
from midstream.lab.load import parse_load
from midstream.lab.recording import PATHS, RecordingError, parse_stream
from midstream.monitoring.alerts import TuningError, build, tuning_of
from midstream.sources.address import origin, shown, url_of
from midstream.sources.http import Answer, Getter
from midstream.sources.prometheus import PrometheusError, PrometheusSource
from midstream.sources.select import SelectionError, condition, moment
from midstream.sources.server import PageError, view_of
from midstream.stream.chunks import (
    Reading,
    read_any,
    read_chat,
    read_completion,
    read_model,
    read_response,
    read_response_id,
)
from midstream.stream.generic_chunks import read_foreign
from midstream.stream.model import Call, StreamRecord
from midstream.stream.session import Session
from midstream.stream.snapshots import record_of


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz: what to call, what to begin with, how long an input may get."""

    call: Callable[[bytes], None]
    seeds: tuple[bytes, ...] = ()
    words: tuple[str, ...] = ()
    longest: int = 4096


def recording(data: bytes) -> None:
    """A recorded stream, as `midstream replay` reads it."""
    with suppress(RecordingError):
        found = parse_stream(_text(data), name="fuzzed", source="fuzzed.jsonl")
        moments = [arrival.at_s for arrival in found.arrivals]
        assert moments == sorted(moments)
        assert all(math.isfinite(at_s) and at_s >= 0 for at_s in moments)


def load(data: bytes) -> None:
    """A recorded load."""
    with suppress(RecordingError):
        parse_load(_text(data), name="fuzzed", source="fuzzed.jsonl")


def chunks(data: bytes) -> None:
    """What an SDK yields: any JSON, as it is and as the openai SDK makes objects of it, read and counted."""
    from openai._models import construct_type  # noqa: PLC0415 - the SDK takes a second to load
    from openai.types.chat import ChatCompletionChunk  # noqa: PLC0415

    session = Session(Call("chat", "openai", "h", 1, "m", 0.0, 0.0), 0.0, 5.0)
    now = 0.0
    for line in data.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        made = [value]
        with suppress(Exception):  # the SDK's own failures are the caller's to see
            made.append(construct_type(type_=ChatCompletionChunk, value=value))
        for chunk in made:
            for reader in (read_chat, read_completion, read_response, read_any, read_foreign):
                reading = reader(chunk)
                assert isinstance(reading, Reading)
                session.wait_from = now
                now += 1.0
                signal = session.chunk(reading, now)
                if signal is not None and signal.value == "thawed":
                    session.thaw()
            session.name(read_model(chunk), read_response_id(chunk))
    outcome = session.exhausted(now)
    assert outcome is not None
    _holds(record_of(session, outcome, None))


def metrics_page(data: bytes) -> None:
    """The `/metrics` of a server."""
    kind = ("", "application/openmetrics-text", "text/html", "application/json")[data[0] % 4 if data else 0]
    text = _text(data[1:])
    with suppress(PageError):
        view = view_of(text, kind)
        for reading in (view.running, view.waiting, view.kv_usage, view.preemptions, view.pool_tokens):
            assert reading.value is None or isinstance(reading.value, int | float)
    with suppress(PageError, PoolError):
        assert pool_of_view(view_of(text, kind)).tokens >= 0


def prometheus(data: bytes) -> None:
    """What a Prometheus answers to queries."""
    names, *answers = data.split(b"\n")
    asked = 0

    class Scripted(Getter):
        def get(self, url: str, data: Mapping[str, str] | None = None) -> Answer:
            nonlocal asked
            asked += 1
            given = names if "/label/" in url or not answers else answers[asked % len(answers)]
            return Answer(url, 200, "application/json", _text(given), math.inf)

    source = PrometheusSource("http://127.0.0.1:9090")
    source._api._getter = Scripted()
    with suppress(PrometheusError, SelectionError):
        source.fleet(0.0, 3600.0)


def start_up_log(data: bytes) -> None:
    """The log of an engine's start."""
    with suppress(PoolError):
        assert pool_of_log(_text(data)).tokens >= 1


def model_config(data: bytes) -> None:
    """A model's config.json."""
    try:
        config = json.loads(_text(data))
    except (ValueError, RecursionError):
        return
    if not isinstance(config, dict):
        return
    for dtype in (None, "fp8"):
        with suppress(ConfigError, PoolError):
            cache = kv_cache_of(config, dtype=dtype)
            assert cache.bytes_per_token > 0
            assert pool_of_model(cache, 2**34).tokens > 0


def journal(data: bytes) -> None:
    """A journal's file, of which any byte may be anything."""
    path = Path(tempfile.gettempdir()) / f"midstream-fuzz-{os.getpid()}.db"
    path.write_bytes(data)
    try:
        with suppress(JournalError):
            for record in read(path).records:
                _holds(record)
    finally:
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink(missing_ok=True)


def journal_row(data: bytes) -> None:
    """One row of a journal, with any values in its columns."""
    try:
        values = json.loads(_text(data))
    except (ValueError, RecursionError):
        return
    if not isinstance(values, list):
        return
    if any(isinstance(value, str) and _text(value.encode("utf-8", "replace")) != value for value in values):
        return  # a lone surrogate, which SQLite does not give
    row = [value if isinstance(value, int | float | str | None) else json.dumps(value) for value in values]
    row = (row + [None] * len(COLUMNS))[: len(COLUMNS)]
    with suppress(DamagedRowError):
        record = reader_of(tuple(COLUMNS))(row)
        assert reader_of(tuple(COLUMNS))(row_of(record)) == record


def settings_file(data: bytes) -> None:
    """A file of settings for `midstream rules`."""
    path = Path(tempfile.gettempdir()) / f"midstream-fuzz-{os.getpid()}.yml"
    path.write_bytes(data)
    try:
        with suppress(CliError, TuningError):
            build(tuning_of(read_settings(path)))
    finally:
        path.unlink(missing_ok=True)


def json_text(data: bytes) -> None:
    """JSON of others: what is read can be written again, in UTF-8, and holds none of the secrets."""
    with suppress(ForeignError):
        found = json_of(_text(data))
        json.dumps(found, ensure_ascii=False).encode()
    text = _text(data)
    value = number(text)
    assert value is None or math.isfinite(value)
    whole = count(text)
    assert whole is None or 0 <= whole <= 2**53
    assert "s3cret-v4lue" not in clean(f"{text}s3cret-v4lue", "s3cret-v4lue")


def request_body(data: bytes) -> None:
    """The body of a request to the emulated engine."""
    with suppress(ForeignError, BadRequestError):
        body = json_of(_text(data))
        for operation in PATHS:
            for facts in ENGINES.values():
                with suppress(BadRequestError):
                    asked = read_body(body, operation, facts.dialect)
                    assert 1 <= asked.choices <= 128


def words_of_options(data: bytes) -> None:
    """What is written after an option: addresses, moments, conditions, sizes; and names of others, to be shown."""
    text = _text(data)
    with suppress(ValueError):
        url = url_of(text)
        assert "@" not in origin(url)
        assert "?" not in shown(url)
    with suppress(SelectionError):
        assert math.isfinite(moment(text, 1.7e9))
    with suppress(SelectionError):
        condition(text)
    with suppress(ValueError):
        assert bytes_of(text) >= 0
    said = clean(text)
    assert len(said) <= LONGEST
    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs"} for char in said)


def _holds(record: StreamRecord) -> None:
    assert record.content_chunks <= record.chunks
    assert record.duration_s >= 0
    assert record.waited_s >= 0
    assert record.held_s >= 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def targets() -> Mapping[str, Target]:
    """All of them by name, with their seeds."""
    pages = tuple(
        bytes([kind]) + page for kind in (0, 1) for page in files("recordings/vllm_*_metrics.txt", 8000)
    )
    kinds: dict[str, Any] = {
        "recording": Target(
            recording, files("recordings/streams/*.jsonl", 4000), named('"t"', '"line"', '"event"')
        ),
        "load": Target(load, files("recordings/load/*.jsonl", 4000), named('"start"', '"times"')),
        "chunks": Target(chunks, CHUNKS, named('"choices"', '"delta"', '"usage"', '"type"', '"response"')),
        "metrics_page": Target(
            metrics_page,
            (
                *pages,
                b'\x03[{"iter":1,"kvCacheStats":{"maxNumBlocks":5,"tokensPerBlock":32,"usedNumBlocks":1}}]',
            ),
            (
                "# TYPE ",
                "# HELP ",
                "vllm:",
                "sglang:",
                "tgi_",
                "trtllm_",
                "NaN",
                "+Inf",
                "{",
                "}",
                'engine="0"',
                "# EOF",
            ),
            8192,
        ),
        "prometheus": Target(
            prometheus, PROMETHEUS, named('"value"', '"values"', '"histogram"', '"buckets"', '"le"')
        ),
        "start_up_log": Target(
            start_up_log,
            LOGS,
            ("KV cache size: ", " tokens", "# GPU blocks: ", "block_size", "max_total_num_tokens="),
        ),
        "model_config": Target(
            model_config, CONFIGS, named('"num_key_value_heads"', '"layer_types"', '"head_dim"')
        ),
        "journal": Target(journal, journals(), ("SQLite format 3",), 65536),
        "journal_row": Target(journal_row, rows(), named("completed", "unread", "text")),
        "settings_file": Target(
            settings_file,
            (b"objective: 99\nlabels: {team: llm}\nalerts: {StreamFrozen: {for: 30s}}\n",),
            ("objective", "alerts", "window", "&a ", "*a", "!!int "),
        ),
        "json_text": Target(
            json_text, (b'{"a": [1, 2.5, null, "\\ud83d\\ude00"]}', b"12"), ("\\ud800", "1e999")
        ),
        "request_body": Target(
            request_body,
            (b'{"model": "m", "messages": [{"content": "tokens=5"}], "n": 2, "tools": [{"function": {}}]}',),
            ("messages", "content", "stream_options", "tool_choice", "emulate", "parameters"),
        ),
        "proxy_request": Target(proxying.request, proxying.SEEDS, proxying.WORDS),
        "proxy_routes": Target(
            proxying.routes, proxying.ROUTE_SEEDS, named('"upstream"', '"path"', '"models"', "//", "@", "/v1")
        ),
        "proxy_body": Target(
            proxying.body,
            (
                b'{"model": "m", "stream": true, "messages": [{"content": "x"}], "options": {"a": 1}}',
                b"data: a\r\n\r\n",
            ),
            named('"model"', '"stream_options"', "\r\n"),
        ),
        "words_of_options": Target(
            words_of_options,
            (
                b"http://u:p@host:80/v1",
                b"2h",
                b"2026-11-29T12:00:00Z",
                b"model!=big",
                b"12.5 GiB",
                b"\x1b[31mred",
            ),
            ("://", "@", "[::1]", "\u202e", "\x1b]0;", "1e999", "now"),
            256,
        ),
    }
    return MappingProxyType(kinds)
