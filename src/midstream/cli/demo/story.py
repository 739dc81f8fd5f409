"""The two acts of `midstream demo`: how many users request what from which server, and how long that takes.

The numbers are chosen so that the commands that follow have enough to work with: 32 streams in each act are enough to
show that fewer freeze, and 64 enough for advice. Answers take about seven seconds, so that with the cap no user waits
longer than ten for the first word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from midstream.lab.admission import engine
from midstream.lab.emulation import Emulated
from midstream.lab.hardware import PROFILES
from midstream.lab.simulator import simulate
from midstream.lab.workload import closed_loop

ENGINE = "vllm"
HARDWARE = PROFILES["vllm-cpu"]
MODEL = "demo"
POOL: Mapping[str, int] = MappingProxyType({"num_gpu_blocks": 192, "block_size": 16})
"""The KV cache of the server: 3,072 tokens."""
SERVE = " ".join(
    ["midstream serve", f"--engine {ENGINE} --hardware {HARDWARE.name}"]
    + [f"--{name.replace('_', '-')} {value}" for name, value in POOL.items()]
)
"""The command that serves the same."""
CAP = "max_num_active_seqs"
PROMPT_TOKENS = 49
USERS = 16
ANSWERS = (
    310, 322, 298, 316, 304, 325, 296, 313, 319, 301, 324, 295, 308, 317, 303, 321,
    299, 314, 326, 307, 297, 318, 311, 305, 323, 300, 315, 309, 302, 320, 306, 312,
)  # fmt: skip
"""How long each answer becomes, in tokens. User N gets the answers N, N + USERS and so on, one after the other."""
LIMIT = 1024
"""The max_tokens of every request; vLLM does not reserve memory for it."""
STAGGER_S = 0.05
FREEZE_AFTER_S = 2.0
"""Below the default of `monitor()`, since answers are short."""


@dataclass(frozen=True, slots=True)
class Act:
    """One run of the load against one server. Times are seconds of real time."""

    flags: Mapping[str, Any]
    speed: float

    @property
    def emulated(self) -> Emulated:
        """The server."""
        return Emulated(ENGINE, dict(self.flags), HARDWARE, MODEL, self.speed)

    @property
    def freeze_after_s(self) -> float:
        """A gap of this length is a freeze."""
        return FREEZE_AFTER_S / self.speed

    @property
    def stagger_s(self) -> float:
        """The time between the first calls of two users."""
        return STAGGER_S / self.speed

    @property
    def lasts_s(self) -> float:
        """How long it will take, simulated; a tenth is added for the machine's own overhead."""
        calls = closed_loop(USERS, [(PROMPT_TOKENS, tokens) for tokens in ANSWERS], max_tokens=LIMIT)
        return 1.1 * simulate(engine(ENGINE, **self.flags), calls, HARDWARE).duration_s / self.speed

    def capped(self, most: int) -> Act:
        """Return the same with a cap on what runs at once."""
        return replace(self, flags={**self.flags, CAP: most})


def first_act(speed: float) -> Act:
    """Return the run that overloads the server."""
    return Act(POOL, speed)
