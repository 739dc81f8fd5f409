"""How panels ask: with the choices of their dashboard, over the interval that Grafana picks."""

from __future__ import annotations

from midstream.engines import ENGINES
from midstream.monitoring.alerts.query import Query, le, quoted
from midstream.monitoring.dashboards._model import Variable
from midstream.telemetry.instruments import ADDRESS, ENDED, MODEL, Metric
from midstream.telemetry.naming import Naming

INTERVAL = "$__rate_interval"


class Panels:
    """Writes the queries of panels for one server's naming."""

    def __init__(self, naming: Naming, by: tuple[str, ...] = ()) -> None:
        label = naming.label
        chosen = f'job=~"$job", {quoted(label(MODEL))}=~"$model", {quoted(label(ADDRESS))}=~"$server"'
        self.naming = naming
        self.q = Query(naming, by, selector=chosen)
        self.engine = Query(naming, (), server_selector='job=~"$engine_job", model_name=~"$engine_model"')
        self.model = quoted(label(MODEL))
        self.server = quoted(label(ADDRESS))

    def rate(self, metric: Metric, matchers: str = "", *, part: str = "", by: str = "") -> str:
        """Write a rate, summed over everything or by labels."""
        return f"sum{f' by ({by}) ' if by else ''}(rate({self.q(metric, matchers, part=part)}[{INTERVAL}]))"

    def ratio(self, part: str, whole: str) -> str:
        """Write a share; nothing where there is nothing to share."""
        return f"{part}\n/ ({whole} > 0)"

    def over(self, metric: Metric, bound: float, by: str = "", matchers: str = "") -> str:
        """Write the share of samples past a bound."""
        below = self.rate(
            metric, ", ".join(filter(None, (matchers, le(metric, bound)))), part="_bucket", by=by
        )
        return f"1 - {below}\n/ ({self.rate(metric, matchers, part='_count', by=by)} > 0)"

    def quantile(self, share: float, metric: Metric, by: str = "") -> str:
        """Write a quantile."""
        labels = f"le, {by}" if by else "le"
        return f"histogram_quantile({share:g}, {self.rate(metric, part='_bucket', by=labels)})"

    def variables(self, *, engine: bool = False) -> tuple[Variable, ...]:
        """Write the choices: each is offered within those before it."""
        label = self.naming.label
        job = 'job=~"$job"'
        ended, plain = ENDED, Query(self.naming, ())
        ours = (
            Variable("job", "Job", plain(ended), "job"),
            Variable("model", "Model", plain(ended, job), label(MODEL)),
            Variable(
                "server", "Server", plain(ended, f'{job}, {quoted(label(MODEL))}=~"$model"'), label(ADDRESS)
            ),
        )
        if not engine:
            return ours
        names = [
            name
            for facts in ENGINES.values()
            if facts.series is not None
            for name in facts.spellings(facts.series.running)
        ]
        running = f'{{__name__=~"{"|".join(names)}"}}'
        chosen = running.replace("}", ', job=~"$engine_job"}')
        return (
            *ours,
            Variable("engine_job", "Engine job", running, "job"),
            Variable("engine_model", "Engine model", chosen, "model_name"),
        )
