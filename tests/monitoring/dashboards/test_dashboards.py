"""The dashboards hold what the linters of Grafana's own makers ask for, and name only metrics that exist."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from midstream.cli import main
from midstream.engines import ENGINES
from midstream.monitoring.alerts import Naming, Tuning, build
from midstream.monitoring.alerts.render import prometheus
from midstream.monitoring.dashboards import DASHBOARDS
from midstream.monitoring.dashboards.fill import filled
from midstream.monitoring.dashboards.render import grafana
from midstream.telemetry.instruments import METRICS
from real.programs import fetch
from support.commands import end, running
from support.metrics_pages import Served, serving
from support.paths import ROOT

each = pytest.mark.parametrize("name", DASHBOARDS)
NAMES = {Naming.PROMETHEUS.metric(metric) for metric in METRICS} | {
    spelling
    for facts in ENGINES.values()
    if facts.series is not None
    for name in facts.series.names
    for spelling in facts.spellings(name)
}
UNITS = {"s", "none", "percentunit", "reqps"}


def panels(name: str) -> list[dict[str, Any]]:
    """The rendered panels, without the headings."""
    return [
        panel for panel in grafana(DASHBOARDS[name](Naming.PROMETHEUS))["panels"] if panel["type"] != "row"
    ]


@each
def test_the_committed_dashboard_is_fresh(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Render again with: midstream dashboard -o monitoring/dashboards."""
    assert main(["dashboard", name]) == 0

    assert capsys.readouterr().out == (ROOT / "monitoring" / "dashboards" / f"{name}.json").read_text()


@each
def test_every_metric_of_every_panel_exists(name: str) -> None:
    """In the table of our instruments, or in that of the engines."""
    for panel in panels(name):
        for target in panel["targets"]:
            words = set(
                re.findall(
                    r"\b(?:stream|gen_ai_client|vllm:|sglang:|trtllm)_?[\w:]+(?=[{\[])", target["expr"]
                )
            )
            # Where frameworks rename an engine's metrics, all names stand in one matcher.
            for names in re.findall(r'__name__=~"([^"]+)"', target["expr"]):
                words |= set(names.split("|"))
            assert words, target["expr"]
            for word in words:
                assert re.sub("_(bucket|count|sum)$", "", word) in NAMES or word in NAMES, word


@each
def test_every_query_is_promql(name: str) -> None:
    """Under every naming, once Grafana has put its variables in."""
    for naming in Naming:
        for panel in DASHBOARDS[name](naming).panels:
            for target in panel.targets:
                promql_parser.parse(filled(target.expr, interval_s=60))


@each
def test_every_panel_explains_itself(name: str) -> None:
    """Title, description, a unit that Grafana knows, targets with letters, and the chosen data source."""
    for panel in panels(name):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == ["A", "B", "C", "D"][
            : len(panel["targets"])
        ]
        for target in panel["targets"]:
            assert "$__rate_interval" in target["expr"] or "rate(" not in target["expr"]
            assert 'job=~"$' in target["expr"]


