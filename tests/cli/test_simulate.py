"""`midstream simulate`, as its users run it."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from midstream.cli import main
from midstream.cli.common.simulation_show import show_sweep
from midstream.lab.experiment import CallPattern, Experiment, Sweep
from midstream.lab.hardware import PROFILES
from support.paths import RECORDINGS

LOADS = RECORDINGS / "load"
SMALL = ["--requests", "40", "--users", "24", "--num-gpu-blocks", "600"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run the command, which must succeed, and return what it printed."""
    status = main(["simulate", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run the command, which must fail without printing anything, and return its sentence."""
    status = main(["simulate", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert status in (1, 2)
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix("midstream: ").removeprefix("Invalid value").lstrip(": ").split("; `midstream")[0]


def document(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, object]:
    """Return the JSON document that the command prints."""
    read: dict[str, object] = json.loads(printed(capsys, *arguments, "--json"))
    return read


def test_one_run_is_told_figure_by_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """The engine and its rule, then what came of it."""
    out = printed(capsys, *SMALL)
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == (
        "vllm on l4, num-gpu-blocks 600: reserves nothing; preempts the last one admitted, to the front"
    )
    assert [line.split("  ")[0] for line in lines[2:6]] == [
        "throughput",
        "preempted",
        "prefill redone",
        "freeze of the preempted, median",
    ]


def test_several_seeds_show_their_spread(capsys: pytest.CaptureFixture[str]) -> None:
    """The median, the least and the most of three runs."""
    out = printed(capsys, *SMALL, "--seeds", "3")
    assert out.splitlines()[2].split() == ["median", "least", "most"]
    median, least, most = (float(figure) for figure in out.splitlines()[3].split()[1:4])
    assert least < median < most


def test_the_same_seed_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """To the last digit; another seed does not."""
    first, again, other = (printed(capsys, *SMALL, "--seed", seed, "--json") for seed in ("5", "5", "6"))
    assert first == again != other


def test_a_cap_trades_throughput_for_freezes(capsys: pytest.CaptureFixture[str]) -> None:
    """With few at a time none is preempted; without a cap many are."""
    read = document(capsys, *SMALL, "--sweep", "max-num-active-seqs=2,16")
    assert (read["engine"], read["sweep"]) == ("vllm", "max-num-active-seqs")
    results = read["results"]
    assert isinstance(results, list)
    assert [result["value"] for result in results] == [2, 16]
    few, many = (result["runs"][0] for result in results)
    assert few["preempted_share"] == 0 < many["preempted_share"]
    assert few["throughput_tokens_per_s"] < many["throughput_tokens_per_s"]


def test_a_sweep_is_a_table_and_bars(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each value, and again with bars that grow with the figures."""
    out = printed(capsys, *SMALL, "--sweep", "max-num-active-seqs=2..6:2")
    head, *rows = out.splitlines()[2:6]
    assert head.split()[:2] == ["max-num-active-seqs", "tokens/s"]
    assert [row.split()[0] for row in rows] == ["2", "4", "6"]
    bars = [line.count("█") for line in out.splitlines()[-3:]]
    assert bars == sorted(bars)


def test_limits_users_and_rates_can_be_swept(capsys: pytest.CaptureFixture[str]) -> None:
    """They belong to the clients, not to the engine."""
    for swept in ("max-tokens=500..1500:500", "users=4,8,16", "rate=0.1,0.2,0.4"):
        read = document(capsys, "--requests", "30", "--engine", "trtllm", "--sweep", swept)
        assert isinstance(read["results"], list)
        assert len(read["results"]) == 3


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_sweep_can_be_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str) -> None:
    """Into the file, of the kind that its name says."""
    pytest.importorskip("matplotlib")
    file = tmp_path / f"cap.{ending}"
    printed(capsys, *SMALL, "--sweep", "max-num-active-seqs=2,4", "--plot", file)
    assert (b"PNG" if ending == "png" else b"<svg") in file.read_bytes()[:600]


def test_a_recorded_load_is_predicted_stream_by_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """Fitted to two loads, the third shows the same four streams preempted, beside what was recorded."""
    fit = [argument for name in ("roomy", "cap4_active") for argument in ("--fit", LOADS / f"{name}.jsonl")]
    flags = ["--num-gpu-blocks", "28", "--block-size", "128", "--freeze-after", "2"]
    out = printed(capsys, *fit, "--workload-from", LOADS / "over8.jsonl", *flags)
    assert [line.split()[0] for line in out.splitlines() if "preempted  " in line][-4:] == [
        "4",
        "5",
        "6",
        "7",
    ]
    assert "4 preemptions; 21.3 s in all, recorded 22.2 s." in out


def test_every_engine_can_be_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    """By its own name, and with its own flags."""
    for engine, flag, value in (
        ("sglang", "--schedule-conservativeness", "0.3"),
        ("tgi", "--max-batch-total-tokens", "10000"),
        ("tgi-2.4", "--no-prefill-chunking", None),
        ("trtllm", "--max-batch-size", "8"),
        ("trtllm-max-utilization", "--tokens-per-block", "64"),
        ("llamacpp", "--parallel", "8"),
    ):
        flags = [flag] if value is None else [flag, value]
        out = printed(capsys, "--engine", engine, "--requests", "20", "--max-tokens", "2000", *flags)
        assert out.startswith(
            f"{engine} on l4, {flag.removeprefix('--').removeprefix('no-')} {value or False}"
        )


def test_lengths_come_from_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One length a line, or prompt and answer with a heading; and times of calls."""
    lengths, both, times = tmp_path / "answers.csv", tmp_path / "both.csv", tmp_path / "times.csv"
    lengths.write_text("100\n200\n")
    both.write_text("prompt,answer\n10,100\n20,200\n")
    times.write_text("at\n1700000000.5\n1700000001.5\n")
    for option, file in (("--answer", lengths), ("--lengths", both)):
        read = document(capsys, option, file, "--arrivals", times)
        assert isinstance(read["results"], list)
        assert read["results"][0]["runs"][0]["requests"] == 2


def test_clients_can_hang_up_and_runs_be_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    """After a minute of patience, or of the run, fewer are served."""
    for arguments in (["--patience", "60"], ["--until", "60"], ["--think", "5"], ["--burst", "0.5"]):
        given = [] if "--burst" in arguments else ["--users", "24"]
        printed(capsys, "--requests", "30", *given, *arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--engine", "ollama"], "there is no engine ollama; choose from vllm, sglang, tgi, tgi-2.4"),
        (["--watermark", "2"], "watermark must be from 0 up to, not including, 1; got 2"),
        (["--engine", "llamacpp", "--watermark", "0.1"], "llamacpp has no watermark; it has ctx-size"),
        (["--sweep", "pool=1..2"], "vllm has no pool; it has users, rate, max-tokens, num-gpu-blocks"),
        (["--sweep", "watermark"], "for --sweep: 'watermark' is not NAME=FROM..TO[:STEP] or NAME=A,B,C"),
        (["--sweep", "users=4..2"], "for --sweep: 'users=4..2' is not NAME=FROM..TO[:STEP]"),
        (["--sweep", "users=4,2"], "for --sweep: its values must rise"),
        (["--answer", "lognormal:mean=1"], "for --answer: lognormal needs mean and p95, or mu and sigma"),
        (
            ["--answer", "lognormal:mean=1,p95=9"],
            "for --answer: no lognormal distribution has a p95 above 3.87",
        ),
        (["--answer", "lognormal:mean"], "for --answer: expected NAME=NUMBER, got 'mean'"),
        (["--prompt", "no.csv"], "there is no file no.csv; check the path"),
        (["--hardware", "abacus"], "for --hardware: abacus is not one of l4, a100, h100, v5e"),
        (["--rate", "0"], "the rate must be above 0 calls a second, got 0"),
        (["--rate", "1", "--users", "2"], "only one of --users, --rate, --burst, --arrivals and"),
        (["--plot", "a.png"], "for --plot: there is nothing to plot without --sweep"),
        (["--plot", "a.pdf", "--sweep", "users=1,2"], "for --plot: a.pdf must end in .png or .svg"),
        (["--until", "-1"], "for --until: -1 is not a positive number of seconds"),
        (["--fit", "no.jsonl"], "there is no file no.jsonl; check the path"),
        (["--workload-from", "no.jsonl"], "there is no file no.jsonl; check the path"),
        (
            ["--workload-from", str(LOADS / "over8.jsonl"), "--sweep", "users=1,2"],
            "users cannot be swept with",
        ),
        (["--fit", str(LOADS / "roomy.jsonl")], "roomy shows one batch size only"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    """It says what is wrong and what would be right; no traceback, and nothing on standard output."""
    assert refused(capsys, *arguments).startswith(sentence)


def test_a_file_of_words_is_refused_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The heading may be words, the rest must be numbers; an empty file holds none."""
    file, empty = tmp_path / "lengths.csv", tmp_path / "empty.csv"
    file.write_text("tokens\n100\nmany\n")
    empty.write_text("tokens\n")
    assert refused(capsys, "--answer", file) == f"{file}, line 3: needs 1 number(s), got many\n"
    assert refused(capsys, "--answer", empty) == f"{empty} holds no numbers; it needs 1 a line\n"


def test_help_teaches_with_examples_and_names_each_engines_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """Examples can be copied, and every flag says whose it is."""
    out = printed(capsys, "--help")
    assert "  midstream simulate --sweep max-num-active-seqs=2..32:2 --seeds 9 --plot cap.png\n" in out
    assert "vllm: share of the blocks kept free when" in " ".join(out.split())
    assert "sglang: tokens of KV cache (25224); tgi, tgi-2.4: prompt and answer" in " ".join(out.split())


def test_nothing_heavy_is_imported_without_a_plot() -> None:
    """Only drawing loads matplotlib."""
    program = (
        "import sys; from midstream.cli import main; main(sys.argv[1:]); print('matplotlib' in sys.modules)"
    )
    command = [sys.executable, "-c", program, "simulate", "--requests", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_recorded_load_can_be_shifted_at_random(capsys: pytest.CaptureFixture[str]) -> None:
    """Over several seeds each figure shows its range, and which streams were preempted in how many."""
    loads = RECORDINGS / "load"
    arguments = ("--hardware", "vllm-cpu", "--workload-from", loads / "over8.jsonl", "--num-gpu-blocks", "28")
    out = printed(capsys, *arguments, "--block-size", "128", "--jitter", "0.015", "--seeds", "8")
    assert re.search(r"^ +7 preempted .* 8\.\d\d s \(8\.\d\d to 8\.\d\d\) +8\.11 s ", out, re.MULTILINE)
    assert re.search(
        r"^4( to 5)? preemptions; 21\.\d s( \(.*\))? in all, recorded 22\.2 s\.", out, re.MULTILINE
    )


def test_only_recorded_calls_can_be_shifted(capsys: pytest.CaptureFixture[str]) -> None:
    """The others are random already."""
    assert "only the calls of --workload-from can be shifted" in refused(capsys, "--jitter", "0.1")


def test_an_engine_goes_by_the_names_that_people_give_it(capsys: pytest.CaptureFixture[str]) -> None:
    """TensorRT-LLM's is long."""
    assert printed(capsys, "--engine", "tensorrt-llm", "--requests", "5").startswith("trtllm on l4")


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", "█"), ("ascii", "#")])
@pytest.mark.parametrize("width", [60, 80])
def test_a_sweep_fits_a_narrow_terminal(encoding: str, character: str, width: int) -> None:
    """No figure is cut: the table is printed in parts; bars are in ASCII where the terminal has nothing else."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, highlight=False, markup=False)
    calls = CallPattern(lambda _seed, count: [(200, 800)] * count, requests=12, users=6)
    experiment = Experiment(
        "vllm", {"num_gpu_blocks": 200}, PROFILES["l4"], calls, Sweep("max_num_seqs", (2.0, 6.0)), range(2)
    )
    show_sweep(console, "max_num_seqs", experiment.run())
    file.seek(0)
    printed = file.read()
    assert all(len(line) <= width for line in printed.splitlines())
    for heading in (
        "tokens/s",
        "preempted %",
        "redone %",
        "freeze s",
        "p95",
        "max",
        "TTFT s",
        "KV %",
        "cut %",
    ):
        assert heading in printed
    assert "…" not in printed
    assert character * 4 in printed
    assert printed.isascii() == (encoding == "ascii")


def test_requests_that_do_not_fit_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    """A rejection of everything has a reason, beside the figure."""
    assert main(["simulate", "--prompt", "20000", "--num-gpu-blocks", "600", "--requests", "3"]) == 0
    out, err = capsys.readouterr()
    assert "failed or rejected" in out
    assert err == (
        "midstream: every request was rejected: the shortest prompt has 20,000 tokens, and the KV cache holds 9,584; "
        "shorten --prompt, or give the engine a larger cache\n"
    )
