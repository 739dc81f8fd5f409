"""`midstream serve`: an engine that does not exist, behind a real OpenAI-compatible server."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Annotated

import typer

from midstream.cli.common.engine_options import with_engine_flags
from midstream.cli.common.errors import CliError
from midstream.cli.common.lab_options import EngineOption, FitOption, parse_length, read_hardware
from midstream.cli.common.listening import is_loopback, why_not
from midstream.lab.admission import ENGINES
from midstream.lab.emulation import Emulated, emulator
from midstream.lab.emulation.app import default_answer
from midstream.lab.hardware import PROFILES
from midstream.lab.server import serve as serving


@with_engine_flags
def serve(
    *,
    engine: EngineOption = "vllm",
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help=f"How fast it is: {', '.join(PROFILES)}.")
    ] = "l4",
    fit: FitOption = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 0,
    model: Annotated[str, typer.Option(metavar="NAME", help="What the model is called.")] = "emulated",
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Tokens of answers: a number, lognormal:mean=M,p95=P, or a file. Without: 300 on average.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same answers in the same order.")] = 0,
    speed: Annotated[
        float, typer.Option(metavar="X", help="1 is as fast as the hardware, 10 ten times.")
    ] = 1.0,
    keep_alive: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Send a comment when silent for so long; 0 is never. Without: as the engine does.",
            show_default=False,
        ),
    ] = None,
    flags: Mapping[str, object],
) -> None:
    """Serve an engine that does not exist: its admission rule, its speed, its dialect, its /metrics. Until Ctrl-C.

    Nothing is generated: answers are words from a list. How long they are, the request says (a limit,
    `tokens=300` in the prompt, the field `emulate`), or --answer. When they come, and which of them stop
    in the middle, is decided as the engine would, by the same rules as in `midstream simulate`.

    \u0008
    midstream serve                                      vLLM with Qwen3-8B on an NVIDIA L4
    midstream serve --engine sglang --port 30000         SGLang, on a port of your choice
    midstream serve --hardware vllm-cpu --num-gpu-blocks 28 --block-size 128    of 8 long answers at once some freeze
    midstream serve --hardware vllm-cpu --num-gpu-blocks 28 --block-size 128 --max-num-active-seqs 4    and none do
    midstream serve --engine llamacpp --ctx-size 4096    memory runs out, and all streams fail together
    midstream serve --speed 10                           ten times as fast, for tests
    """
    emulated = _emulated(
        engine=engine,
        hardware=read_hardware(hardware, fit or []),
        model=model,
        answer=default_answer if answer is None else parse_length(answer, "--answer"),
        seed=seed,
        speed=speed,
        keep_alive_s=keep_alive,
        flags=dict(flags),
    )
    with ExitStack() as stack:
        try:
            base_url = stack.enter_context(serving(emulator(emulated), host=host, port=port))
        except OSError as error:
            raise CliError(why_not(error, host, port)) from error
        if not is_loopback(host):
            sys.stderr.write(
                f"midstream: warning: whoever can reach this machine on {host} can use this server\n"
            )
        sys.stdout.write(_introduction(emulated, base_url, flags))
        sys.stdout.flush()
        while True:
            time.sleep(3600)


def _emulated(*, keep_alive_s: float | None, speed: float, **told: object) -> Emulated:
    if not (math.isfinite(speed) and speed > 0):
        raise typer.BadParameter(f"{speed} is not a positive number.", param_hint="--speed")
    if keep_alive_s is not None and not (math.isfinite(keep_alive_s) and keep_alive_s >= 0):
        raise typer.BadParameter(f"{keep_alive_s} is not a number of seconds.", param_hint="--keep-alive")
    try:
        return Emulated(keep_alive_s=keep_alive_s, speed=speed, **told)  # type: ignore[arg-type]
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


def _introduction(emulated: Emulated, base_url: str, flags: Mapping[str, object]) -> str:
    kind = ENGINES[emulated.engine]
    given = "".join(f", {name.replace('_', '-')} {value}" for name, value in flags.items())
    pace = "" if emulated.speed == 1 else f", {emulated.speed:g} times as fast"
    asked = [{"role": "user", "content": "tokens=100"}]
    body = json.dumps({"model": emulated.model, "messages": asked, "stream": True})
    curl = f"curl -N {base_url}/chat/completions -H 'content-type: application/json' -d {shlex.quote(body)}"
    page = f"{base_url.removesuffix('/v1')}/metrics"
    return (
        f"Emulating {emulated.engine} on {emulated.hardware.name}{given}{pace}, until Ctrl-C.\n"
        f"It {kind.rule}.\n"
        f"\n{base_url}\n\n"
        f"Try it:\n\n    midstream probe {base_url} --prompt tokens=700 -n 8 --concurrency 8 --max-tokens 1024\n"
        f"    {curl}\n    curl {page}\n"
    )
