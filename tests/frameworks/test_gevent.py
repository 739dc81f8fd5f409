"""A process that gevent has patched: its threads are greenlets, and ours among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from benchmarks.wire import WireServer

from support.frameworks_through import CHAT, ROWS

pytest.importorskip("gevent")

PROGRAM = """
import gevent.monkey
gevent.monkey.patch_all()
import gc, json, sys, time
import gevent
from openai import OpenAI
import midstream

records, frozen = [], []
client = midstream.monitor(OpenAI(api_key="none", base_url=sys.argv[1]), freeze_after_s=0.3, on_end=records.append,
                           on_freeze=lambda freeze: frozen.append(len([s for s in midstream.streams() if s.frozen])))
ask = dict(model="m", messages=[], stream=True)
began = time.monotonic()
readers = [gevent.spawn(lambda: list(client.chat.completions.create(**ask))) for _ in range(5)]
gevent.joinall(readers, raise_error=True)
took_s = time.monotonic() - began

dropped = client.chat.completions.create(**ask)
next(dropped)
del dropped
gc.collect()
killed = gevent.spawn(lambda: list(client.chat.completions.create(**ask)))
gevent.sleep(0.7)
killed.kill()
deadline = time.monotonic() + 5
while len(records) < 7 and time.monotonic() < deadline:
    gevent.sleep(0.01)
print(json.dumps({"took_s": took_s, "frozen": frozen, "open": len(midstream.streams()),
                  "records": [(str(r.outcome), r.freezes, r.max_gap_s) for r in records]}))
"""


def test_greenlets() -> None:
    """Five at once freeze at once and are told so; dropped and killed ones leave their record; nothing hangs."""
    with WireServer(CHAT) as server:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, server.base_url],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ},
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["took_s"] < 2
    assert [(outcome, freezes) for outcome, freezes, _ in seen["records"]] == [
        *[("completed", 1)] * 5,
        ("left_early", 0),
        ("cancelled", 1),
    ]
    for _, _, gap_s in seen["records"][:5]:
        assert gap_s == pytest.approx(0.7, abs=0.15)
    assert max(seen["frozen"]) >= 4
    assert seen["open"] == 0
    ROWS.append(
        f"| gevent: {len(seen['records'])} records, gaps {[round(gap or 0, 2) for *_, gap in seen['records']]} |"
    )
