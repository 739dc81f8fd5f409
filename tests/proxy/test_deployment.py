"""`examples/proxy`: the manifests are valid, the unit is one of systemd's, and the commands in them run."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from midstream.testing import DONE, finish, role, text
from support.commands import read_until, running
from support.paths import ROOT
from support.proxying import ASK, LAST, SSE_HEAD, chunked, post, raw_server, read_all, sending

HOME = ROOT / "examples" / "proxy"
UNIT = HOME / "midstream-proxy.service"
MANIFESTS = sorted((HOME / "kubernetes").glob("*.yaml"))
EACH_MANIFEST = pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
ANSWER = SSE_HEAD + chunked(*(each.encode() for each in (role(), text("Hello"), finish(), DONE))) + LAST


def objects(manifest: Path) -> list[dict[str, Any]]:
    """What a file declares."""
    return list(yaml.safe_load_all(manifest.read_text()))


def pod_of(manifest: Path) -> dict[str, Any]:
    """The pod of its deployment."""
    (deployment,) = (each for each in objects(manifest) if each["kind"] == "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]
    return pod


def proxy_of(manifest: Path) -> dict[str, Any]:
    """The proxy's container."""
    (found,) = (each for each in pod_of(manifest)["spec"]["containers"] if each["name"] == "midstream")
    return dict(found)


def unit() -> configparser.ConfigParser:
    """The unit's sections."""
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(UNIT.read_text())
    return read


@EACH_MANIFEST
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_a_manifest_is_valid(manifest: Path, version: str) -> None:
    """By the schema of an older and of a newer Kubernetes, without a field that these do not have."""
    for each in objects(manifest):
        kubernetes_validate.validate(each, version, strict=True)


def test_a_manifest_with_a_mistake_is_not() -> None:
    """So the test above can fail."""
    (broken,) = (each for each in objects(MANIFESTS[0]) if each["kind"] == "Deployment")
    broken["spec"]["template"]["spec"]["containers"][0]["comand"] = ["sleep"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.37", strict=True)


@EACH_MANIFEST
def test_the_parts_of_a_manifest_fit_together(manifest: Path) -> None:
    """Labels, names of ports and volumes; and there is time for the pause before the end and for the drain."""
    pod, proxy = pod_of(manifest), proxy_of(manifest)
    spec = pod["spec"]
    for each in objects(manifest):
        selector = each.get("spec", {}).get("selector", {})
        labels = selector.get("matchLabels", selector)
        assert labels.items() <= pod["metadata"]["labels"].items()
    ports = {each["name"]: str(each["containerPort"]) for each in proxy["ports"]}
    (service,) = (each for each in objects(manifest) if each["kind"] == "Service")
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    assert f"--port={ports['http']}" in proxy["args"]
    assert f"--metrics-port={ports['metrics']}" in proxy["args"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == ports["metrics"]
    assert {each["name"] for each in proxy["volumeMounts"]} == {each["name"] for each in spec["volumes"]}
    (drain,) = (int(each.partition("=")[2]) for each in proxy["args"] if each.startswith("--drain="))
    pauses = {
        each["name"]: int(each["lifecycle"]["preStop"]["exec"]["command"][1]) for each in spec["containers"]
    }
    ends = pauses.pop("midstream") + drain
    assert ends < spec["terminationGracePeriodSeconds"]
    assert all(ends <= pause for pause in pauses.values())
    assert proxy["image"] in (HOME / "Dockerfile").read_text()


@pytest.mark.parametrize("source", [*MANIFESTS, UNIT], ids=lambda path: path.stem)
def test_its_command_runs(source: Path, tmp_path: Path) -> None:
    """With the options as they are, but for addresses: it passes a stream on, and ends with SIGTERM."""
    if source is UNIT:
        command = shlex.split(unit()["Service"]["ExecStart"])
        assert command[:2] == ["/opt/midstream/bin/midstream", "proxy"]
        arguments = command[2:]
    else:
        arguments = proxy_of(source)["args"]
    given = shlex.split(" ".join(arguments).replace("=", " "))
    options = dict(zip(given[::2], given[1::2], strict=True))
    with raw_server(sending(ANSWER)) as upstream:
        if "--routes" in options:
            (routes,) = (each["data"] for each in objects(source) if each["kind"] == "ConfigMap")
            file = tmp_path / Path(options["--routes"]).name
            file.write_text(re.sub(r"http://\S+", upstream.url, routes[file.name]))
            options["--routes"] = str(file)
        options |= {"--upstream": upstream.url, "--port": "0", "--metrics-port": "0"}
        options |= {name: "127.0.0.1" for name in ("--host", "--metrics-host") if name in options}
        words = [word for pair in options.items() for word in pair]
        with running("proxy", *words) as process:
            (port,) = re.findall(r"^http://127.0.0.1:(\d+)$", read_until(process, "^Clients: "), re.MULTILINE)
            with socket.create_connection(("127.0.0.1", int(port)), timeout=30) as client:
                client.sendall(post(ASK, b"/v1/chat/completions", b"Connection: close"))
                assert read_all(client).endswith(LAST)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_the_unit_gives_open_streams_their_time() -> None:
    """And what the proxy writes is where the unit lets it write."""
    service = unit()["Service"]
    drain = int(re.findall(r"--drain (\d+)", service["ExecStart"])[0])
    assert int(service["TimeoutStopSec"]) > drain
    assert "MIDSTREAM_JOURNAL=/var/lib/midstream/" in UNIT.read_text()
    assert "MIDSTREAM_RUNTIME_DIR=/run/midstream\n" in UNIT.read_text()
    assert (service["StateDirectory"], service["RuntimeDirectory"]) == ("midstream", "midstream")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Every line of it, with a program that is there."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/midstream/bin/midstream", sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in checked.stderr.splitlines() if UNIT.name in line or str(copy) in line]
    assert ours == []
