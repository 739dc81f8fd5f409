"""The documentation: its programs run, its commands exist, its links lead somewhere, its tables are the code's."""

from __future__ import annotations

import inspect
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import pytest
from benchmarks.wire import WireServer

import midstream
from midstream.cli import COMMANDS, main
from midstream.telemetry.instruments import METRICS, PHASE, prometheus_name
from midstream.testing import DONE, finish, role, text, usage
from support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings there

README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

ANSWER: list[tuple[float, str]] = [
    (0.0, role()),
    *((0.01 * n, text("word ")) for n in range(1, 5)),
    (0.05, finish() + usage(9, 4) + DONE),
]
RUN = """
import sys
from pathlib import Path
path, = sys.argv[1:]
names = {"__name__": "__main__"}
exec(compile(Path(path).read_text(), path, "exec"), names)
for name, test in list(names.items()):
    if name.startswith("test_"):
        test()
"""
"""Runs a page's programs from top to bottom, as a reader would, and then the tests that they define."""


class Fence(NamedTuple):
    """A block of code on a page: what it is written in, the number of its first line, its lines."""

    language: str
    line: int
    lines: tuple[str, ...]


def fences(page: Path) -> Iterator[Fence]:
    """Every block of code on a page. One in a list is indented, and comes without that."""
    for block in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE):
        lines = [line.removeprefix(block[1]) for line in block[3].splitlines()]
        yield Fence(block[2], page.read_text()[: block.start(3)].count("\n"), tuple(lines))


def program(page: Path) -> str:
    """The Python on a page, each line at its own number, so that a traceback points into the page."""
    lines = [""] * len(page.read_text().splitlines())
    for fence in fences(page):
        if fence.language == "python":
            lines[fence.line : fence.line + len(fence.lines)] = fence.lines
    return "\n".join(lines)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def words(page: Path) -> list[str]:
    """What stands in backticks on a page, beside its blocks of code."""
    return re.findall(r"`([^`\n]+)`", prose(page))


# Programs


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, subprocess.Popen[str]]]:
    """Every page's programs, at work in a process for each page, against a server of ours."""
    folder = tmp_path_factory.mktemp("pages")
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MIDSTREAM_", "OTEL_"))
    }
    with WireServer(ANSWER) as server:
        environment = {
            **clean,
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "none",
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
        }
        started = {}
        for page in WITH_PROGRAMS:
            path = folder / page.name
            path.write_text(program(page))
            started[page] = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", RUN, str(path)],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        yield started
        for process in started.values():
            process.kill()
            process.communicate()


WITH_PROGRAMS = [page for page in PAGES if any(fence.language == "python" for fence in fences(page))]


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.name)
def test_the_programs_of_a_page_run(page: Path, running: dict[Path, subprocess.Popen[str]]) -> None:
    """From top to bottom, warnings being errors, and nothing of ours fails meanwhile."""
    _, complaints = running[page].communicate(timeout=60)
    assert running[page].returncode == 0, complaints
    expected = r"midstream: stream (froze|resumed|ended while frozen)"
    ours = [line for line in complaints.splitlines() if "midstream:" in line and not re.match(expected, line)]
    assert ours == []


