"""Runs the tests against every supported major of the openai SDK, and on the oldest and the newest Python.

    make test-matrix                      # all cells, in environments of their own under .venv-matrix/
    python tests/matrix.py 1.40 3.13      # only the cells whose SDK or Python begins so

On other SDKs than the newest only the tests that use one are run. On another Python all are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-matrix"
OLDEST, NEWEST = "openai==1.40.0", "openai<4"
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = ("3.10", "3.13")
CELLS = [
    (HERE, OLDEST),
    (HERE, "openai<2"),
    (HERE, "openai<3"),
    (HERE, NEWEST),
    *((python, NEWEST) for python in PYTHONS if python != HERE),
    *((python, OLDEST) for python in PYTHONS[:1] if python != HERE),
]
# Before 1.55.3 the SDK passes httpx an argument that httpx dropped in 0.28.
OLD_HTTPX = "httpx<0.28"


@dataclass
class Result:
    """What became of one cell."""

    python: str
    openai: str
    said: str
    output: str = ""
    seconds: float = 0.0
    ok: bool = True


def main(wanted: list[str]) -> int:
    """Run the cells, print the table, and say with the exit code whether all that could run have passed."""
    cells = [cell for cell in CELLS if not wanted or any(_matches(cell, word) for word in wanted)]
    HOME.mkdir(exist_ok=True)
    uv = _uv()
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda cell: _run(uv, *cell), cells))
    for result in results:
        if not result.ok:
            _say(f"\n--- openai {result.openai} on Python {result.python}\n{result.output[-6000:]}")
    _say(f"\n{'openai':<10} {'Python':<8} {'seconds':>7}  result")
    for result in results:
        _say(f"{result.openai:<10} {result.python:<8} {result.seconds:>7.0f}  {result.said}")
    failed = sum(not result.ok for result in results)
    _say(f"\nmatrix: {len(results) - failed} passed, {failed} failed")
    return min(failed, 1)


def _run(uv: str, python: str, requirement: str) -> Result:
    exact = _python(python)
    if exact is None:
        said = f"skipped: there is no Python {python} on this machine"
        return Result(python, requirement.removeprefix("openai"), said, said, ok="CI" not in os.environ)
    venv = HOME / f"py{python}-{re.sub(r'[^0-9a-z.]+', '-', requirement)}"
    began = time.monotonic()
    try:
        _install(uv, exact, venv, requirement)
    except subprocess.CalledProcessError as exc:
        return Result(python, requirement, "could not be installed", exc.stderr, ok=False)
    listed = json.loads(_call([uv, "pip", "list", "--python", str(venv / "bin/python"), "--format", "json"]))
    (version,) = [package["version"] for package in listed if package["name"] == "openai"]
    tests = ["tests"] if python != HERE and requirement == NEWEST else _tests_of_the_sdk()
    done = subprocess.run(
        [venv / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    said = lines[-1].strip("= ")
    return Result(python, version, said, done.stdout + done.stderr, time.monotonic() - began, done.returncode == 0)


def _install(uv: str, python: str, venv: Path, requirement: str) -> None:
    if not (venv / "bin/python").exists():
        _call([uv, "venv", "--quiet", "--python", python, str(venv)])
    install = [uv, "pip", "install", "--quiet", "--python", str(venv / "bin/python")]
    constraints = [OLD_HTTPX] if requirement == OLDEST else []
    _call([*install, "--group", "test", "--editable", ".[all]", requirement, *constraints])


def _tests_of_the_sdk() -> list[str]:
    """Test files that drive the SDK; the others are the same whatever its version."""
    files = sorted((ROOT / "tests").glob("test_*.py"))
    return [str(file) for file in files if re.search(r"^(from|import) (openai|harness)", file.read_text(), re.M)]


def _python(version: str) -> str | None:
    """A working interpreter of this version: on the path, or among those of pyenv. None is downloaded."""
    if version == HERE:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    candidates = [*([on_path] if on_path else []), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))]
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", "import sys, ssl, sqlite3"], capture_output=True, check=False)
        if done.returncode == 0:
            return candidate
    return None


def _uv() -> str:
    """The uv on the path, or one of our own: with pip alone the environments would take minutes."""
    found = shutil.which("uv")
    if found is not None:
        return found
    tools = HOME / "tools"
    if not (tools / "bin/uv").exists():
        _say("Installing uv into .venv-matrix/tools (once) ...")
        _call([sys.executable, "-m", "venv", str(tools)])
        _call([str(tools / "bin/python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(tools / "bin/uv")


def _call(command: list[str]) -> str:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment).stdout


def _matches(cell: tuple[str, str], word: str) -> bool:
    python, requirement = cell
    return python.startswith(word) or requirement.removeprefix("openai").lstrip("=<").startswith(word)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
