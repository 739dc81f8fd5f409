"""`examples/stack`: each configuration is read by the real program, or held against what it refers to."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from real.programs import absent, answers, free_port, running
from support.paths import ROOT

STACK = ROOT / "examples" / "stack"


def read(file: str) -> Any:
    """Parse a file of the stack."""
    return yaml.safe_load((STACK / file).read_text())


def test_prometheus_accepts_its_configuration_and_the_rules(tmp_path: Path) -> None:
    """Where the containers have them: the rules in a folder beside the configuration."""
    promtool = shutil.which("promtool") or absent("promtool")
    (tmp_path / "rules").mkdir()
    shutil.copy(STACK / "prometheus" / "prometheus.yml", tmp_path)
    shutil.copy(ROOT / "monitoring" / "midstream.rules.yml", tmp_path / "rules")
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert checked.returncode == 0, checked.stderr
    assert "SUCCESS: 53 rules found" in checked.stdout


def test_the_alertmanager_starts_with_its_configuration(tmp_path: Path) -> None:
    """The real one, up to being ready."""
    program = shutil.which("prometheus-alertmanager") or absent("prometheus-alertmanager")
    server = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={STACK / 'alertmanager' / 'alertmanager.yml'}",
        f"--storage.path={tmp_path}",
        f"--web.listen-address={server}",
        "--cluster.listen-address=",
    ]
    ready = f"http://{server}/-/ready"
    with running(command, tmp_path / "output", lambda: answers(ready)):
        assert answers(ready)


def test_the_collectors_pipelines_name_what_is_there() -> None:
    """And everything that is there is used."""
    config = read("collector/collector.yaml")
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in config["service"]["pipelines"].values() for name in pipeline[kind]}
        assert used == set(config[kind])


def test_the_collector_serves_where_prometheus_scrapes() -> None:
    """Of the ports in two files, one is easily changed alone."""
    jobs = {job["job_name"]: job for job in read("prometheus/prometheus.yml")["scrape_configs"]}

    assert jobs["collector"]["static_configs"][0]["targets"] == ["collector:8889"]
    assert jobs["collector"]["honor_labels"] is True
    assert read("collector/collector.yaml")["exporters"]["prometheus"]["endpoint"] == "0.0.0.0:8889"


def test_every_file_that_is_mounted_exists_and_every_port_is_on_loopback() -> None:
    """Nothing of this is meant for the network."""
    services = read("compose.yaml")["services"]

    assert sorted(services) == ["alertmanager", "collector", "grafana", "prometheus"]
    for service in services.values():
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:")
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert not source.startswith(".") or (STACK / source).exists(), source


def test_grafana_finds_the_data_source_that_the_rules_name() -> None:
    """By its uid."""
    (source,) = read("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    rules = yaml.safe_load((ROOT / "monitoring" / "midstream.grafana-alerts.yml").read_text())
    named = {rule["data"][0]["datasourceUid"] for group in rules["groups"] for rule in group["rules"]}

    assert named == {source["uid"]} == {"prometheus"}
    assert source["url"] == "http://prometheus:9090"


@pytest.mark.parametrize(
    "alert", ["StreamsMostlyFrozen", "StreamFrozen", "StreamOpenGapLong", "StreamFreezeBudgetBurn"]
)
def test_inhibitions_are_about_alerts_that_exist(alert: str) -> None:
    """With labels that they have."""
    rules = yaml.safe_load((ROOT / "monitoring" / "midstream.rules.yml").read_text())
    expr = next(
        rule["expr"] for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == alert
    )

    assert alert in (STACK / "alertmanager" / "alertmanager.yml").read_text()
    assert "job_model_server" in expr or "job, gen_ai_request_model, server_address, server_port" in expr
