"""Rewrites the tables of the documentation that the code knows better: `python docs/generate.py [--check]`.

A table stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`, in the README or a page beside this.
With `--check` nothing is written, and the exit status is 1 if a table is out of date.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings there

from midstream.cli import COMMANDS
from midstream.runtime import settings as variables
from midstream.runtime.settings import Settings
from midstream.telemetry.instruments import COMMON, METRICS, prometheus_label, prometheus_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "midstream"

BLOCK = re.compile(r"(<!-- (?P<name>[a-z-]+):begin -->\n).*?(<!-- (?P=name):end -->)", re.DOTALL)

VALUES = {
    variables.FREEZE_AFTER: "seconds, `text=5,reasoning=60,tool_call=10`, or `off`",
    variables.STALL_TIMEOUT: "seconds, `text=30,reasoning=300,tool_call=120`, or `off`",
    variables.FIRST_CONTENT_TIMEOUT: "seconds, or `off`",
    variables.ATTRIBUTES: "`team=search,app=web`",
    variables.INCLUDE_USAGE: "`1` or `0`",
    variables.JOURNAL: "the path of a file",
    variables.JOURNAL_MAX_MB: "millions of bytes, or `off`",
    variables.JOURNAL_MAX_DAYS: "days, or `off`",
    variables.DISABLED: "`1` or `0`",
}
"""What each variable may say, in words."""


def main(arguments: Sequence[str]) -> int:
    """Rewrite every page, or only say which are out of date, and return the exit status."""
    if not set(arguments) <= {"--check"}:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    stale = []
    for page in pages():
        text = page.read_text()
        fresh = rewritten(text)
        if fresh != text:
            stale.append(page)
            if not arguments:
                page.write_text(fresh)
    for page in stale:
        sys.stdout.write(f"{page.relative_to(ROOT)} {'is out of date' if arguments else 'rewritten'}\n")
    return 1 if stale and arguments else 0


def pages() -> list[Path]:
    """List the README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rewritten(text: str) -> str:
    """Return a page with its tables as they should be."""
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block['name']]()}{block[3]}", text)


def metrics() -> str:
    """Tabulate every metric, and say which attributes it has."""
    rows = (
        (f"`{metric.name}` ({metric.unit})", metric.kind, f"`{prometheus_name(metric)}`", metric.sample)
        for metric in METRICS
    )
    everywhere = ", ".join(f"`{name}`" for name in COMMON)
    more = (
        f"`{metric.name}` also has {' and '.join(f'`{name}`' for name in metric.attributes[len(COMMON) :])}"
        for metric in METRICS
        if metric.attributes != COMMON
    )
    example = f"`{COMMON[0]}` is `{prometheus_label(COMMON[0])}`"
    return (
        table(("OTel name (unit)", "kind", "Prometheus", "one sample is"), rows)
        + f"\nAttributes of every metric: {everywhere}, and those that you name yourself.\n"
        + f"Beside them, {'; '.join(more)}.\n\n"
        + f"In Prometheus a dot becomes an underscore ({example}),\n"
        + "and a histogram's series end in `_bucket`, `_sum` and `_count`.\n"
    )


def settings() -> str:
    """Tabulate the variables that `monitor()` and `instrument()` read."""
    defaults = Settings()
    rows = [
        (
            f"`{variable}`",
            "none" if keyword in variables.VARIABLES_ALONE else f"`{keyword}`",
            VALUES[variable],
            _default(getattr(defaults, keyword)),
        )
        for keyword, (variable, _) in variables._FROM_ENVIRONMENT.items()
    ]
    rows.append((f"`{variables.DISABLED}`", "none", VALUES[variables.DISABLED], "`0`"))
    return table(("variable", "keyword", "says", "default"), rows)


def commands() -> str:
    """Tabulate the commands."""
    return table(
        ("command", "does"), ((f"`midstream {name}`", command.help) for name, command in COMMANDS.items())
    )


def packages() -> str:
    """List the packages by layer, as the import contract orders them: the top row may import all that is below."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rows = []
    for number, layer in zip(range(len(layers), 0, -1), layers, strict=True):
        for name in re.split(r" [|:] ", layer):
            path = PACKAGE / name / "__init__.py"
            rows.append(
                (str(number), f"`{name}`", _first_sentence(path if path.exists() else PACKAGE / f"{name}.py"))
            )
    return table(("layer", "package", "is for"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = (" | ".join(cells) for cells in (head, ["---"] * len(head), *rows))
    return "".join(f"| {line} |\n" for line in lines)


def _default(value: object) -> str:
    return f"`{value:g}`" if isinstance(value, float) else "`0`" if value is False else f"{value or 'none'}"


def _first_sentence(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(doc.partition("\n\n")[0].split())


TABLES: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "metrics": metrics,
    "packages": packages,
    "settings": settings,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
