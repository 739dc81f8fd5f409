"""What each engine reserves for the limit that a request asks for, and so what a lower limit gains."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from midstream.engines import VARIANTS, ReservationRule

RESERVING: Mapping[str, ReservationRule] = MappingProxyType(
    {
        **{name: variant.reservation for name, variant in VARIANTS.items()},
        "hosted": ReservationRule(
            "a hosted API",
            lambda _limit: None,
            "what it sets aside is not known; some count the limit, and not the answer, against a quota of tokens",
        ),
    }
)
"""By the names of the engines' variants, and `hosted`."""
