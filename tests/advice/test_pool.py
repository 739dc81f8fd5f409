"""The size of a KV cache, from wherever somebody can read it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.advice.kv import ConfigError, kv_cache_of
from midstream.advice.pool import (
    Pool,
    PoolError,
    bytes_of,
    pool_of_log,
    pool_of_model,
    pool_of_view,
)
from midstream.sources.server import view_of

QWEN3_8B: dict[str, Any] = {
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": None,
    "use_sliding_window": False,
}
GEMMA_4_E2B: dict[str, Any] = {
    "model_type": "gemma4",
    "text_config": {
        "dtype": "bfloat16",
        "hidden_size": 1536,
        "num_hidden_layers": 35,
        "num_kv_shared_layers": 20,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    },
}
DEEPSEEK_V3: dict[str, Any] = {
    "torch_dtype": "bfloat16",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}


def less(config: dict[str, Any], *names: str) -> dict[str, Any]:
    """The config without some of its keys."""
    return {name: value for name, value in config.items() if name not in names}


# A model's config


def test_qwen3_8b_costs_144_kib_a_token() -> None:
    """36 layers, a key and a value for each of 8 heads of 128, 2 bytes each."""
    cache = kv_cache_of(QWEN3_8B)
    assert cache.bytes_per_token == 144 * 1024
    assert cache.formula == "36 layers x 2 x 8 KV heads x 128 x 2 bytes of bfloat16"
    assert cache.notes == ()


def test_gemma_4_e2b_costs_15360_bytes_a_token() -> None:
    """Of 35 layers 20 share another's: 15 keep a key and a value of 256 numbers of 2 bytes."""
    cache = kv_cache_of(GEMMA_4_E2B)
    assert cache.bytes_per_token == 15_360
    assert cache.formula == "15 layers (20 of 35 share) x 2 x 1 KV heads x 256 x 2 bytes of bfloat16"


def test_1255_blocks_of_256_hold_321280_tokens() -> None:
    """What vLLM's log on a TPU says of it."""
    pool = pool_of_model(kv_cache_of(GEMMA_4_E2B), 1255 * 256 * 15_360 + 256 * 15_360 - 1, block_size=256)
    assert pool.tokens == 321_280


def test_global_layers_with_larger_heads_cost_more() -> None:
    """Of those 15 layers of Gemma 4 E2B, 12 slide; the 3 others have a head of 512 where the config says so."""
    text = {**GEMMA_4_E2B["text_config"], "global_head_dim": 512}
    cache = kv_cache_of({"text_config": text})
    assert cache.bytes_per_token == 12 * 1024 + 3 * 2048
    # vLLM's limit of 14.49 GiB less weights of 8.97: 1,255 blocks of 256, or 1,256 by what these are rounded to.
    assert (
        pool_of_model(cache, bytes_of("14.49GiB") - bytes_of("8.97GiB"), block_size=256).tokens == 1256 * 256
    )


def test_a_sliding_window_counts_in_full_and_is_told() -> None:
    """How many tokens fit is a lower bound then."""
    cache = kv_cache_of(GEMMA_4_E2B)
    assert cache.notes == (
        "12 of the layers look back 512 tokens only; an engine that frees what is older holds more tokens than this",
    )


def test_deepseek_keeps_a_latent_instead() -> None:
    """61 layers of 512 + 64 numbers of 2 bytes: neither heads nor a factor of two."""
    assert kv_cache_of(DEEPSEEK_V3).bytes_per_token == 61 * 576 * 2


