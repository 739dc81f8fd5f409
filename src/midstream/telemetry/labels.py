"""The attributes of a stream's metrics: a closed set of non-empty strings, and few of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeAlias

from midstream.stream.model import Call
from midstream.telemetry import instruments as names

Labels: TypeAlias = Mapping[str, str]
"""Made once when a stream opens, then only read."""

MAX_VALUES = 100
OTHER = "other"
MAX_LABEL_SETS = 2000
"""As many as OTel's SDK keeps apart for one instrument."""

_RESERVED = {
    *map(names.prometheus_label, names.COMMON),
    *map(
        names.prometheus_label,
        (names.OUTCOME, names.FINISH_REASON, names.ERROR_TYPE, names.PHASE, names.TOKEN_TYPE),
    ),
    *("job", "instance", "le", "quantile"),
}


def reserved(attribute: str) -> bool:
    """Whether a user's attribute would overwrite, in Prometheus, a label of another meaning."""
    label = names.prometheus_label(attribute)
    return label in _RESERVED or label.startswith(("__", "otel_scope_"))


class CappedValues:
    """The first hundred distinct values: later ones get no time series of their own."""

    def __init__(self) -> None:
        self._known: dict[Hashable, None] = {}

    def __contains__(self, value: Hashable) -> bool:
        if value in self._known:
            return True
        if len(self._known) >= MAX_VALUES:
            return False
        self._known[value] = None
        return True


class LabelFactory:
    """Makes labels from calls, and remembers what it has seen in order to cap it.

    Calls of the same labels get the same object, so that streams can be summed up by identity.
    """

    def __init__(self) -> None:
        self._models = CappedValues()
        self._servers = CappedValues()
        self._made: dict[Hashable, Labels] = {}

    def labels(self, call: Call, attributes: Mapping[str, str]) -> Labels:
        """Return the labels of a call. What is not known is left out.

        An invented word such as `unknown` could be the name of a model; and in Prometheus a label that is
        left out reads as the empty string, which can be grouped by just as well.
        """
        model, address = call.request_model, call.server_address  # valid names: a `Call` holds no others
        port = "" if call.server_port is None else str(call.server_port)
        if model and model not in self._models:
            model = OTHER
        if address and (address, port) not in self._servers:
            address, port = OTHER, ""
        key = (call.operation, call.provider, model, address, port, *attributes.items())
        made = self._made.get(key)
        if made is None:
            known = {
                names.OPERATION: call.operation,
                names.PROVIDER: call.provider,
                names.MODEL: model,
                names.ADDRESS: address,
                names.PORT: port if address else "",
            }
            own = {name: value for name, value in attributes.items() if not reserved(name)}
            made = {name: value for name, value in {**own, **known}.items() if value}
            if len(self._made) < MAX_LABEL_SETS:
                self._made[key] = made
        return made
