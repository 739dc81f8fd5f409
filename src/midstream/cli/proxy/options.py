"""The options of `midstream proxy`."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from midstream.cli.common.errors import CliError, unread
from midstream.cli.common.listening import AllowHostOption
from midstream.cli.common.yaml_files import load_yaml
from midstream.proxy.attributes import SECRET
from midstream.proxy.routes import Routes, routes_of
from midstream.proxy.service import DRAIN_S, HEAD_S
from midstream.proxy.upstream import upstream_of
from midstream.proxy.workers import CAN_FORK
from midstream.runtime.settings import (
    FIRST_CONTENT_TIMEOUT,
    FREEZE_AFTER,
    MAX_ATTRIBUTES,
    STALL_TIMEOUT,
    Settings,
    disabled,
    settings_from,
)
from midstream.telemetry.labels import reserved

PORT = 8080
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """Where requests go, and how long that may take."""

    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The model server, such as http://localhost:8000, without /v1.",
            show_default=False,
        ),
    ] = None
    routes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Routes to several servers, by path or model, in YAML; the rest goes to --upstream.",
            show_default=False,
        ),
    ] = None
    upstream_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="How long the server may take to begin an answer; then status 504."
        ),
    ] = HEAD_S
    drain: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="How long open streams may go on after SIGTERM; then they are cut."
        ),
    ] = DRAIN_S

    keep_alive: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Send a comment to the client whenever the server has sent nothing for so many seconds. [never]",
            show_default=False,
        ),
    ] = None

    def checked_routes(self) -> Routes:
        """Return where requests go. Raises BadParameter or CliError for that, or for a time that is none."""
        seconds(self.upstream_timeout, "--upstream-timeout")
        seconds(self.drain, "--drain", least=0.0)
        seconds(self.keep_alive, "--keep-alive")
        if self.upstream is None and self.routes is None:
            raise typer.BadParameter(
                "where to? Give --upstream URL, or --routes FILE.", param_hint="--upstream"
            )
        try:
            fallback = None if self.upstream is None else upstream_of(self.upstream)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.", param_hint="--upstream") from None
        if self.routes is None:
            return Routes((), fallback)
        try:
            return Routes(routes_of(load_yaml(self.routes)), fallback)
        except ValueError as error:
            raise CliError(f"{self.routes}: {error}") from None
        except FileNotFoundError as error:
            raise unread(self.routes, error) from None


@dataclass(frozen=True, slots=True)
class ProxyListenOptions:
    """Where to listen."""

    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0 is any free one.")
    ] = PORT
    allow_host: AllowHostOption = None
    workers: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=256, help="How many processes serve, with one journal and one /metrics."
        ),
    ] = 1

    def checked_workers(self) -> int:
        """Return how many processes serve. Raises BadParameter where there can be only one."""
        if self.workers > 1 and not CAN_FORK:
            raise typer.BadParameter(
                "this system has no fork(); run one process for each port instead.", param_hint="--workers"
            )
        return self.workers


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What is recorded, and how."""

    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep a record of each stream here. [MIDSTREAM_JOURNAL]", show_default=False
        ),
    ] = None
    freeze_after: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds from which a gap is a freeze: 5, off, or text=5,reasoning=60,tool_call=10. "
            f"[{FREEZE_AFTER}, or 5]",
            show_default=False,
        ),
    ] = None

    stall_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="End a stream after a gap of so many seconds, with an error event: 60, or text=30,reasoning=300. "
            f"[{STALL_TIMEOUT}, or off]",
            show_default=False,
        ),
    ] = None
    first_content_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help=f"The same for the time until the first output. [{FIRST_CONTENT_TIMEOUT}, or off]",
            show_default=False,
        ),
    ] = None
    attribute_header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=ATTRIBUTE]",
            help="Make this request header an attribute of records and metrics, as in X-Team=team. May be repeated.",
            show_default=False,
        ),
    ] = None

    def attribute_headers(self) -> dict[str, str]:
        """Return names of attributes by names of headers. Raises BadParameter."""
        found: dict[str, str] = {}
        for text in self.attribute_header or ():
            header, sign, name = text.partition("=")
            name = name if sign else header.lower().removeprefix("x-").replace("-", "_")
            if not _HEADER.fullmatch(header) or not _ATTRIBUTE.fullmatch(name):
                raise typer.BadParameter(
                    "it is not NAME or NAME=ATTRIBUTE, such as X-Team=team.", param_hint="--attribute-header"
                )
            if header.lower() in SECRET:
                raise typer.BadParameter(
                    f"{header} holds secrets; name another header.", param_hint="--attribute-header"
                )
            if reserved(name):
                raise typer.BadParameter(
                    f"the metrics have a label {name} already; give it another name, as in {header}=my_{name}.",
                    param_hint="--attribute-header",
                )
            found[header] = name
        if len(found) > MAX_ATTRIBUTES or len(set(found.values())) < len(found):
            raise typer.BadParameter(
                f"there are at most {MAX_ATTRIBUTES} attributes, each with a name of its own.",
                param_hint="--attribute-header",
            )
        return found

    def settings(self) -> Settings | None:
        """Return the monitor's settings; None if MIDSTREAM_DISABLED is set. Raises BadParameter."""
        given = {
            FREEZE_AFTER: self.freeze_after,
            STALL_TIMEOUT: self.stall_timeout,
            FIRST_CONTENT_TIMEOUT: self.first_content_timeout,
        }
        environ = {**os.environ, **{name: text for name, text in given.items() if text is not None}}
        try:
            made = settings_from(environ, {} if self.journal is None else {"journal": self.journal})
            return None if disabled(os.environ) else made
        except ValueError as error:
            sentence = str(error)
            for name, text in given.items():
                if text is not None:
                    sentence = sentence.replace(name, _OPTIONS[name])
            raise typer.BadParameter(f"{sentence}.") from None


_OPTIONS = {
    FREEZE_AFTER: "--freeze-after",
    STALL_TIMEOUT: "--stall-timeout",
    FIRST_CONTENT_TIMEOUT: "--first-content-timeout",
}


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where metrics go."""

    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /metrics on this port; 0 is any free one. [9464, unless OTEL_* variables say otherwise]",
            show_default=False,
        ),
    ] = None
    metrics_host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address for /metrics. [127.0.0.1]", show_default=False),
    ] = None
    metrics_allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Answer this host name at /metrics, too. May be repeated.",
            show_default=False,
        ),
    ] = None

    @property
    def service_name(self) -> str | None:
        """The name of the service, unless the environment has one."""
        named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        return None if named else "midstream-proxy"


def seconds(value: float | None, option: str, *, least: float = 0.001) -> None:
    """Raise BadParameter for what is no time."""
    if value is not None and not (math.isfinite(value) and value >= least):
        raise typer.BadParameter(f"{value:g} is not a number of seconds.", param_hint=option)
