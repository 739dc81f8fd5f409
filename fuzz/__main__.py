"""Fuzzes every target for a while, one after the other, and says what it found.

    make fuzz                                   # a minute each
    python -m fuzz chunks journal --seconds 600
    python -m fuzz journal --input .fuzz/journal/findings/crash-...

What was learned is kept under .fuzz/, and the next run goes on from there. Findings are left there, too: a file each.
Exit status: 0 nothing found, 1 something found.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from fuzz.targets import Target, targets

HOME = Path(".fuzz")
SLOWEST_S = 20
MOST_MB = 2048


def main(argv: list[str]) -> int:
    """Run what the command line asks for."""
    known = targets()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="*", help=f"any of {', '.join(known)}; by default all")
    parser.add_argument("--seconds", type=int, default=60, help="how long for each target (%(default)s)")
    parser.add_argument("--input", type=Path, metavar="FILE", help="give a finding to its target, and end")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args(argv)
    if unknown := set(given.target) - known.keys():
        parser.error(f"no target is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if given.inside:
        _inside(given.target[0], known[given.target[0]], rest)
        return 0
    if given.input:
        for name in given.target:
            known[name].call(given.input.read_bytes())
        return 0
    found = 0
    print(f"{'target':<18} {'seconds':>7} {'inputs':>10} {'branches':>9}  result")
    for name in given.target or known:
        found += _run(name, known[name], given.seconds)
    return min(found, 1)


def _run(name: str, target: Target, seconds: int) -> int:
    corpus, findings = HOME / name / "corpus", HOME / name / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed{number}").write_bytes(seed)
    words = HOME / name / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    before = set(findings.iterdir())
    began = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "fuzz", name, "--inside", str(corpus)),
            f"-max_total_time={seconds}",
            f"-max_len={target.longest}",
            f"-artifact_prefix={findings}/",
            f"-dict={words}",
            f"-timeout={SLOWEST_S}",
            f"-rss_limit_mb={MOST_MB}",
            "-print_final_stats=1",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    said = done.stdout + done.stderr
    inputs = re.findall(r"number_of_executed_units:\s*(\d+)", said) or re.findall(
        r"^#(\d+)", said, re.MULTILINE
    )
    covered = re.findall(r"\bcov: (\d+)", said)
    new = sorted(set(findings.iterdir()) - before)
    ok = done.returncode == 0 and not new
    verdict = "nothing found" if ok else f"FOUND {', '.join(map(str, new)) or f'exit {done.returncode}'}"
    print(
        f"{name:<18} {time.monotonic() - began:>7.0f} {inputs[-1] if inputs else '?':>10} "
        f"{covered[-1] if covered else '?':>9}  {verdict}",
        flush=True,
    )
    if not ok:
        print(done.stdout[-3000:])
    return int(not ok)


def _inside(name: str, target: Target, options: list[str]) -> None:
    """In a process of its own, since the fuzzer does not return."""
    import importlib  # noqa: PLC0415

    import atheris  # noqa: PLC0415 - a group of its own

    # Loaded once more, this time with an eye on every branch.
    for module in [
        each
        for each in sys.modules
        if each.partition(".")[0] == "midstream" or each in ("fuzz.targets", "fuzz.seeds")
    ]:
        del sys.modules[module]
    with atheris.instrument_imports(include=["midstream", "fuzz.targets"]):
        watched = importlib.import_module("fuzz.targets").targets()[name]
    del target
    atheris.Setup([sys.argv[0], *options], watched.call)
    atheris.Fuzz()


def _escaped(word: str) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}"
        for byte in word.encode("utf-8", "replace")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
