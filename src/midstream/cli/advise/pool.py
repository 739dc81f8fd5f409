"""The options for the size of a server's KV cache, and for its metrics page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import typer

from midstream.advice.concurrency import family_of
from midstream.advice.kv import DTYPES, ConfigError, kv_cache_of
from midstream.advice.pool import Pool, PoolError, bytes_of, pool_of_log, pool_of_model, pool_of_view
from midstream.cli.advise.options import read_text
from midstream.cli.common.errors import CliError
from midstream.cli.common.http_options import SERVER_TOKEN, HeaderOption, headers_of
from midstream.engines.vllm import BLOCK_TOKENS
from midstream.sources.scrape import ScrapeError, Scraper
from midstream.sources.server import ENGINES, PageError, ServerView, view_of

_POOL = "KV cache"
_IN_PANEL: Mapping[str, Any] = MappingProxyType({"show_default": False, "rich_help_panel": _POOL})

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """The option group for the size of the KV cache, and for the server whose metrics show it."""

    pool: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, help="Tokens it holds.", **_IN_PANEL)
    ] = None
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Read the server's /metrics. A key: MIDSTREAM_SERVER_TOKEN.", **_IN_PANEL
        ),
    ] = None
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A saved /metrics page.", **_IN_PANEL)
    ] = None
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The server's start-up log.", **_IN_PANEL)
    ] = None
    model_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model's config.json, with --memory.", **_IN_PANEL)
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Left for the KV cache on one GPU, as in 12GiB.", **_IN_PANEL),
    ] = None
    kv_dtype: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The type of its numbers; auto is the model's.", rich_help_panel=_POOL
        ),
    ] = "auto"
    tensor_parallel: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="GPUs that share the model's heads.", rich_help_panel=_POOL),
    ] = 1
    block_size: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Tokens in a block of it. Without it: the page's, or 16.", **_IN_PANEL
        ),
    ] = None
    header: HeaderOption = None

    def view(self, engine: str | None) -> ServerView | None:
        """Return what the server's metrics page shows, if one was named; `engine` is for pages that do not name theirs.

        Raises CliError, or BadParameter for the options.
        """
        self._check()
        if self.server is not None and self.metrics is not None:
            raise typer.BadParameter("give --server or --metrics, not both.", param_hint="--metrics")
        known = None if engine is None else family_of(engine)
        known = known if known in ENGINES else None
        if self.metrics is not None:
            page = read_text(self.metrics)
            return _or_sentence(lambda: view_of(page, engine=known), f"{self.metrics}: this is ")
        if self.server is None:
            return None
        try:
            scraper = Scraper(self.server, engine=known, headers=headers_of(self.header, SERVER_TOKEN))
        except ValueError as error:
            raise typer.BadParameter(f"{error}.", param_hint="--server") from error
        with scraper:
            return _or_sentence(lambda: scraper.read().view, "")

    def pool_of(self, view: ServerView | None) -> Pool | None:
        """Return the pool by the one option that gives it, or by the server; None if nothing does. Raises CliError."""
        pool = self._pool(view)
        if pool is None:
            return None
        shown = None if view is None else view.settings.get("block_size")
        size = self.block_size or (int(shown) if shown else None)
        return pool if size is None else replace(pool, block_size=size)

    def pool_if_shown(self, view: ServerView | None) -> Pool | None:
        """Return the same; None as well if the server's page does not show the size. Raises CliError."""
        given = any(source is not None for source in (self.pool, self.log, self.model_config))
        shown = view is not None and view.pool_tokens.value is not None
        return self.pool_of(view) if given or shown else None

    def _pool(self, view: ServerView | None) -> Pool | None:
        if self.pool is not None:
            return Pool(self.pool, "as given")
        if self.log is not None:
            log = read_text(self.log)
            return _or_sentence(lambda: pool_of_log(log), f"{self.log}: ")
        if self.model_config is not None:
            return self._of_model(self.model_config)
        return None if view is None else _or_sentence(lambda: pool_of_view(view), "")

    def _check(self) -> None:
        """Raise BadParameter where one option would be dropped in favour of another."""
        sizes = {"--pool": self.pool, "--log": self.log, "--model-config": self.model_config}
        named = [option for option, value in sizes.items() if value is not None]
        if len(named) > 1:
            raise typer.BadParameter(
                f"{' and '.join(named)} exclude each other: give one of --pool, --log and --model-config.",
                param_hint=named[0],
            )
        if self.memory is not None and self.model_config is None:
            also = f"; {named[0]} and --memory exclude each other" if named else ""
            raise typer.BadParameter(
                f"it goes with --model-config, the model's config.json{also}.", param_hint="--memory"
            )

    def _of_model(self, path: Path) -> Pool:
        if self.memory is None:
            raise typer.BadParameter(
                "give the memory that is left for the KV cache, as in 12GiB.", param_hint="--memory"
            )
        if self.kv_dtype != "auto" and self.kv_dtype not in DTYPES:
            raise typer.BadParameter(
                f"{self.kv_dtype} is not one of auto, {', '.join(DTYPES)}.", param_hint="--kv-dtype"
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
                kv_cache_of(config, dtype=self.kv_dtype, tensor_parallel=self.tensor_parallel),
                left,
                block_size=self.block_size or BLOCK_TOKENS,
            ),
            f"{path}: ",
        )


def _or_sentence(make: Callable[[], _Made], before: str) -> _Made:
    try:
        return make()
    except (ConfigError, PageError, PoolError, ScrapeError) as error:
        raise CliError(f"{before}{error}") from error
