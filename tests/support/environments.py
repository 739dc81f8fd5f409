"""Environments to run tests in, beside the one that runs this: several SDKs, several Pythons, several frameworks.

They are made with uv, which has one ready in a second; with pip alone it would be minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.paths import ROOT

TESTS_FAILED = 1
"""What pytest exits with if tests failed and nothing else was wrong."""
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Run:
    """One run of pytest: its last line, all it printed, whether it passed in the end, and how long it took."""

    said: str
    output: str
    ok: bool
    seconds: float


class Environments:
    """Environments under one folder, kept from one run to the next."""

    def __init__(self, folder: str) -> None:
        self._home = ROOT / folder
        self._home.mkdir(exist_ok=True)
        self._uv = shutil.which("uv") or self._own_uv()

    def make(self, name: str, python: str, *requirements: str) -> Path:
        """Give the Python of an environment with midstream, from the source tree, and what else is asked for."""
        made = self._home / name / "bin" / "python"
        if not made.exists():
            _call([self._uv, "venv", "--quiet", "--python", python, str(made.parent.parent)])
        _call(
            [self._uv, "pip", "install", "--quiet", "--python", str(made), "--editable", ".", *requirements]
        )
        return made

    def versions(self, python: Path) -> dict[str, str]:
        """Give what is installed in an environment."""
        listed = _call([self._uv, "pip", "list", "--python", str(python), "--format", "json"])
        return {package["name"]: package["version"] for package in json.loads(listed)}

    def _own_uv(self) -> str:
        tools = self._home / "tools"
        if not (tools / "bin" / "uv").exists():
            say(f"Installing uv into {tools.relative_to(ROOT)} (once) ...")
            _call([sys.executable, "-m", "venv", str(tools)])
            _call([str(tools / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
        return str(tools / "bin" / "uv")


def pytest(python: Path, tests: Sequence[str], **env: str) -> Run:
    """Run tests in an environment.

    Several environments run side by side, so a test that measures real time may find no processor free. What fails is
    run once more; the result says so.
    """
    began = time.monotonic()
    cache = python.parent.parent / "pytest-cache"
    command = [str(python), "-m", "pytest", "-q", "-o", f"cache_dir={cache}", *tests]
    shutil.rmtree(cache, ignore_errors=True)
    done = _pytest(command, env)
    said, output = _last_line(done), done.stdout + done.stderr
    if done.returncode == TESTS_FAILED:
        done = _pytest([*command, "--last-failed"], env)
        said = f"{said}; run again: {_last_line(done)}"
        output += done.stdout + done.stderr
    return Run(said, output, done.returncode == 0, time.monotonic() - began)


def _pytest(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **env}
    )


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1].strip("= ") if lines else f"exit code {done.returncode}, and not a word"


def interpreter(version: str) -> str | None:
    """Find a working Python of this version: this one, one on the path, or one of pyenv's. None is downloaded."""
    if version == HERE:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    known = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    for candidate in [*([on_path] if on_path else []), *map(str, known)]:
        works = subprocess.run([candidate, "-c", "import sqlite3, ssl"], capture_output=True, check=False)
        if works.returncode == 0:
            return candidate
    return None


def say(text: str) -> None:
    """Print a line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _call(command: list[str]) -> str:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout
