"""Runs a server in a process of its own, so that the clients of this one keep their timing to themselves."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from midstream.lab.server import serve

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PATIENCE_S = 5.0
"""How long the process may take to end before it is killed."""

# The child imports what its parent would: by itself, Python would look into the working folder first.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from midstream.lab.apart import _child; _child()"


@contextmanager
def serve_apart(make: Callable[[], ASGIApp]) -> Iterator[str]:
    """Serve what `make()` returns from a child process, and give the base URL for an OpenAI client.

    `make` is pickled: a function of a module, or a partial of one. The child lives no longer than the block,
    nor than this process, however that ends. Raises ChildProcessError if it cannot serve; why is on stderr.
    """
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", _PROGRAM, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C is for the parent, which then ends the child in order.
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    ) as child:
        assert child.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert child.stdout is not None  # noqa: S101
        try:
            with suppress(BrokenPipeError):
                child.stdin.write(pickle.dumps(make))
                child.stdin.flush()
            base_url = child.stdout.readline().decode().strip()
            if not base_url:
                raise ChildProcessError("the server's process ended before it could serve")
            yield base_url
        finally:
            with suppress(BrokenPipeError):
                child.stdin.close()
            try:
                child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                child.kill()


def _child() -> None:
    try:
        make = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the parent, which could do all this itself
    except EOFError:
        return
    with serve(make()) as base_url:
        with suppress(
            BrokenPipeError
        ):  # the parent may be gone already, and nothing of it may stay in a buffer
            os.write(sys.stdout.fileno(), f"{base_url}\n".encode())
        # Nothing more is ever written: this returns when the parent closes the pipe, and when it is no more.
        sys.stdin.buffer.read()
