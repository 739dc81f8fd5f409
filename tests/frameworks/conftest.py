"""These tests need packages of their own: `make test-frameworks` installs them, and then sets the variable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.frameworks_through import ROWS, Through

if not os.environ.get("MIDSTREAM_TEST_FRAMEWORKS"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def through() -> Iterator[Through]:
    """A server that freezes in mid-answer, and everything that is measured while somebody reads from it."""
    with Through() as measured:
        yield measured


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of what was measured."""
    for row in ROWS if len(ROWS) > 1 else []:
        terminalreporter.write_line(row)
