"""The options that tell the size of a server's KV cache, and what the server says of itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

from midstream.advice.kv import DTYPES, ConfigError, kv_cache_of
from midstream.advice.load import RecordedLoad
from midstream.advice.pool import Pool, PoolError, bytes_of, pool_of_log, pool_of_model, pool_of_view
from midstream.cli.advise.options import read_text
from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import SERVER_TOKEN, headers_of
from midstream.sources.scrape import ScrapeError, Scraper
from midstream.sources.server import ENGINES, PageError, ServerView, view_of

_POOL = "KV cache"
LEAST_POOL, MOST_POOL = 32, 10**10
"""Tokens of a KV cache: two blocks, which every engine needs, and more than a rack of GPUs holds."""

PoolOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--pool", metavar="TOKENS", min=1, help="Tokens it holds.", show_default=False, rich_help_panel=_POOL
    ),
]
ServerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask the server's /metrics. A key: MIDSTREAM_SERVER_TOKEN.",
        show_default=False,
        rich_help_panel=_POOL,
    ),
]
MetricsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--metrics", metavar="FILE", help="A saved /metrics page.", show_default=False, rich_help_panel=_POOL
    ),
]
LogOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="FILE", help="The server's start-up log.", show_default=False, rich_help_panel=_POOL
    ),
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--model-config",
        metavar="FILE",
        help="The model's config.json, with --memory.",
        show_default=False,
        rich_help_panel=_POOL,
    ),
]
MemoryOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Left for the KV cache on one GPU, as in 12GiB.",
        show_default=False,
        rich_help_panel=_POOL,
    ),
]
KvDtypeOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--kv-dtype",
        metavar="NAME",
        help="What the KV cache is in; auto is the model's.",
        rich_help_panel=_POOL,
    ),
]
ParallelOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--tensor-parallel",
        metavar="N",
        min=1,
        help="GPUs that share the model's heads.",
        rich_help_panel=_POOL,
    ),
]
BlockOption: TypeAlias = Annotated[
    int,
    typer.Option("--block-size", metavar="N", min=1, help="Tokens in a block of it.", rich_help_panel=_POOL),
]

_Made = TypeVar("_Made")


def make_of(engine: str) -> str:
    """Return whose engine it is, as its page names it: `tgi` for `tgi-2.4`."""
    return engine.partition("-")[0]


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """What the options said."""

    pool: int | None
    server: str | None
    metrics: Path | None
    log: Path | None
    config: Path | None
    memory: str | None
    dtype: str
    parallel: int
    block_size: int
    headers: list[str] | None
    page_engine: str | None
    """The engine that was named, if its page can be read: for pages that do not tell."""

    def view(self) -> ServerView | None:
        """Return what the server says of itself, if it was named. Raises CliError."""
        self._check()
        if self.server is not None and self.metrics is not None:
            raise typer.BadParameter("give --server or --metrics, not both.", param_hint="--metrics")
        engine = self.page_engine if self.page_engine in ENGINES else None
        if self.metrics is not None:
            page = read_text(self.metrics)
            return _or_sentence(lambda: view_of(page, engine=engine), f"{self.metrics}: this is ")
        if self.server is None:
            return None
        try:
            scraper = Scraper(self.server, engine=engine, headers=headers_of(self.headers, SERVER_TOKEN))
        except ValueError as error:
            raise typer.BadParameter(f"{error}.", param_hint="--server") from error
        with scraper:
            return _or_sentence(lambda: scraper.read().view, "")

    def pool_of(self, view: ServerView | None) -> Pool | None:
        """Return the pool by the one option that tells it, or by the server; None if nothing does. Raises CliError."""
        if self.pool is not None:
            return Pool(self.pool, "as given")
        if self.log is not None:
            log = read_text(self.log)
            return _or_sentence(lambda: pool_of_log(log), f"{self.log}: ")
        if self.config is not None:
            return self._of_model(self.config)
        return None if view is None else _or_sentence(lambda: pool_of_view(view), "")

    def _check(self) -> None:
        """Raise BadParameter where one option would be dropped in favour of another."""
        sizes = {"--pool": self.pool, "--log": self.log, "--model-config": self.config}
        named = [option for option, value in sizes.items() if value is not None]
        if len(named) > 1:
            raise typer.BadParameter(
                f"{' and '.join(named)} exclude each other: give one of --pool, --log and --model-config.",
                param_hint=named[0],
            )
        if self.memory is not None and self.config is None:
            also = f"; {named[0]} and --memory exclude each other" if named else ""
            raise typer.BadParameter(
                f"it goes with --model-config, the model's config.json{also}.", param_hint="--memory"
            )

    def _of_model(self, path: Path) -> Pool:
        if self.memory is None:
            raise typer.BadParameter(
                "say how much memory is left for the KV cache, as in 12GiB.", param_hint="--memory"
            )
        if self.dtype != "auto" and self.dtype not in DTYPES:
            raise typer.BadParameter(
                f"{self.dtype} is not one of auto, {', '.join(DTYPES)}.", param_hint="--kv-dtype"
            )
        try:
            left = bytes_of(self.memory)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.", param_hint="--memory") from error
        try:
            config = json.loads(read_text(path))
        except ValueError as error:
            raise CliError(f"{path} is not JSON ({error}); is it the model's config.json?") from error
        except RecursionError:
            raise CliError(f"{path} is nested too deeply; is it the model's config.json?") from None
        if not isinstance(config, dict):
            raise CliError(f"{path} holds no JSON object; is it the model's config.json?")
        return _or_sentence(
            lambda: pool_of_model(
                kv_cache_of(config, dtype=self.dtype, tensor_parallel=self.parallel),
                left,
                block_size=self.block_size,
            ),
            f"{path}: ",
        )


def _or_sentence(make: Callable[[], _Made], before: str) -> _Made:
    try:
        return make()
    except (ConfigError, PageError, PoolError, ScrapeError) as error:
        raise CliError(f"{before}{error}") from error


def check_size(size: Pool, load: RecordedLoad) -> None:
    """Raise CliError for a pool in which nothing can run, or that nobody has."""
    least = max(LEAST_POOL, math.ceil(load.mean_prompt + load.mean_answer))
    if size.tokens < least:
        raise CliError(
            f"a KV cache of {size.tokens:,} tokens ({size.source}) does not hold even one of these requests, "
            f"{load.mean_prompt + load.mean_answer:,.0f} tokens on average; check its size"
        )
    if size.tokens > MOST_POOL:
        raise CliError(
            f"no memory holds a KV cache of {size.tokens:.3g} tokens ({size.source}); check its size"
        )
