"""What holds for every engine, and that nothing else in the tree knows one by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from midstream.engines import ENGINES, VARIANTS, EngineFacts, canonical_name, facts_of, titles
from midstream.lab.admission import engine
from support.paths import ROOT

PACKAGE = ROOT / "src" / "midstream"
ALLOWED = ("engines/", "lab/admission/", "lab/emulation/meter_")
"""The facts; the admission rules, one for each engine; and the pages of metrics that the emulator writes."""
METRIC = re.compile(
    r"\b(?:ray_)?vllm[:_][a-z]\w+|\bsglang:[a-z]\w+|\btgi_[a-z]\w+|\btrtllm_[a-z]\w+|\bllamacpp:[a-z]\w+"
)
NAMES = {*ENGINES, *VARIANTS}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every module that may not know an engine."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ALLOWED):
            yield name, ast.parse(path.read_text())


def metric_names(tree: ast.Module) -> Iterator[str]:
    """The names of engines' metrics in a module's strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from METRIC.findall(node.value)


def branches(tree: ast.Module) -> Iterator[int]:
    """The lines that compare something with an engine's name, look it up in a list of names, or list by names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
            inside = [each for one in compared for each in ast.walk(one)]
        elif isinstance(node, ast.Dict):
            inside = [each for key in node.keys if key is not None for each in ast.walk(key)]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "startswith"
        ):
            inside = [each for one in node.args for each in ast.walk(one)]
        else:
            continue
        if any(isinstance(each, ast.Constant) and each.value in NAMES for each in inside):
            yield node.lineno


def test_no_other_module_names_an_engines_metric() -> None:
    """Alerts, dashboards, sources and advice read the names from the engine's module."""
    assert {name: found for name, tree in sources() if (found := sorted(set(metric_names(tree))))} == {}


def test_no_other_module_branches_on_an_engines_name() -> None:
    """What differs between engines is a fact of the engine."""
    assert {name: lines for name, tree in sources() if (lines := sorted(branches(tree)))} == {}


def test_the_search_for_names_and_branches_can_fail() -> None:
    """Each way in which a module may know an engine is found."""
    knowing = ast.parse(
        """
if engine == "vllm": pass
elif engine in ("tgi", "sglang"): pass
x = {"llamacpp": 1}
y = name.startswith("tgi")
z = "sum(vllm:num_requests_running)"
"""
    )

    assert sorted(branches(knowing)) == [2, 3, 4, 5]
    assert list(metric_names(knowing)) == ["vllm:num_requests_running"]


@pytest.mark.parametrize("constant", ["4096", "1024", "4_096", "1_024"])
def test_an_engines_constants_stand_once(constant: str) -> None:
    """SGLang's clip and TGI's pass: in the lab and in advice nowhere but in the engine's module."""
    rooms = [PACKAGE / room for room in ("advice", "lab/admission", "monitoring", "sources")]
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for room in rooms
        for path in sorted(room.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(rf"^[A-Z_]+ = {constant}\b", line)
    ]

    assert found == []


@pytest.mark.parametrize("facts", ENGINES.values(), ids=lambda facts: facts.key)
def test_every_engine_is_complete(facts: EngineFacts) -> None:
    """Its first variant has its key, every variant a rule in the lab, and every series one of its prefixes."""
    assert facts.variants[0].name == facts.key
    for variant in facts.variants:
        assert facts_of(variant.name) is facts
        assert engine(variant.name).load.capacity > 0
        assert {variant.knobs.pool, *variant.knobs.at_least} <= set(variant.flags)
        assert variant.knobs.cap is None or variant.knobs.cap in variant.flags
        assert all(canonical_name(alias) == variant.name for alias in variant.aliases)
    if facts.series is not None:
        assert all(name.startswith(facts.prefixes) for name in facts.series.names)


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    """In one sentence."""
    with pytest.raises(ValueError, match=r"there is no engine ollama; choose from vllm, sglang, tgi, "):
        facts_of("ollama")
    assert titles() == "vLLM, SGLang, TGI, TensorRT-LLM or llama.cpp"


def test_the_folder_of_this_test_is_where_the_tree_is() -> None:
    """Else it would look at nothing."""
    assert Path(PACKAGE, "engines", "vllm.py").exists()
    assert len(list(sources())) > 150
