"""Tells when an LLM answer freezes in mid-stream, for how long, whose fault it was, and which limit to set."""

from midstream._api import instrument, monitor, streams, uninstrument
from midstream._model import Freeze, FreezeSpan, OpenStream, Outcome, StreamRecord
from midstream.setup import setup

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
