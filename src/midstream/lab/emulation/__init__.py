"""The engines as servers: their admission rules in real time, behind OpenAI's protocol as each of them speaks it."""

from __future__ import annotations

from midstream.lab.emulation.app import Emulated, emulator

__all__ = ["Emulated", "emulator"]
