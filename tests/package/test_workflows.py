"""The workflows, which nothing runs here: they are valid YAML, and name only what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EACH_WORKFLOW = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def steps(path: Path) -> list[dict[str, Any]]:
    """All steps of all jobs of a workflow."""
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def test_there_are_workflows_for_tests_docs_and_releases() -> None:
    assert [path.name for path in WORKFLOWS] == ["docs.yml", "release.yml", "tests.yml"]


@EACH_WORKFLOW
def test_a_workflow_may_only_read_unless_a_job_needs_more(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}


@EACH_WORKFLOW
def test_every_job_has_a_time_limit(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    assert [name for name, job in jobs.items() if "timeout-minutes" not in job] == []


@EACH_WORKFLOW
def test_every_action_has_a_version(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert [action for action in used if not re.search(r"@(v\d+|release/v\d+)$", action)] == []


@EACH_WORKFLOW
def test_every_make_target_exists(path: Path) -> None:
    told = "\n".join(step.get("run", "") for step in steps(path))
    targets = set(re.findall(r"^make ([\w-]+)", told, re.MULTILINE))
    assert targets <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_session_exists_and_every_supported_python_is_tested() -> None:
    """The Pythons are those of the package's classifiers."""
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    sessions = set(re.findall(r"^[*-] (\S+)", listed, re.MULTILINE))
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    pythons = jobs["python"]["strategy"]["matrix"]["python"]
    used = {f"tests-{python}" for python in pythons} | {*jobs["sdk"]["strategy"]["matrix"]["session"]}

    assert used <= sessions
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert pythons == classifiers
