"""What other instrumentations of the openai SDK add per chunk, each beside the bare SDK and beside midstream.

    python -m benchmarks.peers [--rounds N] [--only WORD] [--json FILE]

Each peer has an environment of its own (under `.bench/`, made once) with its newest version, and a process of its own,
in which it is read in turns with the bare SDK, the three-line loop and midstream: what is compared ran side by side.
Peers are set up as their own pages say, and record what they record by default, into memory. What a peer's own thread
does after the stream is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.overhead import (
    KINDS,
    SHORT,
    Open,
    Variant,
    body,
    client,
    compare,
    held_per_chunk,
    opening,
    recording,
)
from midstream import monitor

HOME = Path(__file__).resolve().parent.parent / ".bench"
HELD_OVER = 1500
"""Chunks of the stream in whose middle memory is looked at."""


@dataclass(frozen=True)
class Peer:
    """A peer: its distribution, and how it is set up. `start` gives what tells how much it has recorded."""

    name: str
    distribution: str
    requirement: str
    start: Callable[[dict[Any, Any]], Callable[[], int]]
    """Takes the clients to be instrumented, and may replace them."""


# In-memory destinations


class _Spans:
    """Counts spans and lets go of them: an exporter that keeps all would be measured for its hoard."""

    def __init__(self) -> None:
        self.count = 0

    def provider(self) -> Any:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415

        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter()))
        return provider

    def exporter(self) -> Any:
        from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

        spans = self

        class Counting(SpanExporter):
            def export(self, batch: Sequence[Any]) -> SpanExportResult:
                spans.count += len(batch)
                return SpanExportResult.SUCCESS

        return Counting()


def _instrumentor(module: str, *, metrics: bool) -> Callable[[dict[Any, Any]], Callable[[], int]]:
    def start(_clients: dict[Any, Any]) -> Callable[[], int]:
        spans = _Spans()
        providers = {"tracer_provider": spans.provider()}
        if metrics:
            providers["meter_provider"] = recording()
        import_module(module).OpenAIInstrumentor().instrument(**providers)
        return lambda: spans.count

    return start


def _logfire(clients: dict[Any, Any]) -> Callable[[], int]:
    import logfire  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415

    spans = _Spans()
    logfire.configure(
        send_to_logfire=False,
        console=False,
        additional_span_processors=[SimpleSpanProcessor(spans.exporter())],
    )
    for made in clients.values():
        logfire.instrument_openai(made)
    return lambda: spans.count


def _langfuse(_clients: dict[Any, Any]) -> Callable[[], int]:
    from langfuse import Langfuse  # noqa: PLC0415

    spans = _Spans()
    langfuse = Langfuse(
        public_key="pk-none",
        secret_key="sk-none",  # noqa: S106 - nobody is asked
        base_url="http://localhost:9",
        span_exporter=spans.exporter(),
    )
    __import__("langfuse.openai")  # this is what instruments

    def count() -> int:
        langfuse.flush()
        return spans.count

    return count


def _langsmith(clients: dict[Any, Any]) -> Callable[[], int]:
    import requests  # noqa: PLC0415

    os.environ["LANGSMITH_TRACING"] = "true"
    from langsmith import Client  # noqa: PLC0415
    from langsmith.wrappers import wrap_openai  # noqa: PLC0415

    sent = [0]

    class Offline(requests.Session):
        def request(self, method: str | bytes, *_args: Any, **_kwargs: Any) -> requests.Response:
            sent[0] += method in {"POST", "PATCH"}
            response = requests.Response()
            response.status_code = 202
            response._content = b"{}"
            return response

    langsmith = Client(api_key="none", api_url="http://localhost:9", session=Offline())
    for key, made in clients.items():
        clients[key] = wrap_openai(made, tracing_extra={"client": langsmith})

    def count() -> int:
        langsmith.flush()
        return sent[0]

    return count


def _sentry(_clients: dict[Any, Any]) -> Callable[[], int]:
    import sentry_sdk  # noqa: PLC0415
    from sentry_sdk.transport import Transport  # noqa: PLC0415

    sent = [0]

    class Counting(Transport):  # type: ignore[misc]  # not installed where types are checked
        def capture_envelope(self, _envelope: Any) -> None:
            sent[0] += 1

    sentry_sdk.init(dsn="http://none@localhost/1", transport=Counting, traces_sample_rate=1.0)
    return lambda: sent[0]


PEERS = (
    Peer(
        "OTel genai-openai",
        "opentelemetry-instrumentation-genai-openai",
        "opentelemetry-instrumentation-genai-openai>=1.0b0",
        _instrumentor("opentelemetry.instrumentation.genai.openai", metrics=True),
    ),
    Peer(
        "traceloop",
        "opentelemetry-instrumentation-openai",
        "opentelemetry-instrumentation-openai",
        _instrumentor("opentelemetry.instrumentation.openai", metrics=True),
    ),
    Peer(
        "openinference",
        "openinference-instrumentation-openai",
        "openinference-instrumentation-openai",
        _instrumentor("openinference.instrumentation.openai", metrics=False),
    ),
    Peer("logfire", "logfire", "logfire", _logfire),
    Peer("langfuse", "langfuse", "langfuse", _langfuse),
    Peer("langsmith", "langsmith", "langsmith", _langsmith),
    Peer("sentry", "sentry-sdk", "sentry-sdk", _sentry),
)


# In the peer's own process


class Patches:
    """What an instrumentation has changed in the SDK's classes, to be taken out and put in again between readings.

    Nearly all of them patch classes for the whole process, and several cannot undo it.
    """

    def __init__(self, instrument: Callable[[], object]) -> None:
        before = _attributes()
        known = {owner for owner, _ in before}
        instrument()
        after = _attributes()
        self._changed = [
            (owner, name, before.get((owner, name), _ABSENT), value)
            for (owner, name), value in after.items()
            if owner in known and before.get((owner, name), _ABSENT) is not value
        ]
        self.off()

    def on(self) -> None:
        for owner, name, _, patched in self._changed:
            setattr(owner, name, patched)

    def off(self) -> None:
        for owner, name, original, _ in self._changed:
            if original is _ABSENT:
                with suppress(AttributeError):
                    delattr(owner, name)
            else:
                setattr(owner, name, original)


_ABSENT = object()
_CARELESS = {"__abstractmethods__", "__dict__", "__weakref__", "__doc__", "_abc_impl"}


def _attributes() -> dict[tuple[type, str], Any]:
    classes = {
        value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in {"openai", "httpx", "httpx2"}
        for value in list(vars(module).values())
        if isinstance(value, type) and value.__module__.partition(".")[0] in {"openai", "httpx", "httpx2"}
    }
    return {
        (owner, name): value
        for owner in classes
        for name, value in list(vars(owner).items())
        if name not in _CARELESS and hasattr(type(value), "__get__")
    }


def measure(peer: Peer, rounds: int, chunks: int) -> dict[str, Any]:
    """Measure a peer here and now: costs by kind and by variant, and bytes held per chunk."""
    sizes = {"warm": SHORT, "read": chunks, "held": HELD_OVER}

    def clients() -> dict[Any, Any]:
        return {(kind, size): client(kind, body(length)) for kind in KINDS for size, length in sizes.items()}

    def opens(made: dict[Any, Any], size: str) -> dict[str, Open]:
        return {kind: opening(made[kind, size]) for kind in KINDS}

    bare, ours, theirs = clients(), clients(), clients()
    for sdk in bare.values():
        _ = sdk.chat.completions, sdk.responses, sdk.completions  # loads what is loaded when first asked for
    provider = recording()
    our_patches = Patches(lambda: [monitor(sdk, meter_provider=provider) for sdk in ours.values()])
    started: list[Callable[[], int]] = []
    their_patches = Patches(lambda: started.append(peer.start(theirs)))
    recorded = started[0]

    def leave() -> None:
        recorded()  # waits for the peer's own thread, out of the reading
        their_patches.off()

    bare_read, bare_warm = opens(bare, "read"), opens(bare, "warm")
    variants = [
        Variant("bare", bare_read, warm=bare_warm),
        Variant("three-line loop", bare_read, loop=True, warm=bare_warm),
        Variant(
            "midstream",
            opens(ours, "read"),
            on=our_patches.on,
            off=our_patches.off,
            warm=opens(ours, "warm"),
        ),
        Variant("peer", opens(theirs, "read"), on=their_patches.on, off=leave, warm=opens(theirs, "warm")),
    ]
    costs: dict[str, Any] = {}
    held: dict[str, Any] = {}
    for kind in KINDS:
        before = recorded()
        got = compare(kind, variants, rounds)
        if recorded() - before < rounds:
            raise SystemExit(
                f"{peer.name} recorded {recorded() - before} of {rounds} streams: it is not set up"
            )
        costs[kind] = {name: asdict(cost) for name, cost in got.items()}
        less = held_per_chunk(kind, opening(bare[kind, "held"]), HELD_OVER)
        held[kind] = {}
        for name, made, patches in (("midstream", ours, our_patches), ("peer", theirs, their_patches)):
            patches.on()
            held[kind][name] = held_per_chunk(kind, opening(made[kind, "held"]), HELD_OVER) - less
            patches.off()
    return {"version": version(peer.distribution), "openai": version("openai"), "costs": costs, "held": held}


# All of them


def environment(peer: Peer) -> Path:
    """Make an environment with midstream and a peer, unless it is there; return its Python."""
    folder = HOME / peer.name.replace(" ", "-")
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--editable", ".", "openai", peer.requirement]
    subprocess.run(install, cwd=HOME.parent, check=True)
    return python


def measure_apart(peer: Peer, rounds: int, chunks: int) -> dict[str, Any]:
    """Measure a peer in its own environment and process."""
    python = environment(peer)
    done = subprocess.run(
        [
            python,
            "-m",
            "benchmarks.peers",
            "--here",
            peer.name,
            "--rounds",
            str(rounds),
            "--chunks",
            str(chunks),
        ],
        cwd=HOME.parent,
        env={
            name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MIDSTREAM_"))
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise SystemExit(f"{peer.name} could not be measured; its process said: {said}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(results: dict[str, dict[str, Any]]) -> str:
    """One row a peer: what it adds and holds, beside midstream and the three-line loop in its process."""
    heads = (
        "sync / async",
        "adds per chunk, µs",
        "midstream",
        "three-line loop",
        "peer to midstream",
        "adds at open and end, µs",
        "midstream",
        "holds per chunk, bytes",
        "midstream",
    )
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, result in results.items():
        costs, held = result["costs"], result["held"]
        cells = (
            f"{name} {result['version']}",
            *(_both(costs, who, _chunk, ".1f") for who in ("peer", "midstream", "three-line loop")),
            " / ".join(
                f"{_chunk(costs[kind]['peer']) / _chunk(costs[kind]['midstream']):.1f}" for kind in KINDS
            ),
            *(_both(costs, who, _ends, ".0f") for who in ("peer", "midstream")),
            *(_both(held, who, float, ".0f") for who in ("peer", "midstream")),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _both(results: dict[str, Any], who: str, figure: Callable[[Any], float], form: str) -> str:
    return " / ".join(format(figure(results[kind][who]) + 0.0, form).replace("-0", "0") for kind in KINDS)


def _chunk(cost: dict[str, float]) -> float:
    return cost["chunk_us"]


def _ends(cost: dict[str, float]) -> float:
    return cost["open_us"] + cost["end_us"]


def main(argv: list[str]) -> int:
    """Measure the peers one after the other, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--chunks", type=int, default=250)
    parser.add_argument("--only", default="", help="the peers whose name has this word in it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.here is not None:
        peer = next(peer for peer in PEERS if peer.name == options.here)
        print(json.dumps(measure(peer, options.rounds, options.chunks)))
        return 0
    results = {}
    for peer in PEERS:
        if options.only.lower() in peer.name.lower():
            print(f"Reading with {peer.name} ...", file=sys.stderr, flush=True)
            results[peer.name] = measure_apart(peer, options.rounds, options.chunks)
    print(table(results))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
