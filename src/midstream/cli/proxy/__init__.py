"""`midstream proxy`: the monitor in front of any server, for clients in any language."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack

from midstream.cli.common.errors import CliError
from midstream.cli.common.listening import warn_if_public, why_not
from midstream.cli.common.option_groups import with_option_groups
from midstream.cli.proxy.options import AnswerOptions, MetricsOptions, ProxyListenOptions, RecordOptions
from midstream.cli.proxy.show import introduction, log_to_standard_error
from midstream.proxy.server import allow_open_files
from midstream.proxy.service import ProxySettings, run
from midstream.proxy.workers import listeners, run_workers
from midstream.setup import Setup, setup


@with_option_groups
def proxy(
    *, answers: AnswerOptions, listen_on: ProxyListenOptions, records: RecordOptions, metrics: MetricsOptions
) -> None:
    """Pass everything on to a model server, and record every stream that passes, until Ctrl-C or SIGTERM.

    Clients in any language use it in place of the server: they get the same bytes at the same moment. Each stream is
    measured as midstream.monitor() does it: gaps, freezes, time to first token, token limits. Prompts, answers, keys
    and other headers are never kept.

    \u0008
    midstream proxy --upstream http://localhost:8000                    in front of a server on this machine
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 node app.js                a client behind it, in another terminal
    midstream proxy --upstream http://localhost:8000 --journal streams.db    keep a record of each stream
    midstream report --journal streams.db                               what they show together
    midstream proxy --upstream https://api.openai.com --freeze-after text=5,reasoning=60
    midstream proxy --upstream http://vllm:8000 --host 0.0.0.0 --metrics-host 0.0.0.0    for other machines, too
    midstream proxy --upstream http://vllm:8000 --attribute-header X-Team --stall-timeout 60
    midstream proxy --upstream http://vllm:8000 --workers 4    some hundred streams for each

    Metrics are served at http://127.0.0.1:9464/metrics, or sent where the standard OTEL_EXPORTER_OTLP_* variables
    say. SIGTERM ends it once the open streams have ended, or after --drain seconds; Ctrl-C ends it at once.
    """
    settings = ProxySettings(
        routes=answers.checked_routes(),
        host=listen_on.host,
        allow_hosts=tuple(listen_on.allow_host or ()),
        monitor=records.settings(),
        head_s=answers.upstream_timeout,
        drain_s=answers.drain,
        keep_alive_s=answers.keep_alive,
        attribute_headers=records.attribute_headers(),
    )
    allow_open_files()
    count = listen_on.checked_workers()
    try:
        sockets = listeners(listen_on.host, listen_on.port, count)
    except OSError as error:
        raise CliError(why_not(error, listen_on.host, listen_on.port)) from error
    with ExitStack() as closing, _metrics(metrics) as handle:
        for each in sockets:
            closing.enter_context(each)
        warn_if_public(listen_on.host, "use the upstream through this proxy")
        log_to_standard_error()
        sys.stdout.write(introduction(settings, sockets[0].getsockname()[1], handle, count))
        sys.stdout.flush()
        ended_by = run(settings, sockets[0]) if count == 1 else run_workers(settings, sockets)
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt


def _metrics(options: MetricsOptions) -> Setup:
    try:
        return setup(
            prometheus=options.metrics_port,
            host=options.metrics_host,
            service_name=options.service_name,
            allow_hosts=tuple(options.metrics_allow_host or ()),
        )
    except OSError as error:
        sentence = str(error).partition("] ")[2] or str(error)
        raise CliError(sentence.replace("pass prometheus=0", "pass --metrics-port 0")) from error
    except ValueError as error:
        raise CliError(str(error)) from error
