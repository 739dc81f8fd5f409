"""What a user reads when a command fails: one sentence, and an exit status."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard

_EXTRAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "httpx": ("proxy",),
        "typer": ("cli",),
        "rich": ("cli",),
        "yaml": ("cli",),
        "requests": ("cli",),
        "pyarrow": ("parquet",),
        "jinja2": ("report",),
        "plotly": ("report",),
        "matplotlib": ("lab",),
        "scipy": ("lab",),
        "starlette": ("lab",),
        "uvicorn": ("lab", "proxy"),
        "prometheus_client": ("prometheus",),
        "opentelemetry.exporter.prometheus": ("prometheus", "proxy"),
    }
)
"""Which extras bring a module that may be missing. The first is named, unless a command needs another of them."""


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What a write to a file fails with, though nothing is wrong with the command."""
_SQLITE = b"SQLite format 3\0"
"""What every file of SQLite begins with."""


class CliError(Exception):
    """A failure that the user can act on; its message is the sentence that is printed."""


def unwritten(path: Path, error: OSError) -> CliError:
    """Return the failure to write a file, with what to do about it."""
    if not path.name:  # `-o "$UNSET"`
        return CliError("the file to write has no name; give it one")
    if error.errno == errno.EISDIR:
        return CliError(f"{path} is a folder; name a file in it")
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return CliError(f"there is no folder {path.parent}; make it, or name another file than {path}")
    return CliError(
        f"{path} cannot be written: {error.strerror or type(error).__name__}; "
        f"{'make room, or ' if error.errno in _NO_ROOM else ''}name another file"
    )


def spare_databases(path: Path) -> None:
    """Raise CliError if a file that is about to be written is a database: most likely the journal that was read."""
    if not path.is_file():  # reading a pipe would wait for its writer
        return
    try:
        with path.open("rb") as file:
            begins = file.read(len(_SQLITE))
    except OSError:
        return  # writing will say what is the matter
    if begins == _SQLITE:
        raise CliError(f"{path} is a database, perhaps the journal; it is left as it is: name another file")


def unread(path: Path, error: OSError | UnicodeDecodeError) -> CliError:
    """Return the failure to read a file of text, with what to do about it."""
    if isinstance(error, UnicodeDecodeError):
        return CliError(f"{path} is not text in UTF-8; check the path, or convert it")
    if error.errno == errno.ENOENT:
        return CliError(f"there is no file {path}; check the path")
    if error.errno == errno.EISDIR:
        return CliError(f"{path} is a folder; name a file in it")
    return CliError(f"{path} cannot be read: {error.strerror or type(error).__name__}; see who may read it")


def installing(*extras: str) -> str:
    """Return the command that installs extras, also for those who have a clone and no release."""
    named = ",".join(extras)
    return f"pip install 'midstream[{named}]', or in a clone '.[{named}]'"


def explain(error: Exception, extras: Sequence[str] = ()) -> tuple[str, int]:
    """Return the sentence and the exit status for an error that ended a command; `extras` are those it needs."""
    if isinstance(error, CliError):
        return str(error), 1
    missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    bringing = _EXTRAS.get(missing) or _EXTRAS.get(missing.partition(".")[0])
    if bringing is not None:
        extra = next((each for each in bringing if each in extras), bringing[0])
        needed = tuple(dict.fromkeys([*filter(_is_missing, extras), extra]))
        noun = "an extra that is" if len(needed) == 1 else "extras that are"
        return f"this needs {noun} not installed: {installing(*needed)}", 1
    if unwritable(error):
        return f"the output cannot be written: {error.strerror}; make room, or write elsewhere", 1
    # Typer's own errors: their classes have moved between its versions, these names have not.
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        said = str(format_message()).rstrip(".").replace("Value error, ", "")  # the latter is pydantic's
        return f"{said}{_help_hint(error)}", int(getattr(error, "exit_code", 1))
    return f"{_own_fault(error)}; this is a bug, please report it with the command you ran", 1


def _is_missing(extra: str) -> bool:
    """Return whether a module that an extra brings cannot be found."""
    return not all(_can_be_found(module) for module, of in _EXTRAS.items() if extra in of)


def _can_be_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of the package that it is in
        return False


def unwritable(error: Exception) -> TypeGuard[OSError]:
    """Tell whether standard output, or another file that is open already, has no room for what was printed."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _NO_ROOM


def _help_hint(error: Exception) -> str:
    path = getattr(getattr(error, "ctx", None), "command_path", None)
    return f"; `{path} --help` explains" if path else ""


def _own_fault(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return f"{type(error).__name__} in {last.name} ({last.filename}, line {last.lineno}): {message}"
