"""What the commands that serve something share: the address, its errors, and waiting for Ctrl-C."""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import typer

from midstream._support.http_hosts import is_loopback
from midstream.cli.common.errors import CliError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["AllowHostOption", "ListenOptions", "listening", "wait_for_interrupt", "warn_if_public", "why_not"]


AllowHostOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="Answer this host name, too; a loopback address answers its own only. May be repeated.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Where to listen."""

    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0 is any free one.")
    ] = 0
    allow_host: AllowHostOption = None


@contextmanager
def listening(app: ASGIApp, options: ListenOptions) -> Iterator[str]:
    """Serve an application for as long as the block lasts, and give its base URL. Raises CliError."""
    from midstream.lab.server import serve  # noqa: PLC0415 - of the extra `lab`

    with ExitStack() as stack:
        try:
            base_url = stack.enter_context(
                serve(app, host=options.host, port=options.port, allow_hosts=tuple(options.allow_host or ()))
            )
        except OSError as error:
            raise CliError(why_not(error, options.host, options.port)) from error
        warn_if_public(options.host, "use this server")
        yield base_url


def warn_if_public(host: str, what: str) -> None:
    """Warn on standard error if other machines can do `what`."""
    if not is_loopback(host):
        sys.stderr.write(f"midstream: warning: every machine that can reach this one on {host} can {what}\n")


def wait_for_interrupt() -> NoReturn:
    """Wait until Ctrl-C raises KeyboardInterrupt."""
    sys.stdout.flush()
    while True:
        time.sleep(3600)


def why_not(error: OSError, host: str, port: int) -> str:
    """Return the sentence for an address that cannot be used."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another, or take any free one with --port 0"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose one above 1023, or take any free one with --port 0"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{host} is not an address of this machine; leave --host out to listen on 127.0.0.1"
    return f"cannot listen on {host} port {port}: {error.strerror}"
