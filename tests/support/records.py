"""Records and calls made by hand, where a test needs no stream to have one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import midstream.testing  # noqa: F401 - a failure of ours is then a failure of the test
from midstream.stream.model import Call, Outcome, StreamRecord


def a_call(**fields_: Any) -> Call:
    """Make a call of model `m` at `api.example.com`, with other values where given."""
    known: dict[str, Any] = {
        "operation": "chat",
        "provider": "openai",
        "server_address": "api.example.com",
        "server_port": 8000,
        "request_model": "m",
        "started": 0.0,
        "started_at": 0.0,
    }
    return Call(**{**known, **fields_})


def a_record(**fields_: Any) -> StreamRecord:
    """Make the record of a stream that ended well within a second and measured nothing else."""
    known: dict[str, Any] = {
        "started_at": 0.0,
        "operation": "chat",
        "provider": "openai",
        "server_address": "api.example.com",
        "server_port": 8000,
        "request_model": "m",
        "attributes": {},
        "outcome": Outcome.COMPLETED,
        "finish_reasons": ("stop",),
        "duration_s": 0.5,
        "waited_s": 0.5,
        "held_s": 0.0,
        "max_gap_open": False,
        "freezes": 0,
        "frozen_s": 0.0,
        "hidden": 0,
        "shared": 0,
        "suspected": "unknown",
        "freeze_after_s": 5.0,
        "freeze_spans": (),
        "chunks": 2,
        "content_chunks": 1,
        "input_tokens": 3,
        "output_tokens": 1,
        "usage_complete": True,
        "limit_hit": False,
        "buffered": False,
    }
    unknown = dict.fromkeys(field.name for field in fields(StreamRecord))
    return StreamRecord(**{**unknown, **known, **fields_})
