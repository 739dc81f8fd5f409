"""What a token costs in a model's KV cache, from the `config.json` that comes with the model.

Each layer keeps a key and a value for each of its KV heads: `2 * kv_heads * head_dim * bytes`. Layers that share
another's cache (`num_kv_shared_layers`) keep nothing, and neither do layers without attention. Multi-head latent
attention (DeepSeek) keeps one compressed vector instead: `(kv_lora_rank + qk_rope_head_dim) * bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Config: TypeAlias = Mapping[str, Any]

DTYPES: Mapping[str, float] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "half": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "int8": 1,
}
"""Bytes of one number in the KV cache, by the names that engines use."""

_NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
_NO_ATTENTION = ("linear_attention", "mamba", "conv", "recurrent", "mlp", "moe")
_WITHOUT = ("linear_attn_config", "mamba_d_state", "mamba_num_heads", "hybrid_override_pattern")


LARGEST = 2**31
MOST_LAYERS = 10_000


class ConfigError(ValueError):
    """The config does not show what a token costs; the message names the key."""


@dataclass(frozen=True, slots=True)
class KvCache:
    """What a token costs on one GPU, and what must be known about the number."""

    bytes_per_token: int
    formula: str
    notes: tuple[str, ...]


def kv_cache_of(config: Config, *, dtype: str | None = None, tensor_parallel: int = 1) -> KvCache:
    """Return what a token costs by a model's config.

    `dtype` is that of the KV cache, None for the model's own. With `tensor_parallel` GPUs each holds its part of
    the KV heads, and at least one of them. Raises ConfigError, naming the key that is absent or cannot be.
    """
    text = _text_config(config)
    if tensor_parallel < 1:
        raise ConfigError(f"tensor-parallel must be at least 1, got {tensor_parallel}")
    size, dtype_name = _bytes_of_dtype(text, config, dtype)
    layers = _layers(text)
    notes: list[str] = []
    if _optional(text, "index_head_dim"):
        notes.append("the model keeps an index beside its KV cache (index_head_dim), which is not counted")
    if _optional(text, "kv_lora_rank"):
        return _latent(text, layers, size, dtype_name, notes)
    return _heads(text, layers, (size, dtype_name), tensor_parallel, notes)


@dataclass(frozen=True, slots=True)
class _Layers:
    """How many layers keep the whole context, and how many of them only a window; those that share not counted."""

    full: int
    sliding: int
    window: int | None
    note: str


def _latent(text: Config, layers: _Layers, size: float, dtype: str, notes: list[str]) -> KvCache:
    rank, rope = _number(text, "kv_lora_rank"), _number(text, "qk_rope_head_dim")
    count = layers.full + layers.sliding
    return KvCache(
        bytes_per_token=round(count * (rank + rope) * size),
        formula=f"{count} layers{layers.note} x latent ({rank} + {rope}) x {size:g} bytes of {dtype}",
        notes=(*notes, "multi-head latent attention: with tensor parallelism each GPU keeps all of it"),
    )


def _heads(
    text: Config, layers: _Layers, number: tuple[float, str], parallel: int, notes: list[str]
) -> KvCache:
    size, dtype = number
    heads, head_dim = _kv_heads(text, notes), _head_dim(text)
    full_heads = _optional(text, "num_global_key_value_heads") or heads
    full_dim = _optional(text, "global_head_dim") or head_dim

    def layer(kv_heads: int, dim: int) -> float:
        return 2 * max(1, kv_heads // parallel) * dim * size

    sliding = layers.sliding * layer(heads, head_dim)
    full = layers.full * (layer(full_heads, full_dim) if layers.sliding else layer(heads, head_dim))
    if layers.sliding and layers.window is not None:
        notes.append(
            f"{layers.sliding} of the layers look back {layers.window:,} tokens only; an engine that frees what is "
            "older holds more tokens than this"
        )
    each = f"2 x {max(1, heads // parallel)} KV heads x {head_dim} x {size:g} bytes of {dtype}"
    formula = f"{layers.full + layers.sliding} layers{layers.note} x {each}"
    if layers.sliding and layers.full and (full_heads, full_dim) != (heads, head_dim):
        wide = f"2 x {max(1, full_heads // parallel)} x {full_dim} x {size:g}"
        formula = f"{layers.sliding} layers{layers.note} x {each}, and {layers.full} x {wide}"
    return KvCache(
        bytes_per_token=round(sliding + full),
        formula=formula,
        notes=tuple(notes),
    )


def _text_config(config: Config) -> Config:
    """Return the part that describes the language model: models with images or sound nest it."""
    for name in _NESTED:
        nested = config.get(name)
        if isinstance(nested, Mapping):
            return _text_config(nested)
    return config


def _bytes_of_dtype(text: Config, config: Config, dtype: str | None) -> tuple[float, str]:
    named = dtype
    if named is None or named == "auto":
        keys = [part.get(key) for part in (text, config) for key in ("dtype", "torch_dtype")]
        named = next((value for value in keys if isinstance(value, str)), None)
    if named is None:
        raise ConfigError(
            "the config has no `dtype` (or `torch_dtype`); give the type of the KV cache with --kv-dtype"
        )
    known = DTYPES.get(named.removeprefix("torch."))
    if known is None:
        raise ConfigError(
            f"`dtype` is {named!r}; give the type of the KV cache with --kv-dtype: one of {', '.join(DTYPES)}"
        )
    return known, named.removeprefix("torch.")


def _layers(text: Config) -> _Layers:
    count = _number(text, "num_hidden_layers", "n_layer", "num_layers")
    if count > MOST_LAYERS:
        raise ConfigError(f"`num_hidden_layers` is {count:,}; no model has so many")
    shared = _optional(text, "num_kv_shared_layers") or 0
    if shared >= count:
        raise ConfigError(
            f"`num_kv_shared_layers` is {shared} of {count} layers; at least one must keep its own"
        )
    types = _layer_types(text, count)[: count - shared]
    window = _optional(text, "sliding_window")
    if text.get("use_sliding_window") is False:
        window = None
    sliding = sum("sliding" in kind or "chunked" in kind for kind in types) if window else 0
    kept = sum(kind not in _NO_ATTENTION for kind in types)
    if not kept:
        raise ConfigError("`layer_types` names no layer with attention; this model keeps no KV cache")
    parts = [f"{shared} of {count} share" if shared else "", f"{count - shared - kept} without attention"]
    noted = ", ".join(part for part in parts if part and not part.startswith("0 "))
    return _Layers(kept - sliding, sliding, window, f" ({noted})" if noted else "")


def _layer_types(text: Config, count: int) -> list[str]:
    """Return what each layer is, by whichever key has it; a model without such a key has the same everywhere."""
    named = text.get("layer_types")
    if isinstance(named, list) and all(isinstance(kind, str) for kind in named):
        if len(named) != count:
            raise ConfigError(f"`layer_types` names {len(named)} layers of {count}")
        return named
    every = _optional(text, "full_attention_interval")
    if every:
        return ["full_attention" if (n + 1) % every == 0 else "linear_attention" for n in range(count)]
    period = _optional(text, "attn_layer_period")
    if period:
        offset = _optional(text, "attn_layer_offset") or 0
        return ["full_attention" if n % period == offset else "mamba" for n in range(count)]
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == count:
        return ["full_attention" if letter == "*" else "mamba" for letter in pattern]
    if any(text.get(key) is not None for key in _WITHOUT):
        raise ConfigError(
            "the model has layers without attention, but no `layer_types` names them; give --pool"
        )
    every = _optional(text, "sliding_window_pattern")
    if every:
        return ["full_attention" if (n + 1) % every == 0 else "sliding_attention" for n in range(count)]
    only = "full_attention" if text.get("sliding_window") is None else "sliding_attention"
    return [only] * count


def _kv_heads(text: Config, notes: list[str]) -> int:
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        return 1
    named = _optional(text, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    if named == 0:
        raise ConfigError("`num_key_value_heads` is 0; it must be a positive whole number")
    if named is not None:
        return named
    heads = _number(text, "num_attention_heads", "n_head")
    notes.append(f"the config has no `num_key_value_heads`: each of the {heads} heads keeps its own")
    return heads


def _head_dim(text: Config) -> int:
    named = _optional(text, "head_dim", "attention_head_dim")
    if named == 0:
        raise ConfigError("`head_dim` is 0; it must be a positive whole number")
    if named is not None:
        return named
    if "hidden_size" not in text and "n_embd" not in text:
        raise ConfigError(
            "the config has neither `head_dim` nor `hidden_size`; is it the model's config.json?"
        )
    hidden, heads = _number(text, "hidden_size", "n_embd"), _number(text, "num_attention_heads", "n_head")
    if hidden < heads:
        raise ConfigError(f"`hidden_size` is {hidden} for {heads} heads; is it the model's config.json?")
    return hidden // heads


def _optional(text: Config, *keys: str) -> int | None:
    """Return a whole number by the first key that has one; None if none has. 0 is a number here."""
    for key in keys:
        value = text.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"`{key}` is {value!r}; it must be a whole number")
        if value > LARGEST:
            raise ConfigError(f"`{key}` is more than {LARGEST:,}; is it the model's config.json?")
        return value
    return None


def _number(text: Config, *keys: str) -> int:
    """Return a positive whole number by the first key that has one."""
    value = _optional(text, *keys)
    if value is None:
        raise ConfigError(f"the config has no `{keys[0]}`; is it the model's config.json?")
    if value == 0:
        raise ConfigError(f"`{keys[0]}` is 0; it must be a positive whole number")
    return value
