"""Grafana dashboards about streams, as literals that point at the metrics they show, and what renders them."""

from midstream.monitoring.dashboards._model import Dashboard, Panel, Row, Target, Variable
from midstream.monitoring.dashboards._overview import overview, streams
from midstream.monitoring.dashboards._servers import capacity, engine

DASHBOARDS = {
    "overview": overview,
    "streams": streams,
    "engine": engine,
    "capacity": capacity,
}
"""What makes each dashboard for a server's naming."""

__all__ = ["DASHBOARDS", "Dashboard", "Panel", "Row", "Target", "Variable"]
