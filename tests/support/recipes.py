"""The code of docs/fallbacks.md, as it stands on the page, and what its two servers send."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.wire import Script

from midstream.testing import DONE, PING, finish, role, text
from support.paths import ROOT

PAGE = ROOT / "docs" / "fallbacks.md"
PINGS = [(0.1 + 0.1 * number, PING) for number in range(100)]
WHOLE: Script = [(0.02, role()), (0.04, text("Hello")), (0.06, text(" you")), (0.08, finish()), (0.08, DONE)]
SILENT: Script = [(0.02, role()), *PINGS]
HALF: Script = [(0.02, role()), (0.04, text("Hel")), *PINGS]
LIMITS: dict[str, Any] = {"stall_timeout_s": 1.0, "first_content_timeout_s": 1.0}


def recipe(heading: str, **names: Any) -> dict[str, Any]:
    """Run the block of code under a heading, and return what it defines."""
    under = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (source,) = re.findall(r"^```py(?:thon)?\n(.*?)^```", under, re.DOTALL | re.MULTILINE)
    exec(compile(source, f"{PAGE}: {heading}", "exec"), names)  # noqa: S102 - our own page
    return names
