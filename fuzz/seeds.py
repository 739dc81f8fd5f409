"""What the fuzzer begins with: small inputs of each kind that are what they should be."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from midstream.journal._rows import row_of
from midstream.stream.model import Call, Outcome
from midstream.stream.session import Session
from midstream.stream.snapshots import record_of

TESTS = Path(__file__).parent.parent / "tests"
CHUNKS = (
    (
        b'{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"x"},'
        b'"finish_reason":null}]}\n{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f",'
        b'"arguments":"{}"}}],"reasoning":"r","refusal":"n","audio":{"data":"A"},"function_call":{"name":"f"}},'
        b'"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"completion_tokens_details":'
        b'{"reasoning_tokens":1},"prompt_tokens_details":{"cached_tokens":2}}}\n{"error":{"message":"m","code":5}}'
    ),
    (
        b'{"type":"response.created","response":{"id":"r","model":"m"}}\n{"type":"response.output_text.delta","delta":"x"}\n'
        b'{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}\n'
        b'{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},'
        b'"usage":{"input_tokens":3,"output_tokens":4,"output_tokens_details":{"reasoning_tokens":1}},"output":[]}}'
    ),
    (
        b'{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}\n{"type":"message_delta","delta":'
        b'{"stop_reason":"max_tokens"},"usage":{"output_tokens":5}}\n{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}'
    ),
)
LOGS = (
    b"INFO 11-29 kv_cache_utils.py:1087] GPU KV cache size: 30,240 tokens\n",
    b"INFO gpu_executor.py:122] # GPU blocks: 1890, # CPU blocks: 2048, block_size 16\n",
    b"[TP0] KV Cache is allocated. #tokens: 20000, K size: 1.2 GB, V size: 1.2 GB\n[TP0] max_total_num_tokens=20000\n",
    b"[TensorRT-LLM][INFO] [MemUsageChange] Allocated 4.50 GiB for max tokens in paged KV cache (32800).\n",
    b"llama_context: n_ctx = 4096\nllama_kv_cache: size = 512.00 MiB\n",
)
PROMETHEUS = (
    (
        b'{"status":"success","data":["stream_ended_total","stream_max_gap_seconds_bucket","stream_max_gap_seconds"]}\n'
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"outcome":"completed","finish_reason":"stop",'
        b'"gen_ai_request_model":"m","le":"5"},"value":[1,"3"],"values":[[1,"3"],[2,"4"]]}]}}\n'
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"gen_ai_request_model":"m"},"histogram":'
        b'[1,{"count":"3","sum":"2","buckets":[[0,"0.5","1","3"]]}]}]},"warnings":["w"]}'
    ),
)
CONFIGS = (
    (
        b'{"num_hidden_layers":36,"num_key_value_heads":8,"num_attention_heads":32,"head_dim":128,"torch_dtype":"bfloat16",'
        b'"hidden_size":4096,"sliding_window":512,"layer_types":["full_attention","sliding_attention"]}'
    ),
    b'{"text_config":{"num_hidden_layers":61,"kv_lora_rank":512,"qk_rope_head_dim":64,"dtype":"float8"},"n_layer":12}',
)


def files(pattern: str, most: int) -> tuple[bytes, ...]:
    return tuple(file.read_bytes()[:most] for file in sorted(TESTS.glob(pattern))[:8])


def journals() -> tuple[bytes, ...]:
    from midstream.journal import Journal  # noqa: PLC0415

    call = Call("chat", "openai", "h", 1, "m", 0.0, 1.7e9)
    record = record_of(Session(call, 0.0, 5.0), Outcome.UNREAD, None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "streams.db"
        writer = Journal(path, max_days=None)
        for _ in range(3):
            writer.write(record)
        writer.flush(10.0)
        import sqlite3  # noqa: PLC0415

        connection, whole = sqlite3.connect(path), Path(folder) / "whole.db"
        connection.execute("VACUUM INTO ?", (str(whole),))  # with nothing left in a file beside it
        connection.close()
        return (whole.read_bytes(),)


def rows() -> tuple[bytes, ...]:

    record = record_of(
        Session(Call("chat", "openai", "h", 1, "m", 0.0, 1.7e9), 0.0, 5.0), Outcome.UNREAD, None
    )
    return (json.dumps(row_of(record)).encode(),)


JSON = ("null", "true", "false", "NaN", "Infinity", "1e999", "-0", '""', "[]", "{}", '"\\ud800"', "\\u0000")


def named(*names: str) -> tuple[str, ...]:
    return JSON + names
