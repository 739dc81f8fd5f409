"""Tests that drive real programs: Prometheus, a collector, and processes of our own up to their end."""
