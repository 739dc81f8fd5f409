"""LiteLLM's proxy between a program and its model server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from real.programs import free_port, listens
from support.frameworks_through import Through
from support.waiting import until

pytest.importorskip("litellm")
pytest.importorskip("fastapi")

KEY = "sk-not-a-secret-0123456789abcdef"  # the proxy refuses to start without one


def test_the_proxy_of_litellm_in_between(through: Through, tmp_path: Path) -> None:
    """A gateway as a server: it is one like any other to us, and passes the gap on."""
    settings = {
        "model_list": [{"model_name": "m", "litellm_params": {
            "model": "hosted_vllm/m", "api_base": through.server.base_url, "api_key": "none",
        }}],
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    port = free_port()
    command = [str(Path(sys.executable).parent / "litellm"), "--config", str(tmp_path / "config.yaml")]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=output, stderr=output,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY},
        )  # fmt: skip
        try:
            until(lambda: process.poll() is not None or listens(port), 90)
            assert process.poll() is None, (tmp_path / "output").read_text()
            client = openai.OpenAI(api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)
            through.instrument()
            with client:
                asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
                answer: Any = client.chat.completions.create(**asked, stream=True)
                assert (
                    "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
                    == "Hello you"
                )
        finally:
            process.terminate()
            process.wait(30)

    (record,) = through.records
    sent = through.server.exchanges[-1].sent
    through.row("LiteLLM's proxy, openai SDK", "litellm", record, sent[3] - sent[2])
    assert (record.outcome, record.freezes, record.server_port) == ("completed", 1, port)
