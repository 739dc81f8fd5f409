"""`midstream dashboard`: renders the Grafana dashboards, or shows one without a Grafana."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from midstream.cli.common.errors import CliError, unwritten
from midstream.cli.common.listening import ListenOptions, wait_for_interrupt, warn_if_public
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.common.plain_help import choices
from midstream.cli.dashboard.page import DashboardPage
from midstream.monitoring.alerts import Naming
from midstream.monitoring.dashboards import DASHBOARDS
from midstream.monitoring.dashboards.render import as_json


@with_option_groups
def dashboard(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help=f"{', '.join(DASHBOARDS)}. [all, with --output FOLDER]",
            show_default=False,
        ),
    ] = None,
    *,
    naming: Annotated[
        Naming,
        typer.Option(metavar=choices(Naming), help="How the server translates OpenTelemetry names."),
    ] = Naming.PROMETHEUS,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Folder for the files NAME.json; it is made if it does not exist.",
            show_default=False,
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Show one dashboard with data from this Prometheus, without Grafana; --host and --port go with it.",
            show_default=False,
        ),
    ] = None,
    listen: ListenOptions,
) -> None:
    """Render Grafana dashboards (overview, streams, engine, capacity), or show one without Grafana.

    \u0008
    midstream dashboard overview > overview.json       one, to import into Grafana
    midstream dashboard -o grafana/dashboards           all, for provisioning
    midstream dashboard --serve http://localhost:9090   the overview as a web page, until Ctrl-C
    """
    chosen = tuple(names or DASHBOARDS)
    unknown = [name for name in chosen if name not in DASHBOARDS]
    if unknown:
        raise CliError(f"there is no dashboard {unknown[0]}; there are {', '.join(DASHBOARDS)}")
    if serve is not None:
        _serve(serve, listen, chosen[0], naming)
    elif output is not None:
        _write(output, chosen, naming)
    elif len(chosen) == 1:
        sys.stdout.write(as_json(DASHBOARDS[chosen[0]](naming)))
    else:
        raise typer.BadParameter(
            "several dashboards need a folder: name one, or add --output FOLDER.", param_hint="NAME"
        )


def _write(folder: Path, names: tuple[str, ...], naming: Naming) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / f"{name}.json").write_text(as_json(DASHBOARDS[name](naming)), encoding="utf-8")
    except (FileExistsError, NotADirectoryError) as error:
        raise CliError(
            f"{folder} is not a folder, and dashboards are written into one; name another"
        ) from error
    except OSError as error:
        raise unwritten(folder, error) from error
    files = ", ".join(f"{name}.json" for name in names)
    sys.stderr.write(
        f"midstream: wrote {files} to {folder}; import them in Grafana under Dashboards, New, Import, "
        "or name the folder in a provider in provisioning/dashboards\n"
    )


def _serve(url: str, listen: ListenOptions, name: str, naming: Naming) -> None:
    try:
        page = DashboardPage(
            (listen.host, listen.port),
            url,
            DASHBOARDS[name](naming),
            allow_hosts=tuple(listen.allow_host or ()),
        )
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--serve") from error
    except OSError as error:
        raise CliError(
            f"cannot listen on {listen.host} port {listen.port}: {os.strerror(error.errno or 0)}; "
            "choose another with --port"
        ) from error
    warn_if_public(listen.host, "see this dashboard")
    with page:
        sys.stdout.write(
            f"Showing {name} from {page.prometheus}, until Ctrl-C:\n\nhttp://{listen.host}:{page.server_port}/\n"
        )
        sys.stdout.flush()
        problem = page.problem()
        if problem is not None:
            sys.stderr.write(f"midstream: warning: the panels stay empty: {problem}\n")
        wait_for_interrupt()
