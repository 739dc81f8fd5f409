"""Measurements, each against something beside it in the same run. `python -m benchmarks` runs them all."""

import sys
from pathlib import Path

# Environments are made the way the tests make them.
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
