"""Where the repository and its recordings are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
RECORDINGS = TESTS / "recordings"
