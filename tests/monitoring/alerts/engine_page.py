"""The `/metrics` page of an engine: vLLM's as it was recorded, the others' few series by their names."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from midstream.engines import sglang, tensorrt_llm
from support.paths import RECORDINGS

if TYPE_CHECKING:
    from typing_extensions import Self

RECORDED = RECORDINGS / "vllm_rules_metrics.txt"
"""What vLLM 0.32 said after four preemptions; its histograms are left out."""

SGLANG, TRTLLM = sglang.FACTS.required_series, tensorrt_llm.FACTS.required_series


class EnginePage:
    """Serves the pages of a vLLM, an SGLang and a TensorRT-LLM that serve one model, as one page."""

    def __init__(self, model: str) -> None:
        self.preempted = 0
        """Requests thrown out since the recording."""
        self.waiting = 3
        self._recorded = RECORDED.read_text().replace('model_name="tiny"', f'model_name="{model}"')
        self._model = model
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.target = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def text(self) -> str:
        """Return the page as it is now."""
        moved = re.sub(
            r"(?m)^(vllm:num_preemptions_total\{.*\}) .*$", rf"\1 {4 + self.preempted}", self._recorded
        )
        moved = re.sub(r"(?m)^(vllm:num_requests_running\{.*\}) .*$", r"\1 4", moved)
        labels = f'{{model_name="{self._model}"}}'
        others = {
            SGLANG.usage: 0.4,
            SGLANG.waiting: self.waiting,
            SGLANG.running: 4,
            TRTLLM.usage: 0.4,
            TRTLLM.waiting: self.waiting,
            TRTLLM.running: 4,
            TRTLLM.preemptions: 1 if self.preempted else 0,
        }
        if self.preempted:  # absent until the first
            others[SGLANG.preemptions] = self.preempted
        return moved + "".join(f"{name}{labels} {value}\n" for name, value in others.items())
