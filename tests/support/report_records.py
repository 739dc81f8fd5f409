"""Ten streams for the tests of the report, few enough to count by hand, and names that nobody should trust."""

from __future__ import annotations

from midstream.stream.model import FreezeSpan, Outcome, StreamRecord
from support.records import a_record

AT = 1_790_000_000.0
"""2026-09-21 14:13:20 in UTC."""

HOSTILE = "</script><script>document.title='owned'</script>"
HOSTILE_ATTRIBUTE = '"><img src=x onerror="document.title=\'owned\'">'
HOSTILE_SERVER = "<b>evil</b>\u202e\u2066.example.com\x1b[31m\x00"
"""What would run, or turn a line around, if a page took it for anything but text."""


def span(
    at_s: float, length_s: float, *, hidden: bool = False, shared: bool = False, open_: bool = False
) -> FreezeSpan:
    """Make a freeze of text."""
    return FreezeSpan(at_s, length_s, "text", hidden, shared, open_)


def ten() -> list[StreamRecord]:
    """Ten streams of two models at one server, one second apart; see each for what it is."""
    smooth = [
        a_record(
            started_at=AT + n,
            request_model="small",
            attributes={"team": "search"},
            duration_s=10.0,
            max_gap_s=(n + 1) / 10,
            max_gap_at_s=2.0,
            max_gap_phase="text",
            time_to_first_content_s=0.2,
            output_tokens=100,
            token_limit=200,
            content_chunks=100,
        )
        for n in range(4)
    ]
    return [
        *smooth,
        a_record(  # froze twice, once together with others
            started_at=AT + 4,
            request_model="big",
            duration_s=40.0,
            max_gap_s=12.0,
            max_gap_at_s=5.0,
            max_gap_phase="text",
            freezes=2,
            frozen_s=18.0,
            shared=1,
            freeze_spans=(span(5.0, 12.0), span(20.0, 6.0, shared=True)),
            time_to_first_content_s=1.0,
            output_tokens=300,
            token_limit=300,
            limit_hit=True,
            finish_reasons=("length",),
        ),
        a_record(  # froze with it, and was given up in that freeze
            started_at=AT + 5,
            request_model="big",
            duration_s=25.0,
            max_gap_s=6.0,
            max_gap_at_s=19.0,
            max_gap_phase="text",
            max_gap_open=True,
            freezes=1,
            frozen_s=6.0,
            shared=1,
            freeze_spans=(span(19.0, 6.0, shared=True, open_=True),),
            time_to_first_content_s=3.0,
            outcome=Outcome.CANCELLED,
            finish_reasons=(),
            output_tokens=None,
            usage_complete=False,
        ),
        a_record(  # froze while nobody waited
            started_at=AT + 6,
            request_model="big",
            duration_s=20.0,
            max_gap_s=0.5,
            max_gap_at_s=1.0,
            max_gap_phase="text",
            hidden=1,
            freeze_spans=(span(8.0, 7.0, hidden=True),),
            time_to_first_content_s=0.5,
            output_tokens=50,
        ),
        a_record(  # came in one burst
            started_at=AT + 7,
            request_model="big",
            duration_s=9.0,
            max_gap_s=0.0,
            buffered=True,
            time_to_first_content_s=8.9,
            output_tokens=80,
        ),
        a_record(  # ended by length, though no limit was asked for
            started_at=AT + 8,
            request_model="big",
            duration_s=12.0,
            max_gap_s=0.3,
            max_gap_at_s=1.0,
            max_gap_phase="reasoning",
            time_to_first_content_s=0.4,
            output_tokens=400,
            finish_reasons=("length",),
        ),
        a_record(  # failed before anything came
            started_at=AT + 9,
            request_model="big",
            duration_s=2.0,
            outcome=Outcome.ERROR,
            finish_reasons=(),
            output_tokens=None,
            input_tokens=None,
            usage_complete=False,
        ),
    ]


def hostile() -> StreamRecord:
    """Make a stream whose every name is an attack on whoever shows it."""
    return a_record(
        started_at=AT + 3,
        request_model=HOSTILE,
        server_address=HOSTILE_SERVER,
        attributes={"team": HOSTILE_ATTRIBUTE, "x" * 20 + "<i>": "%{y} {{7*7}}"},
        duration_s=15.0,
        max_gap_s=6.5,
        max_gap_at_s=3.0,
        max_gap_phase="text",
        freezes=1,
        frozen_s=6.5,
        freeze_spans=(span(3.0, 6.5),),
        time_to_first_content_s=0.3,
        finish_reasons=("<script>alert(1)</script>",),
        trace_id="<svg onload=alert(1)>",
        output_tokens=10,
        token_limit=20,
    )