@pytest.mark.parametrize(
    ("changed", "layers"),
    [
        ({"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 9}, 9),
        ({"full_attention_interval": 4}, 9),
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, 4),
        ({"hybrid_override_pattern": "M*-M" * 9}, 9),
        ({"num_kv_shared_layers": 16}, 20),
    ],
)
def test_layers_that_keep_nothing_do_not_count(changed: dict[str, Any], layers: int) -> None:
    """Those without attention, and those that share."""
    assert kv_cache_of({**QWEN3_8B, **changed}).bytes_per_token == layers * 4096


@pytest.mark.parametrize(
    ("dtype", "size"), [("fp8", 1), ("fp8_e5m2", 1), ("float32", 4), ("auto", 2), ("bfloat16", 2)]
)
def test_the_cache_may_be_in_another_type(dtype: str, size: int) -> None:
    """An 8-bit cache holds twice as much."""
    assert kv_cache_of(QWEN3_8B, dtype=dtype).bytes_per_token == 36 * 2 * 8 * 128 * size


def test_gpus_share_heads_but_each_has_at_least_one() -> None:
    """Eight heads on 4 GPUs are two each, and on 16 one each."""
    assert kv_cache_of(QWEN3_8B, tensor_parallel=4).bytes_per_token == 36 * 1024
    assert kv_cache_of(QWEN3_8B, tensor_parallel=16).bytes_per_token == 36 * 512


def test_older_configs_have_other_names() -> None:
    """Without KV heads of its own each head has one, which is said."""
    old = {"dtype": "float16", "n_layer": 12, "n_head": 12, "n_embd": 768}
    cache = kv_cache_of(old)
    assert cache.bytes_per_token == 12 * 2 * 12 * 64 * 2
    assert cache.notes == ("the config has no `num_key_value_heads`: each of the 12 heads keeps its own",)
    assert kv_cache_of({**old, "multi_query": True}).bytes_per_token == 12 * 2 * 64 * 2


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            less(QWEN3_8B, "num_hidden_layers"),
            "the config has no `num_hidden_layers`; is it the model's config.json?",
        ),
        (
            less(QWEN3_8B, "torch_dtype"),
            "the config has no `dtype` (or `torch_dtype`); give the type of the KV cache with --kv-dtype",
        ),
        (
            less(QWEN3_8B, "head_dim", "hidden_size"),
            "the config has neither `head_dim` nor `hidden_size`; is it the model's config.json?",
        ),
        (
            less(QWEN3_8B, "num_attention_heads", "num_key_value_heads"),
            "the config has no `num_attention_heads`; is it the model's config.json?",
        ),
        (
            less(DEEPSEEK_V3, "qk_rope_head_dim"),
            "the config has no `qk_rope_head_dim`; is it the model's config.json?",
        ),
        ({**QWEN3_8B, "num_key_value_heads": "8"}, "`num_key_value_heads` is '8'; it must be a whole number"),
        (
            {**QWEN3_8B, "num_key_value_heads": 0},
            "`num_key_value_heads` is 0; it must be a positive whole number",
        ),
        ({**QWEN3_8B, "layer_types": ["full_attention"]}, "`layer_types` names 1 layers of 36"),
        (
            {**QWEN3_8B, "num_kv_shared_layers": 36},
            "`num_kv_shared_layers` is 36 of 36 layers; at least one must keep its own",
        ),
        (
            {**QWEN3_8B, "mamba_d_state": 128},
            "the model has layers without attention, but no `layer_types` names them; give --pool",
        ),
    ],
)
def test_a_config_that_lacks_something_is_told_which_key(config: dict[str, Any], sentence: str) -> None:
    """One sentence that names it."""
    with pytest.raises(ConfigError) as refused:
        kv_cache_of(config)
    assert str(refused.value) == sentence


@given(memory=st.integers(10**6, 10**11), more=st.integers(0, 10**10), block=st.sampled_from([1, 16, 256]))
def test_more_memory_never_holds_fewer_tokens(memory: int, more: int, block: int) -> None:
    """And always whole blocks, which fit."""
    cache = kv_cache_of(GEMMA_4_E2B)
    try:
        pool = pool_of_model(cache, memory, block_size=block)
    except PoolError:
        assert memory < block * 15_360
        return
    assert pool.tokens % block == 0
    assert pool.tokens * 15_360 <= memory < (pool.tokens + block) * 15_360
    assert pool_of_model(cache, memory + more, block_size=block).tokens >= pool.tokens


def test_memory_that_holds_nothing_is_an_error() -> None:
    """Not a pool of 0 tokens."""
    with pytest.raises(PoolError, match="1,000 bytes hold not even a block of 16 tokens of 144 KiB each"):
        pool_of_model(kv_cache_of(QWEN3_8B), 1000, block_size=16)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("12GiB", 12 * 2**30),
        ("12 GB", 12 * 10**9),
        ("12288MiB", 12 * 2**30),
        ("1.5g", 1_500_000_000),
        ("4096", 4096),
        ("80Gi", 80 * 2**30),
    ],
)
def test_an_amount_of_memory_is_read_as_people_write_it(text: str, amount: int) -> None:
    """GiB are binary and GB are not."""
    assert bytes_of(text) == amount


