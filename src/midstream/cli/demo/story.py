"""The two acts of `midstream demo`: who asks for what, of which server, and how long that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from midstream.lab.admission import Request, engine
from midstream.lab.emulation import Emulated
from midstream.lab.hardware import PROFILES
from midstream.lab.simulator import simulate
from midstream.lab.workload import Workload, WorkloadCall

ENGINE = "vllm"
HARDWARE = PROFILES["vllm-cpu"]
MODEL = "demo"
POOL: Mapping[str, int] = MappingProxyType({"num_gpu_blocks": 28, "block_size": 128})
"""The KV cache of the server: 3,584 tokens, as in the recorded load `over8`."""
SERVE = " ".join(
    ["midstream serve", f"--engine {ENGINE} --hardware {HARDWARE.name}"]
    + [f"--{name.replace('_', '-')} {value}" for name, value in POOL.items()]
)
"""The command that serves the same, for as long as one likes."""
CAP = "max_num_active_seqs"
PROMPT_TOKENS = 49
ANSWERS = (720, 740, 700, 760, 620, 680, 640, 660)
"""How long the answer to each user becomes, in tokens."""
LIMIT = 1024
"""The max_tokens that every user sends; with vLLM it has no part in admission."""
STAGGER_S = 0.05
FREEZE_AFTER_S = 2.0
"""Below the default of `monitor()`, so that short freezes are seen, too."""


@dataclass(frozen=True, slots=True)
class Act:
    """One run of the load against one server. Times are seconds as they pass for whoever watches."""

    flags: Mapping[str, Any]
    speed: float

    @property
    def emulated(self) -> Emulated:
        """The server."""
        return Emulated(ENGINE, dict(self.flags), HARDWARE, MODEL, self.speed)

    @property
    def freeze_after_s(self) -> float:
        """What counts as a freeze."""
        return FREEZE_AFTER_S / self.speed

    @property
    def stagger_s(self) -> float:
        """What passes between two users' calls."""
        return STAGGER_S / self.speed

    @property
    def lasts_s(self) -> float:
        """How long it will take, simulated; a tenth is added for what the machine adds."""
        calls = (
            WorkloadCall(Request(index, PROMPT_TOKENS, tokens, LIMIT), index * STAGGER_S)
            for index, tokens in enumerate(ANSWERS)
        )
        return (
            1.1
            * simulate(engine(ENGINE, **self.flags), Workload(tuple(calls)), HARDWARE).duration_s
            / self.speed
        )

    def capped(self, most: int) -> Act:
        """Return the same with a cap on what runs at once."""
        return replace(self, flags={**self.flags, CAP: most})


def first_act(speed: float) -> Act:
    """Return the run that overloads the server."""
    return Act(POOL, speed)
