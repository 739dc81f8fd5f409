"""The recipe of docs/stall-timeout.md, run against two servers of which the first stalls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.wire import Script, WireServer
from openai import OpenAI

from midstream import StreamStalled
from midstream.testing import DONE, PING, collect, finish, role, text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stall-timeout.md"
PINGS = [(0.1 + 0.1 * number, PING) for number in range(100)]
WHOLE: Script = [(0.02, role()), (0.04, text("Hello")), (0.06, text(" you")), (0.08, finish()), (0.08, DONE)]
SILENT: Script = [(0.02, role()), *PINGS]
HALF: Script = [(0.02, role()), (0.04, text("Hel")), *PINGS]


def recipe() -> Callable[..., Iterator[str]]:
    """The function as it stands on the page."""
    (source,) = re.findall(r"```python\n(def answer_of.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"StreamStalled": StreamStalled}
    exec(compile(source, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    answer_of: Callable[..., Iterator[str]] = names["answer_of"]
    return answer_of


@pytest.mark.parametrize(
    ("first", "second", "shown", "stalls"),
    [
        (WHOLE, WHOLE, "Hello you", False),
        (SILENT, WHOLE, "Hello you", False),
        (HALF, WHOLE, "Hel", True),
        (SILENT, SILENT, "", True),
    ],
    ids=["nothing stalls", "before the first output", "in mid-answer", "both stall"],
)
def test_another_server_is_asked_only_while_nothing_was_shown(
    first: Script, second: Script, shown: str, stalls: bool
) -> None:
    """What the reader sees is one answer, or half an answer and the exception."""
    seen = collect(stall_timeout_s=1.0, first_content_timeout_s=1.0)
    pieces: list[str] = []
    with WireServer(first) as one, WireServer(second) as other:
        clients = [
            seen.monitor(OpenAI(api_key="none", base_url=server.base_url, max_retries=0))
            for server in (one, other)
        ]
        try:
            for piece in recipe()(clients, [{"role": "user", "content": "hi"}]):
                pieces.append(piece)  # noqa: PERF402 - what came before the exception is kept
        except StreamStalled:
            assert stalls
        else:
            assert not stalls
        for client in clients:
            client.close()

    assert "".join(pieces) == shown
