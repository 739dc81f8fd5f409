"""The program that the type checkers read uses all there is to use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import midstream
from midstream import journal

TREE = ast.parse((Path(__file__).parent / "typed_usage.py").read_text())


@pytest.mark.parametrize("module", [midstream, journal], ids=lambda module: module.__name__)
def test_every_public_name_is_used(module: object) -> None:
    """What is exported is imported there, and then used."""
    name, public = module.__name__, module.__all__  # type: ignore[attr-defined]
    imported = {
        alias.name
        for node in ast.walk(TREE)
        if isinstance(node, ast.ImportFrom) and node.module == name
        for alias in node.names
    }
    used = {node.id for node in ast.walk(TREE) if isinstance(node, ast.Name)}

    assert imported == set(public)
    assert imported - used == set()


def test_every_keyword_of_monitor_is_used() -> None:
    """A setting that is added is a setting whose type is checked."""
    given = {
        keyword.arg
        for node in ast.walk(TREE)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "monitor"
        for keyword in node.keywords
    }

    assert given == set(midstream.monitor.__kwdefaults__ or ())
