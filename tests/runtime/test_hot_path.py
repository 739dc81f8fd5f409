"""The hot path: two loops that are one text, and one module that writes the fields of a session."""

from __future__ import annotations

import ast
import inspect

from midstream.runtime import generators
from support.paths import ROOT

IN_PLACE = {"wait_from", "content_chunks", "waited", "caught_up", "last_event"}
"""What the loops write by themselves for a steady chunk; see `Session.on_steady_chunk`."""


def test_the_async_loop_is_the_sync_loop_made_async() -> None:
    """Who edits one of them edits both."""
    made = inspect.getsource(generators._pass)
    for sync, asynchronous in (
        ("def _pass(", "async def _apass("),
        ("source: Generator[Any, Any, Any]", "source: AsyncGenerator[Any, Any]"),
        ("-> Generator[Any, None, None]", "-> AsyncGenerator[Any, None]"),
        ("for chunk in source:", "async for chunk in source:"),
    ):
        assert made.count(sync) == 1, sync
        made = made.replace(sync, asynchronous)

    assert inspect.getsource(generators._apass) == made


def test_only_the_session_writes_its_fields_except_in_the_loops() -> None:
    """Everything else calls its methods."""
    package = ROOT / "src" / "midstream"
    writes = {
        (str(path.relative_to(package)), target.attr)
        for path in package.rglob("*.py")
        if "sources" not in path.parts  # a session there is one of requests
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
        and ast.unparse(target.value) in {"session", "self.session", "self._session", "tracker.session"}
    }

    assert writes == {("runtime/generators.py", name) for name in IN_PLACE}
