"""Measurements, each against something beside it in the same run. `python -m benchmarks` runs them all."""
