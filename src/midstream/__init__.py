"""Tells when an LLM answer freezes in mid-stream, for how long, whose fault it was, and which limit to set."""

# ruff: noqa: E402 - see the comment on the first import
from midstream._support.interrupts import exit_at_once_if_command as _exit_at_once_if_command

_exit_at_once_if_command()  # before the other imports, which Ctrl-C may interrupt

from midstream._support.version import VERSION as _VERSION
from midstream.integrations.attach import instrument, monitor, streams, uninstrument
from midstream.setup import setup
from midstream.stream.model import Freeze, FreezeSpan, OpenStream, Outcome, StreamRecord
from midstream.stream.stalled import StreamStalled

__version__ = _VERSION

__all__ = [
    "Freeze",
    "FreezeSpan",
    "OpenStream",
    "Outcome",
    "StreamRecord",
    "StreamStalled",
    "instrument",
    "monitor",
    "setup",
    "streams",
    "uninstrument",
]
