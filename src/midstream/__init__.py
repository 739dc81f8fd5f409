"""Tells when an LLM answer freezes in mid-stream, for how long, whose fault it was, and which limit to set."""

from midstream.integrations.attach import instrument, monitor, streams, uninstrument
from midstream.setup import setup
from midstream.stream.model import Freeze, FreezeSpan, OpenStream, Outcome, StreamRecord

__all__ = [
    "Freeze",
    "FreezeSpan",
    "OpenStream",
    "Outcome",
    "StreamRecord",
    "instrument",
    "monitor",
    "setup",
    "streams",
    "uninstrument",
]
