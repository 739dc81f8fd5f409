"""A bundle (PyInstaller, Nuitka, a zip) need not carry the package's metadata."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib.metadata as md
find = md.MetadataPathFinder.find_distributions
md.MetadataPathFinder.find_distributions = classmethod(
    lambda cls, context=md.DistributionFinder.Context(): (
        found for found in find(context) if found.metadata["Name"] != "midstream"
    )
)
try:
    md.version("midstream")
    raise SystemExit("the metadata is still there")
except md.PackageNotFoundError:
    pass
import midstream
from openai import OpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from midstream.testing import DONE, ManualClock, finish, scripted, text

reader = InMemoryMetricReader()
server = scripted([(0.0, text("a")), (0.0, finish()), (0.0, DONE)], ManualClock())
client = midstream.monitor(
    OpenAI(api_key="none", max_retries=0, http_client=server), meter_provider=MeterProvider([reader])
)
for _ in client.chat.completions.create(model="m", messages=[], stream=True):
    pass
scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
print(scope.scope.name, scope.scope.version, "stream.ended" in {metric.name for metric in scope.metrics})
"""


def test_metrics_need_no_package_metadata() -> None:
    """The meter has midstream's version all the same."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (done.stdout, done.returncode) == ("midstream 0.1.0 True\n", 0), done.stderr
