"""One line around a client, and what it then says about an answer.

    OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY=none OPENAI_MODEL=my-model python quickstart.py

Without a server: `midstream replay --port 8000` serves recorded ones, and `OPENAI_MODEL=vllm_preempted_5` freezes.
"""

from __future__ import annotations

import os

from openai import OpenAI

from midstream import StreamRecord, monitor


def report(record: StreamRecord) -> None:
    """Say what happened to a stream. It gets the record of each, exactly once, however the stream ended."""
    if record.max_gap_s is None:
        print(f"\n\n{record.outcome}: too short an answer to have a gap")
        return
    still = ", and nothing ended it" if record.max_gap_open else ""
    print(
        f"\n\n{record.outcome}: silent for {record.max_gap_s:.2f} s at most{still}, {record.freezes} freezes"
    )


# OpenAI() reads OPENAI_BASE_URL and OPENAI_API_KEY by itself. What monitor() gives back is the same client.
client = monitor(OpenAI(), on_end=report)

stream = client.chat.completions.create(
    model=os.environ.get("OPENAI_MODEL", "my-model"),
    messages=[{"role": "user", "content": "Tell me a long story."}],
    max_tokens=1000,
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
