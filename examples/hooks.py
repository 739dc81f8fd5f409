"""Hear of a freeze while it lasts, of its end, and of every stream's end.

    OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY=none OPENAI_MODEL=my-model python hooks.py

Hooks are plain functions, called one after the other on a thread of their own. One that is slow, hangs or raises does
no harm to the stream. To see something without waiting for 5 s of silence, set MIDSTREAM_FREEZE_AFTER_S=0.5.
"""

from __future__ import annotations

import os

from openai import OpenAI

from midstream import Freeze, StreamRecord, monitor


def froze(freeze: Freeze) -> None:
    """Called the moment the silence reaches the threshold: page somebody, or try another server."""
    who = "every stream of this server" if freeze.shared else "this stream"
    if freeze.hidden:
        # Known only afterwards: the caller was busy, and did not wait for it. No thaw follows.
        print(f"the server was silent for {freeze.gap_s:.1f} s while nobody waited")
    else:
        print(f"{who} froze {freeze.at_s or 0:.1f} s into the answer, while it wrote {freeze.phase}")


def thawed(freeze: Freeze) -> None:
    """Called when the stream goes on. A stream that ends in its freeze has no thaw, only its record."""
    print(f"it goes on after {freeze.gap_s:.1f} s")


def ended(record: StreamRecord) -> None:
    """Called once for every stream, however it ended."""
    print(f"{record.outcome} after {record.duration_s:.1f} s, frozen for {record.frozen_s:.1f} s of them")


client = monitor(OpenAI(), on_freeze=froze, on_thaw=thawed, on_end=ended)

# Leaving the block closes the stream, also when the loop is left early.
with client.chat.completions.create(
    model=os.environ.get("OPENAI_MODEL", "my-model"),
    messages=[{"role": "user", "content": "Tell me a long story."}],
    stream=True,
) as stream:
    chunks = sum(1 for _ in stream)
print(f"{chunks} chunks")
