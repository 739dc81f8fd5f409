"""`midstream serve`: an emulated inference server, behind a real OpenAI-compatible API."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from midstream.cli.common.engine_options import with_engine_flags
from midstream.cli.common.lab_options import EngineOption, FitOption, parse_length, read_hardware
from midstream.cli.common.listening import ListenOptions, listening, wait_for_interrupt
from midstream.cli.common.option_groups import with_option_groups
from midstream.lab.admission import ENGINES
from midstream.lab.emulation import Emulated, emulator
from midstream.lab.emulation.app import default_answer
from midstream.lab.hardware import PROFILES


@dataclass(frozen=True, slots=True)
class EmulationOptions:
    """What is emulated."""

    engine: EngineOption = "vllm"
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help=f"GPU and model, for the speed: {', '.join(PROFILES)}.")
    ] = "l4"
    fit: FitOption = None
    model: Annotated[str, typer.Option(metavar="NAME", help="Name of the model.")] = "emulated"
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Answer length in tokens: a number, lognormal:mean=M,p95=P, or a file. [300 on average]",
            show_default=False,
        ),
    ] = None
    seed: Annotated[
        int, typer.Option(metavar="N", help="The same seed gives the same answers in the same order.")
    ] = 0
    speed: Annotated[
        float, typer.Option(metavar="X", help="1 is the speed of the hardware, 10 is ten times as fast.")
    ] = 1.0
    keep_alive: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Send a keep-alive comment after this time without output; 0 is never. [as the engine does]",
            show_default=False,
        ),
    ] = None


@with_engine_flags
@with_option_groups
def serve(*, emulation: EmulationOptions, listen: ListenOptions, flags: Mapping[str, object]) -> None:
    """Run an emulated inference server until Ctrl-C: an engine's admission rule, speed, API and /metrics.

    There is no model: answers are words from a list. Their length comes from the request (max_tokens, `tokens=300`
    in the prompt, the field `emulate`) or from --answer. When each token is sent, and which streams stop in the
    middle, follows the engine's rules, as in `midstream simulate`.

    \u0008
    midstream serve                                      vLLM with Qwen3-8B on an NVIDIA L4
    midstream serve --engine sglang --port 30000         SGLang, on a port of your choice
    midstream serve --hardware vllm-cpu --num-gpu-blocks 28 --block-size 128    some of 8 long answers at once freeze
    midstream serve --hardware vllm-cpu --num-gpu-blocks 28 --block-size 128 --max-num-active-seqs 4    none of them
    midstream serve --engine llamacpp --ctx-size 4096    the KV cache runs out, and all streams fail together
    midstream serve --speed 10                           ten times as fast, for tests
    """
    emulated = _emulated(emulation, flags)
    with listening(emulator(emulated), listen) as base_url:
        sys.stdout.write(_introduction(emulated, base_url, flags))
        wait_for_interrupt()


def _emulated(options: EmulationOptions, flags: Mapping[str, object]) -> Emulated:
    """Return the server that the options describe. Raises BadParameter or CliError."""
    if not (math.isfinite(options.speed) and options.speed > 0):
        raise typer.BadParameter(f"{options.speed} is not a positive number.", param_hint="--speed")
    keep_alive = options.keep_alive
    if keep_alive is not None and not (math.isfinite(keep_alive) and keep_alive >= 0):
        raise typer.BadParameter(f"{keep_alive} is not a number of seconds.", param_hint="--keep-alive")
    answer = default_answer if options.answer is None else parse_length(options.answer, "--answer")
    try:
        return Emulated(
            engine=options.engine,
            hardware=read_hardware(options.hardware, options.fit or []),
            model=options.model,
            answer=answer,
            seed=options.seed,
            speed=options.speed,
            keep_alive_s=keep_alive,
            flags=dict(flags),
        )
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