CONFIGURATION = ROOT / "docs" / "configuration.md"
SNIPPETS = [fence for fence in fences(CONFIGURATION) if fence.language == "python"]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: f"line {snippet.line}")
def test_a_snippet_of_the_configuration_runs_alone(snippet: Fence, tmp_path: Path) -> None:
    """Whoever looks something up there copies one of them, and not the page."""
    path = tmp_path / "snippet.py"
    path.write_text("\n".join(snippet.lines))
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MIDSTREAM_", "OTEL_"))
    }
    with WireServer(ANSWER) as server:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUN, str(path)],
            cwd=tmp_path,
            env={
                **clean,
                "OPENAI_BASE_URL": server.base_url,
                "OPENAI_API_KEY": "none",
                "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr


def test_the_readme_needs_six_lines() -> None:
    """The first program of the README is as short as it says."""
    first = next(fence for fence in fences(README) if fence.language == "python")
    assert len([line for line in first.lines if line.strip()]) == 6


# Commands


def shown_commands(page: Path) -> Iterator[list[str]]:
    """Every `midstream` command on a page, in a block or in backticks, as words."""
    for fence in fences(page):
        if fence.language in {"", "sh", "console"}:
            for line in "\n".join(fence.lines).replace("\\\n", " ").splitlines():
                yield from command_in(re.sub(r"^(\$ )?(\w+=\S* )*", "", line))
    for word in words(page):
        yield from command_in(word)


def command_in(line: str) -> Iterator[list[str]]:
    """The command that this line is, if it is one of ours, up to a pipe or a comment."""
    if line.startswith("midstream "):
        yield shlex.split(re.split(r" [|>] ", line)[0], comments=True)[1:]


@cache
def options_of(*command: str) -> frozenset[str]:
    """The options that the `--help` of a command, or of a command of a command, names."""
    shown = io.StringIO()
    with redirect_stdout(shown), patch.dict(os.environ, {"COLUMNS": "200"}):
        assert main([*command, "--help"]) == 0
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown.getvalue()))


@EACH_PAGE
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    """`midstream COMMAND --help` succeeds, and knows every option that the page shows."""
    for command, *arguments in shown_commands(page):
        if command.startswith("-"):
            assert command in {"--help", "--install-completion", "--show-completion", "--version"}
            continue
        assert command in COMMANDS
        shown = {word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)}
        # One that has commands of its own, such as `midstream advise max-tokens`, leaves the options to them.
        inner = arguments[:1] if command == "advise" and arguments and arguments[0][0] != "-" else []
        assert shown - {"--help"} <= options_of(command, *inner) | {"--help"}


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """The overview has every command that the README's table has."""
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in overview] == []


@EACH_PAGE
def test_what_is_to_be_made_and_installed_exists(page: Path) -> None:
    """Targets of the Makefile, extras of the package, programs and folders of the repository."""
    lines = [line for fence in fences(page) if fence.language in {"sh", "console"} for line in fence.lines]
    told = "\n".join([*lines, *words(page)])
    targets = set(re.findall(r"^make (\w+)", told, re.MULTILINE))
    assert targets <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = {name for names in re.findall(r"midstream\[([\w,]+)\]", told) for name in names.split(",")}
    assert extras <= pyproject()["project"]["optional-dependencies"].keys()
    for path in re.findall(r"\b((?:docs|examples|tests|benchmarks)/[\w./-]*\w)", told):
        assert (ROOT / path).exists(), path


# Links


