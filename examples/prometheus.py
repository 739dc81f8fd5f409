"""Serve metrics for Prometheus from a program that has no OpenTelemetry of its own.

    OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY=none OPENAI_MODEL=my-model python prometheus.py

It needs `pip install 'midstream[prometheus]'`. A program that has a meter provider leaves setup() out: midstream uses
the global one.
"""

from __future__ import annotations

import os
import urllib.request

from openai import OpenAI

import midstream

MODEL = os.environ.get("OPENAI_MODEL", "my-model")

# On loopback, at OTEL_EXPORTER_PROMETHEUS_PORT or 9464. The block's end closes it; so does the end of the process.
with midstream.setup(prometheus=True) as metrics:
    # Attributes become labels of every metric, so they are few and have few values.
    client = midstream.monitor(OpenAI(), attributes={"team": "search"})
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Tell me a long story."}], stream=True
    )
    print(f"{sum(1 for _ in stream)} chunks")

    # What Prometheus will see, without the buckets.
    print(f"curl {metrics.prometheus_url}")
    with urllib.request.urlopen(str(metrics.prometheus_url)) as page:  # noqa: S310 - our own address
        for line in page.read().decode().splitlines():
            if line.startswith("stream_") and "_bucket" not in line:
                print(line)