@pytest.mark.parametrize("text", ["", "much", "-3GiB", "12 GiB free", "1e9"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(
        ValueError, match="is no amount of memory; write 12GiB, 12288MiB, or a number of bytes"
    ):
        bytes_of(text)


# A log


@pytest.mark.parametrize(
    ("line", "tokens", "engine"),
    [
        (
            "(EngineCore_DP0 pid=77) INFO 12-11 00:06:53 [kv_cache_utils.py:1286] GPU KV cache size: 30,240 tokens",
            30240,
            "vLLM",
        ),
        (
            "TPU KV cache size: 321,280 tokens, Maximum concurrency for 8,192 tokens per request: 39.22x",
            321280,
            "vLLM",
        ),
        ("INFO 08-22 15:27:25 llm_engine.py:196] # GPU blocks: 865, # CPU blocks: 327", 13840, "vLLM"),
        ("[2026-11-01 13:53:23 TP0] KV Cache is allocated. #tokens: 25224, K size: 1.73 GB", 25224, "SGLang"),
        ("max_total_num_tokens=25224, chunked_prefill_size=2048, max_running_requests=2048", 25224, "SGLang"),
        (
            "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 4.50 GiB for max tokens in paged KV cache (32800).",
            32800,
            "TensorRT-LLM",
        ),
        (
            "INFO text_generation_router: router/src/main.rs:354: Setting max batch total tokens to 43808",
            43808,
            "TGI",
        ),
        (
            "llama_kv_cache_unified: size = 18432.00 MiB (131072 cells,  36 layers,  1/ 1 seqs), K (f16)",
            131072,
            "llama.cpp",
        ),
        ("llama_kv_cache: size =  576.00 MiB (  4096 cells,  36 layers,  4/4 seqs)", 16384, "llama.cpp"),
        ("llama_kv_cache_unified: size =  128.00 MiB (  4096 cells,  16 layers,  1 seqs)", 4096, "llama.cpp"),
    ],
)
def test_a_start_up_log_tells_the_pool(line: str, tokens: int, engine: str) -> None:
    """In the line of each engine, wherever in the log it stands."""
    pool = pool_of_log(f"loading\n{line}\nready\n")
    assert (pool.tokens, pool.source) == (tokens, f"start-up log of {engine}")


def test_of_several_starts_the_last_one_counts() -> None:
    """TensorRT-LLM tells a first estimate as well."""
    line = "[MemUsageChange] Allocated {} GiB for max tokens in paged KV cache ({})\n"
    pool = pool_of_log(line.format("0.56", 8224) + line.format("4.50", 32800))
    assert pool.tokens == 32800
    assert pool.notes == ("the log has other sizes before, too: 8,224; the last one counts",)


def test_a_log_without_the_line_is_an_error() -> None:
    """Not a pool of 0 tokens."""
    with pytest.raises(PoolError, match="the log has no line with the size of the KV cache"):
        pool_of_log("ready\n")
    with pytest.raises(PoolError, match="shows a KV cache without a token"):
        pool_of_log("# GPU blocks: 0, # CPU blocks: 1024")


# Metrics


def pool_of_page(text: str) -> Pool:
    return pool_of_view(view_of(text))


def test_metrics_tell_the_pool() -> None:
    """Those of vLLM in blocks, those of SGLang in tokens, once for all ranks."""
    vllm = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1890"} 1.0\n'
    assert pool_of_page(vllm).tokens == 30_240
    both = vllm + vllm.replace('engine="0"', 'engine="1"')
    assert pool_of_page(both).tokens == 60_480
    assert pool_of_page(both).notes == (
        "the server reports it in 2 separate pools together: a flag is for each of them",
    )
    ranks = "".join(f'sglang:max_total_num_tokens{{model_name="m",tp_rank="{n}"}} 25224\n' for n in range(4))
    assert pool_of_page(ranks).tokens == 25_224
    trtllm = '[{"iter": 1, "kvCacheStats": {"maxNumBlocks": 1025, "tokensPerBlock": 32, "usedNumBlocks": 3}}]'
    assert pool_of_page(trtllm).tokens == 32_800


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n',
            "give the number with --pool",
        ),
        ("tgi_queue_size 0\n", "--max-batch-total-tokens; give the number with --pool"),
        ("llamacpp:requests_processing 1\n", "it is -c, the context size; give the number with --pool"),
    ],
)
def test_metrics_that_do_not_tell_it_are_an_error(page: str, sentence: str) -> None:
    """And never 0."""
    with pytest.raises(PoolError) as refused:
        pool_of_page(page)
    assert sentence in str(refused.value)