@EACH_PAGE
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    """Every relative one names a file that is there, and a heading that is in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        name, _, heading = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        if heading:
            assert heading in headings(file), target


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_readme_leads_to_every_page() -> None:
    """It is the index of the documentation."""
    linked = {(ROOT / target).resolve() for target in re.findall(r"\]\(([^)\s#]+)\)", README.read_text())}
    assert [page.name for page in PAGES if page != README and page not in linked] == []


# What the code says


def test_the_tables_are_those_of_the_code() -> None:
    """`python docs/generate.py` mends it if they are not."""
    checked = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "module",
    ["midstream", "midstream.advice", "midstream.journal", "midstream.testing", "midstream.instrumentor"],
)
def test_the_reference_has_every_public_name(module: str) -> None:
    """A page of docs/api names what the site takes from the docstrings; each of these has one."""
    page = ROOT / "docs" / "api" / f"{module.rpartition('.')[2]}.md"
    listed = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", page.read_text(), re.MULTILINE)
    found = import_module(module)
    defined = [
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module
        and not isinstance(value, TypeVar)
    ]

    assert sorted({*getattr(found, "__all__", defined)} - {*listed}) == []
    assert [name for name in listed if not hasattr(found, name)] == []
    undescribed = [
        name for name in listed if callable(getattr(found, name)) and not getattr(found, name).__doc__
    ]
    assert undescribed == []


RECORD = {field.name for field in fields(midstream.StreamRecord)}
FREEZE = {field.name for field in fields(midstream.Freeze)}
SPAN = {field.name for field in fields(midstream.FreezeSpan)}
OPEN = {field.name for field in fields(midstream.OpenStream)}
MONITOR = set(inspect.signature(midstream.instrument).parameters)
SETUP = set(inspect.signature(midstream.setup).parameters)


@pytest.mark.parametrize(
    ("name", "explained"),
    [
        ("measured.md", RECORD | {outcome.value for outcome in midstream.Outcome}),
        ("configuration.md", MONITOR | SETUP | FREEZE),
        ("whose-silence.md", {"max_gap_s", "max_interval_s", "max_hold_s", "loop_blocked_s", "wire_gap_s"}),
        ("whose-silence.md", {"hidden", "shared", "suspected", "clock_jump_s", "stood_still_s"}),
        ("README.md", {"demo", "test"}),
    ],
    ids=["record", "settings", "durations", "attribution", "targets"],
)
def test_a_page_explains_all_that_it_is_for(name: str, explained: set[str]) -> None:
    """Every field, outcome and keyword stands on the page that is for it."""
    page = next(page for page in PAGES if page.name == name)
    missing = {word for word in explained if not re.search(rf"\b{word}\b", page.read_text())}
    assert missing == set()


@EACH_PAGE
def test_a_page_names_no_field_that_does_not_exist(page: Path) -> None:
    """What is written like a duration is a field or a keyword."""
    durations = {word for word in words(page) if re.fullmatch(r"[a-z_]+_s", word)}
    assert durations <= RECORD | FREEZE | SPAN | OPEN | MONITOR | SETUP


@EACH_PAGE
def test_a_page_names_no_metric_that_does_not_exist(page: Path) -> None:
    """In Prometheus' spelling or in OpenTelemetry's."""
    scraped = tuple(prometheus_name(metric) for metric in METRICS)
    told = set(re.findall(r"\bstream_\w+_(?:seconds|total|ratio|bucket|sum|count)\b", page.read_text()))
    assert [name for name in sorted(told) if not name.startswith(scraped)] == []
    told = {word for word in words(page) if re.fullmatch(r"stream\.[a-z_]+", word)}
    assert told <= {metric.name for metric in METRICS} | {"stream.freeze", PHASE}


def test_every_variable_is_explained() -> None:
    """Each `MIDSTREAM_*` and `OTEL_*` variable that the code reads is in the configuration, and no other of ours."""
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    page = (ROOT / "docs" / "configuration.md").read_text()
    read = set(re.findall(r"\"((?:MIDSTREAM|OTEL)_[A-Z_]*[A-Z])\"", source))
    assert read <= set(re.findall(r"`((?:MIDSTREAM|OTEL)_[A-Z_]+)", page))
    ours = {name for page in PAGES for name in re.findall(r"\bMIDSTREAM_[A-Z_]*[A-Z]\b", page.read_text())}
    assert ours <= read


def pyproject() -> dict[str, Any]:
    """The project's own description of itself."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text()))


def test_every_dependency_is_explained() -> None:
    """Each package that `pyproject.toml` names has its line."""
    described = pyproject()
    project = described["project"]
    groups = (*project["optional-dependencies"].values(), *described["dependency-groups"].values())
    required = [*project["dependencies"], *described["build-system"]["requires"]]
    required += [name for group in groups for name in group if isinstance(name, str)]
    packages = {re.split(r"[\[<>=; ]", requirement)[0] for requirement in required} - {"midstream"}
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert sorted(package for package in packages if f"`{package}`" not in page) == []
