"""What a step costs: a model served on a chip, as a few rates that can be stated, computed or fitted.

A step takes `step_s`, and `sequence_s` for each request that decodes, and `context_s` for each token of
context that those read; and for each token of a prompt `prefill_token_s`, and `prefill_pair_s` for each
earlier token it attends to. Prefill and decode in one step add up. Real hardware overlaps some of it; the
profile is that much pessimistic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from midstream.lab.admission import Step


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """The costs of a step, and of a call on its way to the engine's queue, in seconds.

    A call is `latency_s` under way. Then the server's front end has it for `front_end_s`: it reads calls, makes
    prompts and tokens of them, and has one at a time. So calls that come at once are queued one after the other.
    """

    name: str
    step_s: float
    sequence_s: float
    context_s: float
    prefill_token_s: float
    prefill_pair_s: float = 0.0
    latency_s: float = 0.0
    front_end_s: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse costs that would let time stand still or run backwards."""
        costs = (
            self.sequence_s,
            self.context_s,
            self.prefill_token_s,
            self.prefill_pair_s,
            self.latency_s,
            self.front_end_s,
        )
        if not self.step_s > 0 or min(costs) < 0:
            raise ValueError(
                f"the costs of {self.name} must not be negative, and step_s must be above 0: {self}"
            )

    def decode_s(self, sequences: int, context: float) -> float:
        """Return how long a step takes in which `sequences` requests decode, reading `context` tokens."""
        return self.step_s + self.sequence_s * sequences + self.context_s * context

    def duration_s(self, step: Step) -> float:
        """Return how long a step takes."""
        seconds = self.decode_s(len(step.decode), step.decode_context)
        for chunk in step.prefill:
            pairs = chunk.tokens * chunk.start + chunk.tokens * (chunk.tokens + 1) // 2
            seconds += chunk.tokens * self.prefill_token_s + pairs * self.prefill_pair_s
        return seconds


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator: memory bandwidth, and dense 16-bit arithmetic."""

    bytes_per_s: float
    flops_per_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Model:
    """What a model asks of a chip: bytes of weights, bytes of KV cache a token, operations."""

    name: str
    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    flops_per_pair: float
    source: str


L4 = Chip(300e9, 121e12, "NVIDIA L4 datasheet: 300 GB/s, 242 TFLOPS BF16 with sparsity, half without")
A100 = Chip(2039e9, 312e12, "NVIDIA A100 80GB SXM datasheet: 2,039 GB/s, 312 TFLOPS BF16")
H100 = Chip(
    3350e9,
    989e12,
    "NVIDIA H100 SXM datasheet: 3.35 TB/s, 1,979 TFLOPS BF16 with sparsity, half of it without",
)

QWEN3_8B = Model(
    name="Qwen3-8B",
    weight_bytes=15.27 * 2**30,
    kv_bytes_per_token=144 * 2**10,
    flops_per_token=2 * 8.19e9,
    flops_per_pair=4 * 36 * 32 * 128,
    source="Qwen3-8B: BF16 weights of 15.27 GiB, 8.19e9 parameters, 36 layers, heads of 128: 32 and 8",
)

BANDWIDTH_SHARE = 0.8
"""Share of a chip's bandwidth that decoding reaches: assumed."""

COMPUTE_SHARE = 0.5
"""Share of a chip's arithmetic that prefill reaches: assumed."""

STEP_OVERHEAD_S = 0.003
"""Scheduling, launching and sampling in each step: assumed."""


def computed_profile(name: str, chip: Chip, model: Model) -> HardwareProfile:
    """Return the profile of a model on a chip from first principles.

    Decoding reads all weights once a step and each request's KV cache, so it is bound by bandwidth; prefill
    is bound by arithmetic. A request in the batch costs its context and its share of arithmetic.
    """
    bandwidth = chip.bytes_per_s * BANDWIDTH_SHARE
    compute = chip.flops_per_s * COMPUTE_SHARE
    return HardwareProfile(
        name=name,
        step_s=STEP_OVERHEAD_S + model.weight_bytes / bandwidth,
        sequence_s=model.flops_per_token / compute,
        context_s=model.kv_bytes_per_token / bandwidth,
        prefill_token_s=model.flops_per_token / compute,
        prefill_pair_s=model.flops_per_pair / compute,
        source=f"{chip.source}. {model.source}. Assumed: {BANDWIDTH_SHARE:.0%} of the bandwidth, "
        f"{COMPUTE_SHARE:.0%} of the arithmetic, {STEP_OVERHEAD_S * 1000:g} ms a step",
    )


V5E = HardwareProfile(
    name="v5e",
    step_s=1 / 132,
    sequence_s=0.0,
    context_s=15_360 / (819e9 * BANDWIDTH_SHARE),
    prefill_token_s=1 / 13_100,
    source="Gemma 4 E2B in BF16 on one TPU v5e under vLLM 0.30, as a client measured it: 120 to 144 tokens a "
    "second for one stream, 13,100 a second of prefill with a prompt of 124,949. Assumed: 15,360 bytes of KV "
    f"cache a token at {BANDWIDTH_SHARE:.0%} of 819 GB/s, and a batch that costs nothing more",
)

VLLM_CPU = HardwareProfile(
    name="vllm-cpu",
    step_s=0.01097,
    sequence_s=0.000778,
    context_s=1.64e-6,
    prefill_token_s=0.000743,
    front_end_s=0.0359,
    source="a Llama of 69 million parameters under vLLM 0.32 on two CPU cores: what fit_profile() makes of the "
    "recorded loads roomy and cap4_active, rounded",
)

PROFILES: Mapping[str, HardwareProfile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            computed_profile("l4", L4, QWEN3_8B),
            computed_profile("a100", A100, QWEN3_8B),
            computed_profile("h100", H100, QWEN3_8B),
            V5E,
            VLLM_CPU,
        )
    }
)
"""The profiles that come with midstream, by name."""
