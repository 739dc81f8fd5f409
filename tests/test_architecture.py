"""The shape of the source tree: the rules that the import contract in pyproject.toml cannot express."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from support.paths import ROOT

PACKAGE = ROOT / "src" / "midstream"
SOURCES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}

MODULE_LINES = 400
TOP_MODULES = 10
COMMAND_LINES = 60
COMMAND_PARAMETERS = 8

# What does not hold yet. These lists only become shorter: an entry that is no longer needed fails the test, too.
CLASS_NAMES_USED_TWICE: set[str] = set()
PRIVATE_IMPORTS: set[tuple[str, str]] = set()
LONG_COMMANDS: set[str] = set()


def test_a_class_name_is_used_once() -> None:
    """A reader who meets a name in a message or an annotation knows which class it is."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{_module(path)}:{node.lineno}")

    used_twice = {name: where for name, where in places.items() if len(where) > 1}

    assert {name: where for name, where in used_twice.items() if name not in CLASS_NAMES_USED_TWICE} == {}
    assert sorted(CLASS_NAMES_USED_TWICE - used_twice.keys()) == [], "remove these from the list"


def test_a_private_module_is_imported_inside_its_own_package_only() -> None:
    """An underscore marks what a package keeps for itself, from type checkers as well."""
    found = {
        (_module(path), imported)
        for path, tree in SOURCES.items()
        for imported in _imported_modules(tree)
        if not _may_import(_package(path), imported)
    }

    assert sorted(found - PRIVATE_IMPORTS) == []
    assert sorted(PRIVATE_IMPORTS - found) == [], "remove these from the list"


def test_what_counts_as_a_private_import() -> None:
    """The test above can fail: a sibling package may not, the package itself and what is inside it may."""
    assert not _may_import("midstream.runtime", "midstream.journal._store")
    assert not _may_import("midstream.cli.advise", "midstream.advice._comparison")
    assert not _may_import("midstream", "midstream.journal._store")
    assert _may_import("midstream.journal", "midstream.journal._store")
    assert _may_import("midstream.journal.reading", "midstream.journal._store")
    assert _may_import("midstream.runtime", "midstream._support.sanitize")


def test_a_module_is_short() -> None:
    """A module that grows beyond this has two subjects."""
    long = {_module(path): len(path.read_text().splitlines()) for path in SOURCES}

    assert {name: lines for name, lines in long.items() if lines > MODULE_LINES} == {}


def test_few_modules_stand_beside_the_packages() -> None:
    """The top level is a list of packages: it shows the architecture."""
    at_the_top = [path.name for path in SOURCES if path.parent == PACKAGE]

    assert len(at_the_top) <= TOP_MODULES, at_the_top


def test_a_command_parses_calls_and_prints() -> None:
    """What is longer, or takes more parameters, decides something that belongs in the library."""
    too_large = {
        f"{_module(path)}.{node.name}": (_lines(node), _parameters(node))
        for path, tree in SOURCES.items()
        if "cli" in path.relative_to(PACKAGE).parts
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (_lines(node) > COMMAND_LINES or _parameters(node) > COMMAND_PARAMETERS)
    }

    assert {name: size for name, size in too_large.items() if name not in LONG_COMMANDS} == {}
    assert sorted(LONG_COMMANDS - too_large.keys()) == [], "remove these from the list"


def test_every_package_describes_itself() -> None:
    """In the docstring of its `__init__`."""
    undescribed = [
        _module(path)
        for path, tree in SOURCES.items()
        if path.name == "__init__.py" and not ast.get_docstring(tree)
    ]

    assert undescribed == []


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _package(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).parent.parts)


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield every module of ours that is imported, for its types alone as well; a name imported from one counts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            module = name if _exists(name) else name.rpartition(".")[0]
            if module.partition(".")[0] == "midstream":
                yield module


def _exists(module: str) -> bool:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _may_import(package: str, module: str) -> bool:
    """Whether a module of this package may import that one: each private part of its path must be the package's own."""
    parts = module.split(".")
    owners = (".".join(parts[:at]) for at, part in enumerate(parts) if part.startswith("_"))
    return all(f"{package}.".startswith(f"{owner}.") for owner in owners)


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
