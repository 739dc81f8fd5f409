"""What runs when the last open stream has ended."""

from __future__ import annotations

import logging

import pytest

from midstream._support import idle, internal_errors


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "_callbacks", [])


@pytest.mark.usefixtures("callbacks")
def test_a_callback_that_fails_keeps_no_other_from_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(internal_errors, "RAISE", False)
    monkeypatch.setattr(internal_errors, "_internal_errors", internal_errors.OnceLog())
    caplog.set_level(logging.WARNING)
    calls: list[str] = []

    def fails() -> None:
        raise RuntimeError("secret words")

    def works() -> None:
        calls.append("works")

    idle.on_idle(fails)
    idle.on_idle(works)
    idle.notify_idle()
    idle.off_idle(works)
    idle.off_idle(works)
    idle.notify_idle()

    assert calls == ["works"]
    assert [record.getMessage() for record in caplog.records] == [
        "the work of an idle process failed with RuntimeError; your stream is unaffected"
    ]
