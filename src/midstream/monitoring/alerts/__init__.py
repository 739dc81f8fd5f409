"""Alert rules about streams, as literals that point at the metrics they judge, and what renders them.

`build(Tuning())` gives the rules; `prometheus`, `prometheus_rule` and `grafana` make documents of them.
"""

from midstream.monitoring.alerts._build import build, flattened
from midstream.monitoring.alerts._model import Alert, Group, Record
from midstream.monitoring.alerts._tuning import Override, Tuning, TuningError, tuning_of
from midstream.telemetry.naming import Naming

__all__ = [
    "Alert",
    "Group",
    "Naming",
    "Override",
    "Record",
    "Tuning",
    "TuningError",
    "build",
    "flattened",
    "tuning_of",
]
