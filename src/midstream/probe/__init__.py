"""Streams a few answers from a real server through the public `monitor()`. It prints nothing."""

from midstream._support.sanitize import clean
from midstream.probe.address import base_urls
from midstream.probe.plan import Api, Plan, ProbeError, Server
from midstream.probe.refused import enumerated
from midstream.probe.run import WORKER, Probe
from midstream.probe.server import find_server
from midstream.probe.summary import Seen, Totals, totals_of, verdict

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
