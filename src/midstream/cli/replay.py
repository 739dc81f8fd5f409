"""`midstream replay`: serves recorded streams over loopback as an OpenAI-compatible server."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from textwrap import indent
from types import MappingProxyType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from midstream.cli.common.errors import CliError
from midstream.cli.common.listening import is_loopback, why_not
from midstream.lab.library import packaged_recordings, read_recordings
from midstream.lab.recording import Operation, Recording, RecordingError
from midstream.lab.replay import replayer
from midstream.lab.server import serve

_CALLS: Mapping[Operation, str] = MappingProxyType(
    {
        "chat": 'chat.completions.create(model="{name}", messages=[], stream=True)',
        "text_completion": 'completions.create(model="{name}", prompt="", stream=True)',
        "responses": 'responses.create(model="{name}", input="", stream=True)',
    }
)


def replay(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="*.jsonl files, or folders that hold some. Without any: those that come with midstream.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 0,
    speed: Annotated[
        float, typer.Option(metavar="X", help="1 is as recorded, 10 is ten times as fast.")
    ] = 1.0,
) -> None:
    """Serve recorded streams as an OpenAI-compatible server, until Ctrl-C.

    Every answer keeps its recorded status, headers, chunks and timing, freezes included. Ask for one by using
    its name as the model; a recorded model's name takes turns among that model's streams.

    \u0008
    midstream replay                        serve what comes with midstream
    midstream replay tests/recordings       serve a folder: that one in the repository, or your own
    midstream replay --port 8000 --speed 5  five times as fast, on a port of your choice
    """
    if not (math.isfinite(speed) and speed > 0):
        raise typer.BadParameter(f"{speed} is not a positive number.", param_hint="--speed")
    try:
        recordings = read_recordings(paths) if paths else packaged_recordings()
    except RecordingError as error:
        raise CliError(str(error)) from error
    with ExitStack() as stack:
        try:
            base_url = stack.enter_context(serve(replayer(recordings, speed=speed), host=host, port=port))
        except OSError as error:
            raise CliError(why_not(error, host, port)) from error
        if not is_loopback(host):
            sys.stderr.write(
                f"midstream: warning: whoever can reach this machine on {host} can use this server\n"
            )
        _show(Console(highlight=False), recordings, base_url, speed)
        sys.stdout.flush()
        while True:
            time.sleep(3600)


def _show(console: Console, recordings: Sequence[Recording], base_url: str, speed: float) -> None:
    pace = "as recorded" if speed == 1 else f"{speed:g} times as fast as recorded"
    table = Table(box=None, pad_edge=False)
    # Names are there to be copied: in a narrow terminal the other columns give way.
    table.add_column("name", no_wrap=True)
    table.add_column("recorded model")
    table.add_column("operation", no_wrap=True)
    table.add_column("lasts", justify="right")
    table.add_column("longest silence", justify="right")
    for recording in recordings:
        table.add_row(
            recording.name,
            recording.model,
            recording.operation if recording.is_stream else f"{recording.operation}, HTTP {recording.status}",
            f"{recording.ended_at_s:.1f} s",
            f"{recording.longest_silence_s:.3f} s",
        )
    console.print(f"Serving {len(recordings)} recordings, {pace}, until Ctrl-C:", soft_wrap=True)
    console.print(f"\n{base_url}\n", soft_wrap=True)
    console.print(table)
    console.print(
        f"\nTry it:\n\n{indent(_example(recordings, base_url), '    ')}", soft_wrap=True, markup=False
    )


def _example(recordings: Sequence[Recording], base_url: str) -> str:
    """Return a program that streams the recording with the most to see."""
    shown = max(recordings, key=lambda recording: recording.longest_silence_s)
    return f"""\
from openai import OpenAI

client = OpenAI(base_url="{base_url}", api_key="none")
for chunk in client.{_CALLS[shown.operation].format(name=shown.name)}:
    print(chunk)
"""
