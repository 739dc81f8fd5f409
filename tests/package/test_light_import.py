"""What `import midstream` brings along: nothing that only some uses of it need."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "grpc", "jinja2", "matplotlib", "opentelemetry.exporter", "opentelemetry.sdk", "plotly", "prometheus_client",
    "pyarrow", "requests", "rich", "scipy", "sqlite3", "typer", "yaml",
)  # fmt: skip


def test_the_import_brings_nothing_that_only_some_uses_need() -> None:
    """OTel's SDK, its exporters, SQLite and the command line's libraries come with the calls that need them."""
    program = "import sys, midstream; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()

    assert "midstream" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


def test_setup_brings_the_sdk() -> None:
    """The check above can fail: the SDK does come, with `setup()`."""
    program = "import sys, midstream; midstream.setup(prometheus=False, otlp=False); print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={"OTEL_METRICS_EXPORTER": "none"},
    ).stdout.split()

    assert "opentelemetry.sdk.metrics" in loaded
