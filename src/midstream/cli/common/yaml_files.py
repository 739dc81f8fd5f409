"""Reads files of settings in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from midstream.cli.common.errors import CliError, unread

MOST_BYTES = 256 * 1024
DEEPEST = 50


def load_yaml(path: Path) -> Any:
    """Read a file of YAML. Raises CliError, or FileNotFoundError for one that is not there.

    It is of a bounded size and has no aliases: a few of them can stand for any amount of memory.
    """
    try:
        with path.open("rb") as file:
            read = file.read(MOST_BYTES + 1)
        text = read.decode("utf-8") if len(read) <= MOST_BYTES else ""
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise unread(path, error) from error
    if len(read) > MOST_BYTES:
        raise CliError(f"{path} is larger than {MOST_BYTES >> 10} KiB, which no file of settings is")
    try:
        depth = 0
        for event in yaml.parse(
            text, Loader=yaml.SafeLoader
        ):  # stops where it is refused: deep nesting takes long
            if isinstance(event, yaml.AliasEvent):
                raise CliError(f"{path} has an alias (`*name`), which settings cannot; write the value out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise CliError(f"{path} holds a value that is nested too deeply")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CliError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    except (RecursionError, OverflowError, ValueError) as error:
        raise CliError(
            f"{path} holds a value that is nested too deeply, or a number that is too large"
        ) from error
    except (
        LookupError,
        TypeError,
        AttributeError,
    ) as error:  # PyYAML on `_`, which looks like a number to it
        raise CliError(
            f"{path} holds a value that YAML cannot read; put text into quotation marks"
        ) from error
