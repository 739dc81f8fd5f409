"""The pages about the lab show what their scripts print today."""

import subprocess
import sys

import pytest

from support.paths import ROOT


@pytest.mark.parametrize("page", ["reality", "writeup"])
def test_the_tables_of_a_page_are_those_that_its_script_prints(page: str) -> None:
    """Every line of every table stands in the page; a rule that changes changes the page with it."""
    command = [sys.executable, "-m", f"benchmarks.{page}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    shown = (ROOT / "docs" / f"lab-{page}.md").read_text().splitlines()
    assert [line for line in done.stdout.splitlines() if line.startswith("|") and line not in shown] == []
