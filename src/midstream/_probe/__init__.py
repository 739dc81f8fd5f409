"""Streams a few answers from a real server through the public `monitor()`. It prints nothing."""

from midstream._probe.address import base_urls
from midstream._probe.plan import Api, Plan, ProbeError
from midstream._probe.refused import enumerated
from midstream._probe.run import WORKER, Probe
from midstream._probe.server import Server, find_server
from midstream._probe.summary import Seen, Totals, totals_of, verdict
from midstream._shown import clean

__all__ = [
    "WORKER",
    "Api",
    "Plan",
    "Probe",
    "ProbeError",
    "Seen",
    "Server",
    "Totals",
    "base_urls",
    "clean",
    "enumerated",
    "find_server",
    "totals_of",
    "verdict",
]
