"""Tests of the alert rules: on both sides of every edge, by Prometheus' own tool."""