@each
def test_panels_do_not_overlap_and_have_their_own_id(name: str) -> None:
    """On a grid of 24 columns."""
    rendered = grafana(DASHBOARDS[name](Naming.PROMETHEUS))["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in rendered:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells

    assert sorted(panel["id"] for panel in rendered) == list(range(1, len(rendered) + 1))


@each
def test_variables_are_chained_and_renewed(name: str) -> None:
    """One data source, then job, model and server, each within the choices before it."""
    variables = grafana(DASHBOARDS[name](Naming.PROMETHEUS))["templating"]["list"]

    assert [one["name"] for one in variables][:4] == ["datasource", "job", "model", "server"]
    assert (variables[0]["type"], variables[0]["label"], variables[0]["query"]) == (
        "datasource",
        "Data Source",
        "prometheus",
    )
    assert [one["definition"] for one in variables[1:4]] == [
        "label_values(stream_ended_total, job)",
        'label_values(stream_ended_total{job=~"$job"}, gen_ai_request_model)',
        'label_values(stream_ended_total{job=~"$job", gen_ai_request_model=~"$model"}, server_address)',
    ]
    assert {(one["refresh"], one["multi"], one["includeAll"]) for one in variables[1:]} == {(2, True, True)}


def test_alerts_are_drawn_over_every_dashboard_and_dashboards_lead_to_each_other() -> None:
    """With the choices kept."""
    for make in DASHBOARDS.values():
        rendered = grafana(make(Naming.PROMETHEUS))
        assert rendered["annotations"]["list"][0]["expr"].startswith("ALERTS{")
        assert (rendered["links"][0]["tags"], rendered["links"][0]["includeVars"]) == (["midstream"], True)
        assert "midstream" in rendered["tags"]


def test_alerts_lead_to_dashboards_that_exist() -> None:
    """By their stable address."""
    uids = {make(Naming.PROMETHEUS).uid for make in DASHBOARDS.values()}
    tuning = Tuning(dashboard_url="https://grafana.example")
    rules = json.dumps(prometheus(build(tuning), tuning))

    assert set(re.findall(r"/d/([\w-]+)", rules)) == uids


def test_exemplars_are_asked_for_where_gaps_are_shown() -> None:
    """So that a freeze leads to its trace."""
    asked = [
        panel["title"]
        for panel in panels("overview")
        if any(target["exemplar"] for target in panel["targets"])
    ]

    assert asked == ["Longest gap of a stream", "Gap: p50, p95, p99"]


def test_all_dashboards_need_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And there they are."""
    assert main(["dashboard"]) == 2
    assert "several dashboards need a folder: name one, or add --output FOLDER" in capsys.readouterr().err
    assert main(["dashboard", "-o", str(tmp_path / "new")]) == 0

    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == [
        "capacity.json",
        "engine.json",
        "overview.json",
        "streams.json",
    ]


def test_an_unknown_dashboard_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    assert main(["dashboard", "costs"]) == 1
    assert capsys.readouterr().err == (
        "midstream: there is no dashboard costs; there are overview, streams, engine, capacity\n"
    )


def test_other_namings_are_other_dashboards(capsys: pytest.CaptureFixture[str]) -> None:
    """The names of metrics and labels are those of that server."""
    assert main(["dashboard", "streams", "--naming", "utf8"]) == 0
    first = json.loads(capsys.readouterr().out)["panels"][1]["targets"][0]

    assert first["expr"] == (
        'sum by ("gen_ai.request.model", "server.address") ({"stream.frozen", job=~"$job", '
        '"gen_ai.request.model"=~"$model", "server.address"=~"$server"})'
    )


def test_files_that_were_written_are_named_with_what_to_do_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error; a file where the folder should be is not touched."""
    then = (
        "import them in Grafana under Dashboards, New, Import, or name the folder in a provider in "
        "provisioning/dashboards"
    )
    folder = tmp_path / "dashboards"
    assert main(["dashboard", "overview", "engine", "-o", str(folder)]) == 0
    assert capsys.readouterr() == ("", f"midstream: wrote overview.json, engine.json to {folder}; {then}\n")
    assert sorted(file.name for file in folder.iterdir()) == ["engine.json", "overview.json"]
    file = folder / "engine.json"
    assert main(["dashboard", "-o", str(file)]) == 1
    assert capsys.readouterr().err == (
        f"midstream: {file} is not a folder, and dashboards are written into one; name another\n"
    )


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("overview", "Gap past 5 s"),
        ("overview", "Streams with a gap past 5 s"),
        ("streams", "Streams with a gap past 5 s"),
    ],
)
def test_a_panel_that_counts_by_five_seconds_says_so_in_its_title(name: str, title: str) -> None:
    """Whatever freezes are elsewhere on the dashboard: those follow freeze_after_s."""
    counting = [
        panel["title"]
        for panel in panels(name)
        if any(re.search(r'le=~"5\|5\.0"', target["expr"]) for target in panel["targets"])
    ]
    assert title in counting
    assert [other for other in counting if "past 5 s" not in other] == []


def test_the_page_is_served_until_interrupted() -> None:
    """And says where; ctrl-C is no failure but an interruption."""
    with (
        serving(Served("{}", kind="application/json")) as behind,
        running("dashboard", "--serve", behind.url) as served,
    ):
        assert served.stdout is not None
        lines = [served.stdout.readline() for _ in range(3)]
        page = fetch(lines[2].strip()).decode()
        status, err = end(served)

    assert lines[0] == f"Showing overview from {behind.url}, until Ctrl-C:\n"
    assert (status, err) == (130, "")
    assert "midstream: overview" in page
    assert "/*DASHBOARD*/null" not in page
    assert not re.search(r"(src|href)=.?https?://", page)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (True, " answers 404 to /api/v1: give the path before it, too, such as http://mimir/prometheus"),
        (False, "nothing listens at http://127.0.0.1:"),
    ],
)
def test_a_prometheus_that_does_not_answer_is_warned_of_once(
    there: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is served all the same: it may come later."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with serving(Served("no such tenant", 404)) as behind, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr("time.sleep", interrupt)
        url = behind.url if there else f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main(["dashboard", "--serve", url]) == 130

    printed = capsys.readouterr()
    assert printed.out.startswith("Showing overview from ")
    assert printed.err.startswith("midstream: warning: the panels stay empty: ")
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_port_in_use_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    """With the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["dashboard", "--serve", "localhost:9090", "--port", port]) == 1

    assert capsys.readouterr().err == (
        f"midstream: cannot listen on 127.0.0.1 port {port}: Address already in use; choose another with --port\n"
    )
