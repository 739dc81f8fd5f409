"""Lets the site show the examples of docstrings (`>>> ...`) as code."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Indents the examples, which makes them blocks of code in Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^>>> (?:.+\n?)+",
                lambda found: textwrap.indent(found[0], "    "),
                obj.docstring.value,
                flags=re.MULTILINE,
            )
