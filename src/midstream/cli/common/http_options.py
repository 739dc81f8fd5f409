"""The options of every command that asks a server over HTTP: headers of the user's, and a token that is never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from midstream.cli.common.errors import CliError

SERVER_TOKEN = "MIDSTREAM_SERVER_TOKEN"  # noqa: S105 - the name of a variable
"""Holds the bearer token for a model's server."""
PROMETHEUS_TOKEN = "MIDSTREAM_PROMETHEUS_TOKEN"  # noqa: S105 - the name of a variable
"""Holds the bearer token for a Prometheus-compatible API."""

HeaderOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME:VALUE",
        help="Sent with each request, as in X-Scope-OrgID:team; may be repeated.",
        show_default=False,
    ),
]


def headers_of(given: Sequence[str] | None, token_variable: str) -> dict[str, str]:
    """Return the headers to send. Raises BadParameter or CliError, without ever repeating a value."""
    headers: dict[str, str] = {}
    token = os.environ.get(token_variable, "").strip()
    if token:
        if not (token.isascii() and token.isprintable()):
            raise CliError(f"{token_variable} holds characters that no token has; set it again")
        headers["Authorization"] = f"Bearer {token}"
    for text in given or ():
        name, colon, value = text.partition(":")
        value = value.strip()
        if not (colon and re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name.strip()) and value.isascii()):
            raise typer.BadParameter(
                "it is not NAME:VALUE, such as X-Scope-OrgID:team.", param_hint="--header"
            )
        if not value.isprintable():
            raise typer.BadParameter("its value holds characters that no header has.", param_hint="--header")
        headers[name.strip()] = value
    return headers
