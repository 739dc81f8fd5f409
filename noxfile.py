"""What needs environments of its own: other Pythons, other openai SDKs, other people's packages, the site.

    nox --list
    nox --session tests-3.13            one of them
    nox --session sdk --tags oldest     the SDK tests with the oldest SDK on the Python at hand
    nox --session tests -- tests/stream the words after -- replace the tests that are run

`make test-matrix`, `make test-frameworks` and `make docs` call this. Environments are kept under `.nox/`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
OLDEST = "openai==1.40.0"
PARALLEL = ("-n", "6", "--dist", "loadgroup", "-m", "not alone")
"""Several environments may be at work on one machine, so what measures time closely is left to `make test`."""
UNCLOSED = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""Before 3.0 a client that is left to the garbage collector closes itself, on an event loop that may be gone."""

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["sdk", "frameworks", "docs"]

_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
if _pyenv.is_dir():  # its commands such as python3.10 work only if the versions are named
    _found = [each.name for each in _pyenv.iterdir() if re.match(r"3\.1\d\.\d+$", each.name)]
    os.environ.setdefault("PYENV_VERSION", ":".join(sorted(_found)))


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run all tests on another Python, but for those of other programs, which do not depend on it."""
    _install(session, "--group", "test", ".[all]")
    session.run("pytest", *PARALLEL, *(session.posargs or ["tests", "--ignore=tests/real"]))


@nox.session
@nox.parametrize(
    "python,openai",
    [
        nox.param(HERE, OLDEST, id="1.40", tags=["oldest"]),
        nox.param(HERE, "openai<2", id="1"),
        nox.param(HERE, "openai<3", id="2"),
        *([] if HERE == "3.10" else [nox.param("3.10", OLDEST, id="1.40-3.10")]),
    ],
)
def sdk(session: nox.Session, openai: str) -> None:
    """Run the tests that use the SDK with an older one; with those in between, only what needs no real sockets."""
    # Before 1.55.3 the SDK passes httpx an argument that httpx dropped in 0.28.
    constraints = ["httpx<0.28"] if openai == OLDEST else []
    _install(session, "--group", "test", ".[all]", openai, *constraints)
    session.run(
        "pytest", *UNCLOSED, *PARALLEL, *(session.posargs or _tests_of_the_sdk(real_time=openai == OLDEST))
    )


@nox.session
@nox.parametrize(
    "group,tests",
    [
        nox.param("neighbours", ("neighbours", "http_neighbours", "gunicorn", "gevent"), id="neighbours"),
        nox.param(
            "frameworks", ("langchain", "agents", "pydantic_ai", "anthropic", "fallbacks"), id="frameworks"
        ),
        nox.param("frameworks-openai2", ("llama_index",), id="frameworks-openai2"),
        nox.param(
            "frameworks-http",
            ("litellm", "adk", "stall_timeout", "fallbacks", "transport"),
            id="frameworks-http",
        ),
        nox.param("frameworks-proxy", ("litellm_proxy",), id="frameworks-proxy"),
    ],
)
def frameworks(session: nox.Session, group: str, tests: tuple[str, ...]) -> None:
    """Run tests/frameworks with the real packages, in several environments: not all agree on a major of the SDK."""
    options = ["--prerelease", "if-necessary-or-explicit"] if group == "neighbours" else []
    _install(session, *options, "--group", group)
    files = session.posargs or [f"tests/frameworks/test_{name}.py" for name in tests]
    # What others leave unclosed or deprecated is their business; a coroutine that is never awaited might be ours.
    session.run(
        *("pytest", "-W", "ignore", "-W", "error::RuntimeWarning", *files),
        env={"MIDSTREAM_TEST_FRAMEWORKS": "1"},
    )


@nox.session(python=HERE)
def docs(session: nox.Session) -> None:
    """Build the documentation site into site/; a broken link or an undocumented name is an error."""
    session.install("--group", "docs")
    session.run("mkdocs", "build", "--strict", "--quiet", *session.posargs, env={"NO_MKDOCS_2_WARNING": "1"})


def _install(session: nox.Session, *requirements: str) -> None:
    session.install("--editable", ".", *requirements)


def _tests_of_the_sdk(*, real_time: bool) -> list[str]:
    """List the test files that drive the SDK; for the others its version makes no difference."""
    files = {file: file.read_text() for file in sorted((ROOT / "tests").rglob("test_*.py"))}
    return [
        str(file.relative_to(ROOT))
        for file, text in files.items()
        if not {"real", "frameworks"} & {*file.parts}
        and re.search(r"^from support\.(harness|hostile_world) import", text, re.MULTILINE)
        and (real_time or "WireServer" not in text)
    ]
