"""Runs the tests against every supported major of the openai SDK, and on the oldest and the newest Python.

    make test-matrix                      # all cells, in environments of their own under .venv-matrix/
    python tests/matrix.py 1.40 3.13      # only the cells whose SDK or Python begins so

On the Python at hand only the tests that use the SDK are run, since `make test` runs them all; with SDKs between the
oldest and the newest, only those of them that need no real time. On another Python all are run, but for tests/real/:
what runs there are programs of others, which know nothing of our Python.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from support.environments import HERE, Environments, interpreter, pytest, say
from support.paths import ROOT

OLDEST, LAST_1, LAST_2, NEWEST = "openai==1.40.0", "openai<2", "openai<3", "openai<4"
CELLS = [
    # The longest first.
    *(cell for cell in (("3.10", NEWEST), ("3.13", NEWEST)) if cell[0] != HERE),
    (HERE, OLDEST),
    *((python, OLDEST) for python in ("3.10",) if python != HERE),
    (HERE, LAST_1),
    (HERE, LAST_2),
    (HERE, NEWEST),
]
OLD_HTTPX = "httpx<0.28"
"""Before 1.55.3 the SDK passes httpx an argument that httpx dropped in 0.28."""
UNCLOSED = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""Before 3.0 a client that is left to the garbage collector closes itself, on a loop that may be gone."""


@dataclass(frozen=True)
class Result:
    """What became of one cell."""

    openai: str
    python: str
    said: str
    ok: bool
    output: str = ""
    seconds: float = 0.0


def main(wanted: list[str]) -> int:
    """Run the cells, print the table, and say with the exit code whether all that could run have passed."""
    environments = Environments(".venv-matrix")
    cells = [cell for cell in CELLS if not wanted or any(_matches(cell, word) for word in wanted)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda cell: _run(environments, *cell), cells))
    for result in results:
        if not result.ok:
            say(f"\n--- openai {result.openai} on Python {result.python}\n{result.output[-8000:]}")
    say(f"\n{'openai':<10} {'Python':<8} {'seconds':>7}  result")
    for result in results:
        say(f"{result.openai:<10} {result.python:<8} {result.seconds:>7.0f}  {result.said}")
    failed = sum(not result.ok for result in results)
    say(f"\n{len(results) - failed} passed, {failed} failed")
    return min(failed, 1)


def _run(environments: Environments, python: str, requirement: str) -> Result:
    found = interpreter(python)
    if found is None:
        said = f"skipped: there is no Python {python} on this machine"
        return Result(
            requirement.removeprefix("openai"), python, said, ok="CI" not in os.environ, output=said
        )
    name = f"py{python}-{re.sub('[^0-9a-z.]+', '-', requirement)}"
    constraints = [OLD_HTTPX] if requirement == OLDEST else []
    made = environments.make(name, found, "--group", "test", ".[all]", requirement, *constraints)
    if python != HERE and requirement == NEWEST:
        tests = ["tests", "--ignore=tests/real"]
    else:
        tests = _tests_of_the_sdk(real_time=requirement == OLDEST)
    run = pytest(made, [*(() if requirement == NEWEST else UNCLOSED), *tests])
    version = environments.versions(made)["openai"]
    return Result(version, python, run.said, run.ok, run.output, run.seconds)


def _tests_of_the_sdk(*, real_time: bool) -> list[str]:
    """Test files that drive the SDK; to the others its version is all the same."""
    files = {file: file.read_text() for file in sorted((ROOT / "tests").rglob("test_*.py"))}
    return [
        str(file.relative_to(ROOT))
        for file, text in files.items()
        if not {"real", "frameworks"} & {*file.parts}
        and re.search(r"^from support\.(harness|hostile_world) import", text, re.MULTILINE)
        and (real_time or "WireServer" not in text)
    ]


def _matches(cell: tuple[str, str], word: str) -> bool:
    python, requirement = cell
    return python.startswith(word) or requirement.removeprefix("openai").lstrip("=<").startswith(word)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
