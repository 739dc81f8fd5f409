"""What holds for every test."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("hypothesis") is not None:  # the environments of the frameworks have none
    from hypothesis import settings

    # Machines are shared: how long an example takes says nothing about the code.
    settings.register_profile("shared machine", deadline=None)
    settings.load_profile("shared machine")
