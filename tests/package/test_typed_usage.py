"""The program that the type checkers read uses all there is to use."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import midstream
from midstream import instrumentor, journal, testing
from midstream.runtime.settings import Settings

HERE = Path(__file__).parent
TREE = ast.parse((HERE / "typed_usage.py").read_text())
MODULES = [midstream, journal, testing, instrumentor]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_used(module: ModuleType) -> None:
    """What is exported is imported there, and then used."""
    name, public = module.__name__, public_names(module)
    imported = {
        alias.name
        for node in ast.walk(TREE)
        if isinstance(node, ast.ImportFrom) and node.module == name
        for alias in node.names
    }
    used = {node.id for node in ast.walk(TREE) if isinstance(node, ast.Name)}

    assert imported == set(public)
    assert imported - used == set()


def public_names(module: ModuleType) -> set[str]:
    """What a module says that it exports, or else what it defines under a public name."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    found: set[str] = set()
    for node in ast.parse(Path(module.__file__ or "").read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")} - {"log"}


@pytest.mark.parametrize(
    "function", [midstream.monitor, midstream.setup], ids=lambda function: function.__name__
)
def test_every_keyword_is_used(function: Any) -> None:
    """A setting that is added is a setting whose type is checked."""
    given = {
        keyword.arg
        for node in ast.walk(TREE)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == function.__name__
        for keyword in node.keywords
    }

    assert given == set(function.__kwdefaults__ or ())


def test_keywords_are_the_same_everywhere() -> None:
    """`monitor()` and `instrument()` take the same, of the same types, and the entry point passes all of it on."""
    kept = inspect.signature(midstream.instrument).parameters
    taken = dict(inspect.signature(midstream.monitor).parameters)
    del taken["obj"]

    assert list(taken.values()) == list(kept.values())
    assert set(instrumentor._KEYWORDS) == set(kept)
    assert set(kept) - {"meter_provider"} <= {field.name for field in fields(Settings)}


def test_every_wrong_line_is_told_to_be_one() -> None:
    """The checkers refuse each of these, or complain of a comment that is not needed: `make lint` has both do so."""
    lines = (HERE / "typed_misuse.py").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("# Functions:"))
    statements = [
        line
        for line in lines[begin:]
        if line.strip() and not line.strip().startswith(("#", "def ", '"""', "del "))
    ]

    assert len(statements) == 35
    assert [line for line in statements if "# type: ignore[" not in line] == []
