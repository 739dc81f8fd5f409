"""What holds for every test."""

from __future__ import annotations

import gc
import signal
from importlib.util import find_spec

import pytest

if find_spec("hypothesis") is not None:  # the environments of the frameworks have none
    from hypothesis import settings

    # Machines are shared: how long an example takes says nothing about the code.
    settings.register_profile("shared machine", deadline=None)
    settings.load_profile("shared machine")

# A non-interactive shell starts a background job with SIGINT ignored, and children inherit that: Ctrl-C would not end
# the programs that are run here. A handler, unlike that, is not inherited.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FIRST = ("real", "whole", "cli")
"""The folders with the longest tests. They are started first, so that none of them is left over at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest folders first, and the tests that share a fixture in one worker, which makes it once."""
    items.sort(key=lambda item: item.path.relative_to(config.rootpath / "tests").parts[0] not in FIRST)
    if not config.pluginmanager.hasplugin("xdist"):  # the environments of the frameworks have none
        return
    for item in items:
        for shared in _shared_fixtures(item):
            item.add_marker(pytest.mark.xdist_group(shared))


_files_begun: set[object] = set()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take what is loaded by now out of every `gc.collect()` in this file; each takes a third of a second otherwise."""
    if item.path not in _files_begun:
        _files_begun.add(item.path)
        gc.collect()
        gc.freeze()


def _shared_fixtures(item: pytest.Item) -> set[str]:
    """Name what a test uses of its module's or the session's fixtures, but for those that every test uses."""
    found = getattr(item, "_fixtureinfo", None)
    definitions = found.name2fixturedefs if found else {}
    return {
        f"{each[-1].baseid}:{name}"
        for name, each in definitions.items()
        if each[-1].scope in ("module", "session") and each[-1].baseid and not _is_autouse(item, name)
    }


def _is_autouse(item: pytest.Item, name: str) -> bool:
    manager = item.session._fixturemanager
    return name in manager._getautousenames(item)
