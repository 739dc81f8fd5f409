"""Finds recordings on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from midstream._support.foreign import ForeignError, json_of
from midstream._support.sanitize import valid_name
from midstream.lab.load import parse_load
from midstream.lab.recording import Recording, RecordingError, parse_stream

MOST_BYTES = 64 * 2**20
PACKAGED = Path(__file__).with_name("recordings")
"""The recordings that come with the library; README.md beside them says what happened in each."""


def read_recordings(paths: Iterable[Path]) -> tuple[Recording, ...]:
    """Return the recordings in `paths`: `*.jsonl` files, or folders that hold some at any depth.

    A recording is called as its file, without the ending; a load of many streams gives one a stream. Raises
    RecordingError, with the remedy, when something is missing, malformed or called the same as another.
    """
    found: dict[str, tuple[Recording, Path]] = {}
    for file in dict.fromkeys(file.resolve() for path in paths for file in _files(path)):
        for recording in _parse(file):
            if recording.name in found:
                other = found[recording.name][1]
                raise RecordingError(
                    f"two recordings are called {recording.name}: {other} and {file}; rename one"
                )
            found[recording.name] = recording, file
    return tuple(recording for recording, _ in found.values())


def packaged_recordings() -> tuple[Recording, ...]:
    """Return the recordings that come with the library."""
    return read_recordings([PACKAGED])


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.jsonl"))
    if not files:
        raise RecordingError(f"{path} holds no recording; recordings are files that end in .jsonl")
    return files


def _parse(file: Path) -> tuple[Recording, ...]:
    text = _read(file)
    if _is_load(text):
        return parse_load(text, name=valid_name(file.stem), source=str(file))
    return (parse_stream(text, name=valid_name(file.stem), source=str(file)),)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            read = opened.read(MOST_BYTES + 1)
        text = "" if len(read) > MOST_BYTES else read.decode("utf-8")
    except FileNotFoundError:
        raise RecordingError(f"there is no file or folder {file}; check the path") from None
    except UnicodeDecodeError:
        raise RecordingError(f"{file} is not text in UTF-8; recordings are files of JSON lines") from None
    except OSError as error:
        raise RecordingError(f"{file} cannot be read: {error.strerror}") from error
    if len(read) > MOST_BYTES:
        raise RecordingError(f"{file} is larger than {MOST_BYTES >> 20} MiB, which no recording is")
    return text


def _is_load(text: str) -> bool:
    """Tell a load from a stream by its first line; what is neither, the stream's parser explains."""
    try:
        first = json_of(text.partition("\n")[0])
    except ForeignError:
        return False
    return isinstance(first, dict) and "times" in first
