"""Runs tests/frameworks/ with the real packages: `make test-frameworks`.

Not all of them agree on a major of the openai SDK, and instrumentations are better kept from the frameworks, so there
are three environments, under .venv-frameworks/.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from support.environments import Environments, Run, interpreter, pytest, say

PYTHON = "3.12"
"""Some of the packages are not yet there for the newest Python; any from 3.10 to 3.13 will do."""


@dataclass(frozen=True)
class Group:
    """A dependency group of pyproject.toml, and the tests that need it."""

    name: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()


GROUPS = (
    Group("neighbours", ("neighbours", "gunicorn", "gevent"), ("--prerelease", "if-necessary-or-explicit")),
    Group("frameworks", ("langchain", "agents", "pydantic_ai", "anthropic")),
    Group("frameworks-openai2", ("llama_index",)),
    Group("frameworks-http", ("litellm", "adk", "transport")),
)


def main(wanted: list[str]) -> int:
    """Run the groups, print what the tests have measured, and say whether all have passed."""
    environments = Environments(".venv-frameworks")
    groups = [group for group in GROUPS if not wanted or group.name in wanted]
    with ThreadPoolExecutor(max_workers=2) as pool:
        runs = list(pool.map(lambda group: _run(environments, group), groups))
    for group, run in zip(groups, runs, strict=True):
        say(f"\n--- {group.name}: {run.said}")
        say("\n".join(re.findall(r"^\| .*$", run.output, re.MULTILINE)) if run.ok else run.output[-12000:])
    failed = sum(not run.ok for run in runs)
    say(f"\n{len(runs) - failed} passed, {failed} failed")
    return min(failed, 1)


def _run(environments: Environments, group: Group) -> Run:
    python = interpreter(PYTHON) or sys.executable
    made = environments.make(group.name, python, *group.options, "--group", group.name)
    tests = [f"tests/frameworks/test_{name}.py" for name in group.tests]
    # What others leave unclosed or deprecated is their business; a coroutine that nobody awaits might be ours.
    return pytest(
        made, ["-W", "ignore", "-W", "error::RuntimeWarning", *tests], MIDSTREAM_TEST_FRAMEWORKS="1"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
