"""Servers with known behaviour, to try clients and monitors against. The lab knows nothing of the monitor."""
