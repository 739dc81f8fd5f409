"""`midstream replay`: serves recorded streams over loopback as an OpenAI-compatible server."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from types import MappingProxyType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from midstream._support.sanitize import clean
from midstream.cli.common.errors import CliError
from midstream.cli.common.listening import ListenOptions, listening, wait_for_interrupt
from midstream.cli.common.option_groups import with_option_groups
from midstream.lab.library import packaged_recordings, read_recordings
from midstream.lab.recording import Operation, Recording, RecordingError
from midstream.lab.replay import replayer

_CALLS: Mapping[Operation, str] = MappingProxyType(
    {
        "chat": 'chat.completions.create(model="{name}", messages=[], stream=True)',
        "text_completion": 'completions.create(model="{name}", prompt="", stream=True)',
        "responses": 'responses.create(model="{name}", input="", stream=True)',
    }
)


@with_option_groups
def replay(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Recordings (*.jsonl) or folders of them. [those that come with midstream]",
            show_default=False,
        ),
    ] = None,
    *,
    listen: ListenOptions,
    speed: Annotated[
        float, typer.Option(metavar="X", help="1 is the recorded speed, 10 is ten times as fast.")
    ] = 1.0,
) -> None:
    """Serve recorded streams as an OpenAI-compatible server, until Ctrl-C.

    Every answer has its recorded status, headers, chunks and timing, freezes included. The request's model chooses
    the recording by its name; the name of a recorded model chooses among that model's streams in turn.

    \u0008
    midstream replay                        serve the recordings that come with midstream
    midstream replay tests/recordings       serve a folder, here one of the repository
    midstream replay --port 8000 --speed 5  five times as fast, on a port of your choice
    """
    if not (math.isfinite(speed) and speed > 0):
        raise typer.BadParameter(f"{speed} is not a positive number.", param_hint="--speed")
    try:
        recordings: Sequence[Recording] = read_recordings(paths) if paths else packaged_recordings()
    except RecordingError as error:
        raise CliError(str(error)) from error
    recordings = sorted(recordings, key=_use)
    with listening(replayer(recordings, speed=speed), listen) as base_url:
        _show(Console(highlight=False), recordings, base_url, speed)
        wait_for_interrupt()


def _use(recording: Recording) -> tuple[bool, bool]:
    """Order chat streams first and recorded errors last: a client that takes the server's first model gets a stream."""
    return not recording.is_stream, recording.operation != "chat"


def _show(console: Console, recordings: Sequence[Recording], base_url: str, speed: float) -> None:
    pace = "as recorded" if speed == 1 else f"{speed:g} times as fast as recorded"
    table = Table(box=None, pad_edge=False)
    # Names are there to be copied: in a narrow terminal the other columns give way.
    table.add_column("name", no_wrap=True)
    table.add_column("recorded model")
    table.add_column("operation", no_wrap=True)
    table.add_column("lasts", justify="right")
    table.add_column("longest gap", justify="right")
    for recording in recordings:
        table.add_row(
            Text(clean(recording.name)),
            Text(clean(recording.model)),
            recording.operation if recording.is_stream else f"{recording.operation}, HTTP {recording.status}",
            f"{recording.ended_at_s:.1f} s",
            f"{recording.longest_gap_s:.3f} s",
        )
    console.print(f"Serving {len(recordings)} recordings, {pace}, until Ctrl-C:", soft_wrap=True)
    console.print(f"\n{base_url}\n", soft_wrap=True)
    console.print(table)
    console.print(
        f"\nTry it:\n\n{indent(_example(recordings, base_url), '    ')}", soft_wrap=True, markup=False
    )


def _example(recordings: Sequence[Recording], base_url: str) -> str:
    """Return a program that streams the recording with the most to see."""
    shown = max(recordings, key=lambda recording: recording.longest_gap_s)
    return f"""\
from openai import OpenAI

client = OpenAI(base_url="{base_url}", api_key="none")
for chunk in client.{_CALLS[shown.operation].replace('"{name}"', json.dumps(clean(shown.name), ensure_ascii=False))}:
    print(chunk)
"""
