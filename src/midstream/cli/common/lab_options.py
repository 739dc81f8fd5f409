"""Reads what `midstream simulate` was asked for: lengths, calls, hardware, and what to sweep over."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from midstream.cli.common.errors import CliError, unread
from midstream.lab.admission import ENGINES
from midstream.lab.experiment import Sweep
from midstream.lab.fitting import fit_profile
from midstream.lab.hardware import PROFILES, HardwareProfile
from midstream.lab.observed import read_load
from midstream.lab.recording import RecordingError
from midstream.lab.workload import Length, Pair, fixed, lognormal, lognormal_by, pairs, resampled, sampled

EngineOption: TypeAlias = Annotated[
    str, typer.Option("--engine", metavar="NAME", help=f"One of {', '.join(ENGINES)}.")
]
FitOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--fit",
        metavar="FILE",
        help="Use hardware fitted to recorded loads; may be repeated.",
        show_default=False,
    ),
]

_MOST_VALUES = 200


def parse_length(text: str, option: str) -> Length:
    """Read how long prompts or answers are: `800`, `lognormal:...`, or a file with a length a line."""
    kind, _, rest = text.partition(":")
    try:
        if text.isdigit():
            return fixed(int(text))
        if kind == "lognormal":
            return _lognormal(dict(_assignment(part) for part in rest.split(",")))
        return sampled(max(1, round(value)) for (value,) in _rows(Path(text), 1))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint=option) from None


def _lognormal(given: Mapping[str, float]) -> Length:
    most = round(given["most"]) if "most" in given else None
    shape = set(given) - {"most"}
    if shape == {"mean", "p95"}:
        return lognormal_by(mean=given["mean"], p95=given["p95"], most=most)
    if shape == {"mu", "sigma"}:
        return lognormal(given["mu"], given["sigma"], most=most)
    raise ValueError("lognormal needs mean and p95, or mu and sigma, such as lognormal:mean=500,p95=1500")


def _assignment(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise ValueError(f"expected NAME=NUMBER, got {text!r}") from None


def length_pairs(prompt: Length, answer: Length, lengths: Path | None) -> Callable[[int, int], list[Pair]]:
    """Return what draws, from a seed and a count, the lengths of all prompts and answers."""
    if lengths is None:
        return lambda seed, count: pairs(seed, count, prompt, answer)
    seen = [(max(1, round(p)), max(1, round(a))) for p, a in _rows(lengths, 2)]
    return lambda seed, count: resampled(seed, count, seen)


def read_times(file: Path) -> list[float]:
    """Read when calls were made, in seconds, one a line; the first counts as 0."""
    times = sorted(value for (value,) in _rows(file, 1))
    return [time - times[0] for time in times]


def _rows(file: Path, columns: int) -> list[tuple[float, ...]]:
    """Read numbers from a CSV file; a first line that holds none is its header."""
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            rows = [row for row in csv.reader(opened) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise unread(file, error) from error
    except csv.Error as error:
        raise CliError(f"{file} is not CSV ({error}); it needs {columns} numbers a line") from error
    header = bool(rows) and _numbers(rows[0], columns) is None
    numbers = []
    for index, row in enumerate(rows[header:], start=1 + header):
        read = _numbers(row, columns)
        if read is None:
            raise CliError(f"{file}, line {index}: needs {columns} number(s), got {','.join(row)}")
        numbers.append(read)
    if not numbers:
        raise CliError(f"{file} holds no numbers; it needs {columns} a line")
    return numbers


def _numbers(row: Sequence[str], columns: int) -> tuple[float, ...] | None:
    try:
        return tuple(float(row[column]) for column in range(columns))
    except (ValueError, IndexError):
        return None


def read_hardware(name: str, fit: Sequence[Path]) -> HardwareProfile:
    """Return a profile that comes with midstream, or one fitted to recordings."""
    if fit:
        try:
            return fit_profile([read_load(file) for file in fit])
        except (RecordingError, ValueError) as error:
            raise CliError(str(error)) from error
    if name not in PROFILES:
        raise typer.BadParameter(f"{name} is not one of {', '.join(PROFILES)}.", param_hint="--hardware")
    return PROFILES[name]


def parse_sweep(text: str) -> Sweep:
    """Read `NAME=FROM..TO`, `NAME=FROM..TO:STEP` or `NAME=A,B,C`."""
    name, _, values = text.partition("=")
    try:
        swept = tuple(_range(values) if ".." in values else map(float, values.split(",")))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not NAME=FROM..TO[:STEP] or NAME=A,B,C, such as watermark=0..0.2:0.05.",
            param_hint="--sweep",
        ) from None
    if any(b <= a for a, b in pairwise(swept)):
        raise typer.BadParameter("its values must rise.", param_hint="--sweep")
    return Sweep(name.strip().lstrip("-").replace("-", "_"), swept)


def _range(text: str) -> list[float]:
    ends, _, width = text.partition(":")
    start, end = (float(part) for part in ends.split(".."))
    step = float(width or 1)
    count = int((end - start) / step + 1e-9) + 1 if step > 0 else 0
    if not 0 < count <= _MOST_VALUES:
        raise ValueError(text)
    return [round(start + index * step, 9) for index in range(count)]
