"""Run the measurements one after the other: `python -m benchmarks`, or `make bench`."""

from __future__ import annotations

import sys

from benchmarks import (
    accuracy,
    coverage,
    floor,
    imports,
    instructions,
    journal,
    memory,
    overhead,
    peers,
    proxy,
    reality,
    scale,
    transport,
    writeup,
)

for title, main, arguments in (
    ("What it costs", overhead.main, []),
    ("What the least would cost", floor.main, []),
    ("What it costs through an HTTP library", transport.main, []),
    ("What the proxy costs", proxy.main, []),
    (
        "What other instrumentations cost",
        peers.main,
        ["--rounds", "60", "--json", f"{peers.HOME}/peers.json"],
    ),
    ("What it holds", memory.main, []),
    ("Ten thousand streams at once", scale.main, []),
    ("What its import takes", imports.main, []),
    ("Instructions", instructions.main, []),
    ("How exact it is", accuracy.main, ["--rounds", "1"]),
    ("What the journal costs, takes and loses", journal.main, []),
):
    print(f"\n{title}\n", flush=True)
    main(arguments)
for title, module in (
    ("How often the advised limit is right", coverage),
    ("The lab against a real server", reality),
    ("The lab against the write-up", writeup),
):
    print(f"\n{title}\n", flush=True)
    module.main()
sys.exit(0)
