"""What the package exports: as much as it says, and no more of others than it needs."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import midstream


def test_all_is_what_can_be_imported() -> None:
    """`__all__` is sorted, and is every public name that is not a module."""
    public = [name for name, value in vars(midstream).items() if not name.startswith("_")]
    assert midstream.__all__ == sorted(
        name for name in public if not isinstance(vars(midstream)[name], ModuleType)
    )


def test_everything_exported_says_what_it_is() -> None:
    """Each exported name has a docstring and the same name at home."""
    for name in midstream.__all__:
        exported = getattr(midstream, name)
        assert exported.__name__ == name
        assert exported.__doc__


def test_importing_loads_neither_the_sdk_nor_an_exporter() -> None:
    """Whoever only imports us waits for nothing that may not be used, and needs no extra."""
    heavy = {"openai", "grpc", "requests", "prometheus_client", "typer", "rich", "starlette", "uvicorn"}
    code = f"import sys, midstream; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
