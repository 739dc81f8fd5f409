"""Pages of metrics as engines write them, a few lines each, and a server that serves one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.paths import RECORDINGS

RECORDED = RECORDINGS / "vllm_rules_metrics.txt"
"""What vLLM 0.32 said after four preemptions; its histograms are left out."""


def vllm(
    running: int = 1, waiting: int = 0, usage: float = 0.5, preemptions: int = 0, tokens: int = 0
) -> str:
    """A vLLM of today."""
    at = '{engine="0",model_name="m"}'
    return (
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{at} {running}.0\n"
        f"vllm:num_requests_waiting{at} {waiting}.0\n"
        f"vllm:kv_cache_usage_perc{at} {usage}\n"
        f"# TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total{at} {preemptions}.0\n"
        f"vllm:generation_tokens_total{at} {tokens}.0\n"
        'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0\n'
    )


SGLANG = """
sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="0"} 3.0
sglang:num_queue_reqs{model_name="m",tp_rank="0",pp_rank="0"} 2.0
sglang:token_usage{model_name="m",tp_rank="0",pp_rank="0"} 0.25
sglang:new_token_ratio{model_name="m",tp_rank="0",pp_rank="0"} 0.5
sglang:generation_tokens_total{model_name="m"} 500.0
sglang:max_total_num_tokens{model_name="m",tp_rank="0",pp_rank="0"} 20000.0
"""

TGI = """
tgi_queue_size 4
tgi_batch_current_size 2
tgi_request_count 10
tgi_request_input_length_count 13
tgi_request_input_length_sum 130
tgi_request_generated_tokens_sum 900
tgi_request_failure{err="validation"} 1
"""

TRTLLM = """
trtllm_num_requests_running{model_name="m"} 5.0
trtllm_num_requests_waiting{model_name="m"} 1.0
trtllm_num_paused_requests{model_name="m"} 2.0
trtllm_kv_cache_utilization{model_name="m"} 0.75
trtllm_kv_cache_max_blocks{model_name="m"} 100.0
trtllm_kv_cache_tokens_per_block{model_name="m"} 32.0
"""

TRTLLM_JSON = """[
{"iter": 1, "numActiveRequests": 3, "numQueuedRequests": 0, "inflightBatchingStats": {"numPausedRequests": 2},
 "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 99, "tokensPerBlock": 32}},
{"iter": 2, "numActiveRequests": 4, "numQueuedRequests": 1, "inflightBatchingStats": {"numPausedRequests": 0},
 "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 50, "tokensPerBlock": 32}}]"""

LLAMACPP = """
llamacpp:requests_processing 2
llamacpp:requests_deferred 7
llamacpp:tokens_predicted_total 70
"""


@dataclass
class Served:
    """What the server answers now, and what it was asked."""

    text: str
    status: int = 200
    kind: str = "text/plain; version=0.0.4"
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    answer: Callable[[str], str] | None = None
    """Makes the text from the path, where it is not always the same."""
    port: int = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(served: Served, port: int = 0) -> Iterator[Served]:
    """Serve it on a port of the loopback while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append((self.path, dict(self.headers)))
            body = (served.answer(self.path) if served.answer else served.text).encode()
            self.send_response(served.status)
            self.send_header("Content-Type", served.kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in served.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

        def do_POST(self) -> None:
            self.do_GET()

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        served.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
