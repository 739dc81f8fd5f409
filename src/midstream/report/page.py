"""The page: one HTML file with everything in it, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from midstream._support.version import VERSION
from midstream.report.figure import COLOURS
from midstream.report.section import Section


def page(title: str, about: str, sections: Sequence[Section]) -> str:
    """Return the page; every text is escaped. `about` says of which streams, and when it was made."""
    environment = Environment(
        loader=PackageLoader("midstream.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    figures = [figure for section in sections for figure in section.figures]
    # Without plots there is no need for what draws them.
    scripts = [_inline(get_plotlyjs()), _inline(_file("page.js"))] if figures else []
    return environment.get_template("page.html").render(
        title=title,
        about=about,
        sections=sections,
        figures={figure.name: figure.as_json() for figure in figures},
        colours={"light": _colours(0), "dark": _colours(1)},
        style=_file("page.css"),
        scripts=scripts,
        script_sources=" ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'",
        version=VERSION,
    )


def _colours(which: int) -> dict[str, str]:
    return {name: pair[which] for name, pair in COLOURS.items()}


def _file(name: str) -> str:
    return files("midstream.report").joinpath(name).read_text(encoding="utf-8")


def _inline(script: str) -> str:
    """Return a script as it may stand in a page; it is a program of ours or of Plotly, never anybody's data."""
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("this version of Plotly cannot be put into a page; install another one")
    # A browser hashes what it has read, and it reads every end of line as a single character.
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _code(text: str) -> Markup:
    """Return an escaped text, what stands in backticks in it set as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
