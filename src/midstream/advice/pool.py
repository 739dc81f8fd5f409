"""How many tokens a server's KV cache holds: from its metrics, its start-up log, or the model and the memory left."""

from __future__ import annotations

import re
from dataclasses import dataclass

from midstream._support.numbers import byte_size
from midstream.advice.kv import KvCache
from midstream.engines import ENGINES
from midstream.engines.facts import MOST_DIGITS
from midstream.engines.vllm import BLOCK_TOKENS
from midstream.sources.server import ServerView


class PoolError(ValueError):
    """The size of the pool cannot be read from this; the message is one sentence with what would help."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A KV cache of so many tokens. `source` is in words where the number comes from."""

    tokens: int
    source: str
    notes: tuple[str, ...] = ()
    block_size: int = BLOCK_TOKENS
    """Tokens in a block of it, where an engine hands it out in blocks."""


def pool_of_view(view: ServerView) -> Pool:
    """Return the pool that a server's metrics show. Raises PoolError if they do not."""
    reading = view.pool_tokens
    if reading.value is None:
        raise PoolError(f"{reading.why}; give the number with --pool")
    notes = (f"the server reports it {reading.why}: a flag is for each of them",) if reading.why else ()
    block_size = int(view.settings.get("block_size", BLOCK_TOKENS))
    return Pool(int(reading.value), f"metrics of {view.title}", notes, block_size)


def pool_of_log(text: str) -> Pool:
    """Read the pool from an engine's start-up log.

    A log that holds several starts counts by its last one. Raises PoolError for a log without such a line.
    """
    try:
        found = sorted(
            (place, tokens, facts.title)
            for facts in ENGINES.values()
            for line in facts.log_lines
            for place, tokens in line.read(text)
        )
    except ValueError as error:
        raise PoolError(
            "the log tells a KV cache of a size that none has; give the number with --pool"
        ) from error
    if not found:
        raise PoolError(
            "the log has no line with the size of the KV cache, such as `GPU KV cache size: 30,240 tokens`; "
            "give the log from the server's start on, or the number with --pool"
        )
    _, tokens, engine = found[-1]
    if tokens < 1:
        raise PoolError(
            f"the log of {engine} shows a KV cache without a token; the server cannot have started"
        )
    others = sorted({value for _, value, name in found if name == engine} - {tokens})
    notes: tuple[str, ...] = ()
    if others:
        others_written = ", ".join(f"{value:,}" for value in others)
        notes = (f"the log has other sizes before, too: {others_written}; the last one counts",)
    return Pool(tokens, f"start-up log of {engine}", notes)


def pool_of_model(cache: KvCache, memory_bytes: int, *, block_size: int = 1) -> Pool:
    """Return how many tokens of this model fit into the memory that is left, in whole blocks of `block_size`.

    `memory_bytes` is what is left on one GPU when weights, activations and the rest are in. Raises PoolError if
    not even a block fits.
    """
    if block_size < 1:
        raise PoolError(f"a block must hold at least one token, got {block_size}")
    tokens = memory_bytes // (cache.bytes_per_token * block_size) * block_size
    if tokens < 1:
        raise PoolError(
            f"{byte_size(memory_bytes)} hold not even a block of {block_size} tokens of "
            f"{byte_size(cache.bytes_per_token)} each; give the memory that is left for the KV cache"
        )
    return Pool(
        tokens,
        f"{byte_size(memory_bytes)} at {cache.bytes_per_token:,} bytes a token ({cache.formula})",
        cache.notes,
    )


_UNITS = {"": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)(B?)", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """Read an amount of memory: 12GiB, 12288MiB, 12.5 GB, or a number of bytes. ValueError for anything else."""
    matched = _SIZE.fullmatch(text.strip())
    if matched is None or len(matched[1]) > MOST_DIGITS:
        raise ValueError(f"{text!r} is no amount of memory; write 12GiB, 12288MiB, or a number of bytes")
    number, unit, binary, _ = matched.groups()
    base = 1024 if binary else 1000
    return round(float(number) * (base ** _UNITS[unit.upper()] if unit else 1))
