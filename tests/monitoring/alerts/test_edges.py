"""Every rule on both sides of its edge, as promtool sees it: silent just below, firing just above."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitoring.alerts.cases_answers import ANSWERS
from monitoring.alerts.cases_engines import ENGINES
from monitoring.alerts.cases_freezes import FREEZES, Case
from monitoring.alerts.promtool import Fired, run

CASES = (*FREEZES, *ANSWERS, *ENGINES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.words}")
def test_an_alert_fires_exactly_past_its_edge(case: Case, tmp_path: Path) -> None:
    """With exactly these labels and texts, or not at all."""
    fired = () if case.fired is None else (case.fired,) if isinstance(case.fired, Fired) else case.fired

    run(
        tmp_path,
        case.alert,
        case.series,
        at=case.at,
        fired=fired,
        tuning=case.tuning,
        interval=case.interval,
    )
