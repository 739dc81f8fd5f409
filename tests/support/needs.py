"""Marks for tests that need what not every supported version of the openai SDK has."""

from __future__ import annotations

from importlib.util import find_spec

import openai
import pytest

needs_responses = pytest.mark.skipif(
    find_spec("openai.resources.responses") is None,
    reason=f"openai {openai.__version__} has no Responses API",
)
