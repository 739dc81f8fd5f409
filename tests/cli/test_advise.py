"""`midstream advise`, as its users run it."""

from __future__ import annotations

import json
import math
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from midstream.advice.capacity import Caps
from midstream.advice.fleet_limits import fleet_caps, fleet_limit_verdict, fleet_limits
from midstream.cli import main
from midstream.journal import Journal
from midstream.lab.workload import generator
from midstream.sources.fleet import Bucket, Histogram, Summary
from midstream.stream.model import Outcome, StreamRecord
from midstream.telemetry.instruments import MODEL, OPERATION
from support.metrics_pages import TRTLLM
from support.records import a_record

VLLM = (
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0\n'
    'vllm:num_preemptions_total{model_name="m"} 7.0\n'
    'vllm:kv_cache_usage_perc{model_name="m"} 0.97\n'
)
SGLANG = (
    'sglang:max_total_num_tokens{model_name="m"} 25224\nsglang:token_usage{model_name="m"} 0.55\n'
    'sglang:num_queue_reqs{model_name="m"} 6\nsglang:num_running_reqs{model_name="m"} 9\n'
    'sglang:new_token_ratio{model_name="m"} 0.3\nprocess_start_time_seconds 1e9\n'
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Run the command, and return its status and what it printed on both channels."""
    status = main(["advise", *map(str, arguments)])
    return (status, *capsys.readouterr())


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run the command, which must advise, and return what it printed."""
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """Run the command, which must fail without printing anything, and return its status and its sentence."""
    status, out, err = run(capsys, *arguments)
    assert out == ""
    assert err.count("\n") == 1
    return status, err.removeprefix("midstream: ").strip()


def document(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    """Return the JSON document that the command prints."""
    read: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json"))
    return read


def journal_of(path: Path, records: list[StreamRecord]) -> Path:
    """Write a journal."""
    journal = Journal(path, max_days=None)
    for record in records:
        journal.write(record)
    assert journal.close(20)
    return path


def the_records() -> list[StreamRecord]:
    """Sixteen users, answers of very different lengths, a limit far above them; one in eight froze, some were left."""
    rng = generator("answers", 7)
    records = []
    for n in range(800):
        tokens = rng.choice((200, 500, 900, 3000 + n))
        left = n % 100 == 99
        records.append(
            a_record(
                started_at=1.7e9 + 10.0 * (n // 16),
                duration_s=10.0,
                input_tokens=rng.randint(50, 300),
                output_tokens=tokens,
                content_chunks=tokens,
                token_limit=8192,
                finish_reasons=() if left else ("stop",),
                outcome=Outcome.CANCELLED if left else Outcome.COMPLETED,
                freezes=n % 8 == 0,
                max_gap_s=9.0 if n % 8 == 0 else 0.1,
                time_to_first_content_s=0.4,
                suspected="stall",
                hidden=0,
                shared=0,
            )
        )
    return records


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return journal_of(tmp_path_factory.mktemp("advise") / "streams.db", the_records())


@contextmanager
def serving(page: str) -> Iterator[str]:
    """A server whose /metrics is this page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page.encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# max-tokens


def test_a_limit_is_advised(capsys: pytest.CaptureFixture[str], journal: Path) -> None:
    """What the data are, the limit with its interval, what is asked for in vain, and what each server makes of it."""
    lines = printed(capsys, "max-tokens", "--journal", journal, "--cut", "5%").splitlines()
    assert lines[0] == "m, chat: 800 answers, 792 ended by themselves, 8 left by the reader"
    found = next(line for line in lines if line.startswith("smallest limit that cuts 5 %"))
    assert "95 % interval 3," in found
    assert any(line.startswith("asked for and not used today") for line in lines)
    assert any(line.startswith("Set max_tokens to 3,") for line in lines)
    servers = [
        line
        for line in lines
        if line.startswith(("vLLM", "SGLang", "TGI", "TensorRT", "llama.cpp", "a hosted"))
    ]
    assert len(servers) == 8


def test_too_few_answers_have_a_status_of_their_own(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    """3, and what is missing."""
    status, out, err = run(capsys, "max-tokens", "--journal", journal)
    assert (status, err) == (3, "")
    assert (
        "cannot be determined from 800 answers: about 5,200 more are needed (some 5,800 in all if none is cut)"
        in out
    )


def test_limits_are_judged_when_asked(capsys: pytest.CaptureFixture[str], journal: Path) -> None:
    """Today's, and the one that somebody thinks of; for the one server that matters."""
    found = document(
        capsys, "max-tokens", "--journal", journal, "--cut", "5%", "--limit", "1000", "--engine", "trtllm"
    )
    (group,) = found["groups"]
    assert [(tried["limit"], tried["requests_today"]) for tried in group["limits"]] == [
        (1000, 0),
        (8192, 800),
    ]
    assert group["limits"][0]["low"] < group["limits"][0]["share"] < group["limits"][0]["high"]
    assert group["limits"][1]["share"] == 0.0
    assert group["advice"]["low"] <= group["advice"]["limit"] <= group["advice"]["high"]
    assert group["engines"]["trtllm"]["set_aside_today"] == 8192
    assert group["engines"]["trtllm"]["set_aside_with_limit"] == group["advice"]["limit"]
    assert list(group["engines"]) == ["trtllm"]
    assert group["not_enough_data"] is None


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_lengths_are_drawn(
    capsys: pytest.CaptureFixture[str], journal: Path, tmp_path: Path, ending: str
) -> None:
    """As a picture, or as one that scales."""
    picture = tmp_path / f"lengths.{ending}"
    printed(capsys, "max-tokens", "--journal", journal, "--cut", "5%", "--plot", picture)
    assert picture.read_bytes().startswith(b"\x89PNG" if ending == "png" else b"<?xml")


def test_reasoning_is_warned_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A limit may end an answer before it starts."""
    records = [a_record(output_tokens=n, content_chunks=n, reasoning_tokens=n // 2) for n in range(1, 601)]
    journal = journal_of(tmp_path / "streams.db", records)
    out = printed(capsys, "max-tokens", "--journal", journal, "--cut", "5%", "--limit", "100")
    assert "Reasoning is part of the answer: 50 % of the tokens of the median answer here." in out
    assert "570 would have done so 0 times" in out
    row = next(line for line in out.splitlines() if line.startswith("  100")).split()
    assert row[-1] == "401"


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["--cut", "0%"], 2, "'0%' is no share; write it as in 0.1% or 0.001."),
        (["--cut", "lots"], 2, "'lots' is no share"),
        (["--engine", "gpt"], 2, "gpt is not one of vllm, sglang"),
        (["--plot", "lengths.pdf"], 2, "lengths.pdf must end in .png or .svg."),
        (["--where", "model=other"], 1, "streams.db matches: its 800 streams began from "),
        (["--since", "yesterday"], 2, "'yesterday' is not a valid time"),
        (["--prometheus", "localhost:9"], 2, "it does not go with --prometheus"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], journal: Path, arguments: list[str], status: int, sentence: str
) -> None:
    """What is wrong, and what would be right."""
    found = refused(capsys, "max-tokens", "--journal", journal, *arguments)
    assert found[0] == status
    assert sentence.rstrip(".") in found[1]


def test_a_journal_without_lengths_says_how_to_get_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Servers must be asked for usage."""
    journal = journal_of(tmp_path / "streams.db", [a_record(output_tokens=None)] * 3)
    status, sentence = refused(capsys, "max-tokens", "--journal", journal)
    assert status == 3
    assert sentence.startswith("none of the 3 streams shows how long its answer was; ask servers for usage")


def test_an_absent_journal_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With its name."""
    status, sentence = refused(capsys, "max-tokens", "--journal", tmp_path / "none.db")
    assert status == 1
    assert "none.db" in sentence


# concurrency

QUICK = ("--requests", "100", "--seeds", "1", "--anyway")


def test_a_cap_is_advised(capsys: pytest.CaptureFixture[str], journal: Path, tmp_path: Path) -> None:
    """From the pool and the lengths, by simulation; with the curve, the flag and a picture."""
    picture = tmp_path / "cap.svg"
    out = printed(
        capsys,
        "concurrency",
        "--journal",
        journal,
        "--pool",
        "16000",
        "--users",
        "24",
        *QUICK,
        "--plot",
        picture,
    )
    assert out.startswith("KV cache: 16,000 tokens (as given)\nLoad: 800 answers, prompts of ")
    assert (
        "Caps from the lengths alone: 4 (never: no preemption even if long answers run at the same time), "
        in out
    )
    assert "<- advised" in out
    assert "Let at most " in out
    assert "--max-num-active-seqs " in out
    assert out.splitlines()[-1].startswith(
        f"Afterwards: midstream compare --journal {journal} --at WHEN-YOU-SET-IT"
    )
    assert picture.read_bytes().startswith(b"<?xml")


def test_the_comparison_afterwards_allows_the_price_that_was_named(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    """Beyond the 10 % that `midstream compare` allows by itself, it would call worse what was advised."""
    goal = ("--goal", "freeze-share=0")
    asked = ("concurrency", "--journal", journal, "--pool", "16000", "--users", "24", *QUICK, *goal)
    found = document(capsys, *asked)
    chosen = next(one for one in found["curve"] if one["cap"] == found["advised"]["cap"])
    tokens = [statistics.median(one["throughput_tokens_per_s"]) for one in (chosen, found["curve"][-1])]
    price = math.ceil(100 * (1 - tokens[0] / tokens[1]))
    wait = math.ceil(1.2 * chosen["first_token_p95_s"][0])
    assert price > 10
    assert wait > 10
    assert printed(capsys, *asked).splitlines()[-1] == (
        f"Afterwards: midstream compare --journal {journal} --at WHEN-YOU-SET-IT --give-up {price} "
        f"--bearable {wait}    (its price here; without it, 10 % of the throughput may be lost and the first content "
        "may take 10 s)"
    )


def test_the_curve_is_there_for_scripts(capsys: pytest.CaptureFixture[str], journal: Path) -> None:
    """Each cap with a figure for each seed; the one advised meets the goal, and the one without does not."""
    found = document(
        capsys,
        "concurrency",
        *(
            "--journal",
            journal,
            "--pool",
            "16000",
            "--users",
            "24",
            "--requests",
            "100",
            "--seeds",
            "2",
            "--anyway",
        ),
        *("--goal", "p99-gap=3s"),
    )
    assert [len(each["p99_gap_s"]) for each in found["curve"]] == [2] * len(found["curve"])
    chosen = next(each for each in found["curve"] if each["cap"] == found["advised"]["cap"])
    assert chosen["meets"]
    assert not found["curve"][-1]["meets"]
    assert found["curve"][-1]["cap"] is None
    assert found["load"]["usual_streams"] == 16


def test_goals_that_no_cap_meets_have_a_status_of_their_own(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    """As few data do."""
    status, out, _ = run(
        capsys,
        *("concurrency", "--journal", journal, "--pool", "16000", "--users", "24", *QUICK),
        *("--goal", "freeze-share=0", "--goal", "throughput-given-up=0"),
    )
    assert status == 3
    assert "the goals exclude each other." in out


@pytest.mark.parametrize("source", ["server", "metrics", "log", "model"])
def test_the_pool_comes_from_wherever_it_can_be_read(
    capsys: pytest.CaptureFixture[str], journal: Path, tmp_path: Path, source: str
) -> None:
    """The server itself, a page of it, its log, or the model and the memory left: 16,000 tokens each."""
    page, log, config = tmp_path / "page.txt", tmp_path / "vllm.log", tmp_path / "config.json"
    page.write_text(VLLM)
    log.write_text("INFO GPU KV cache size: 16,000 tokens\n")
    layers = {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    config.write_text(json.dumps({"torch_dtype": "bfloat16", **layers}))
    with serving(VLLM) as address:
        options: dict[str, list[str | Path]] = {
            "server": ["--server", address],
            "metrics": ["--metrics", page],
            "log": ["--log", log],
            "model": ["--model-config", config, "--memory", str(16_000 * 144 * 1024)],
        }
        found = document(
            capsys, "concurrency", "--journal", journal, "--users", "4", *QUICK, *options[source]
        )
    assert found["pool"]["tokens"] == 16_000


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], ("sglang", "--max-running-requests ", [])),
        (["--engine", "sglang"], ("sglang", "--max-running-requests ", [])),
        (
            ["--engine", "vllm"],
            (
                "vllm",
                "--max-num-active-seqs ",
                ["the server's metrics are those of SGLang; vllm is simulated, as asked for"],
            ),
        ),
    ],
)
def test_the_engine_is_the_one_of_the_page_unless_another_is_named(
    capsys: pytest.CaptureFixture[str],
    journal: Path,
    tmp_path: Path,
    asked: list[str],
    expected: tuple[str, str, list[str]],
) -> None:
    """Its rule is simulated and its flags are printed; who names another one is told."""
    engine, flag, notes = expected
    page = tmp_path / "page.txt"
    page.write_text(SGLANG.replace("25224", "16000"))
    options = ("--journal", journal, "--metrics", page, "--users", "24", *QUICK)
    found = document(capsys, "concurrency", *options, *asked)
    out = printed(capsys, "concurrency", *options, *asked)

    assert found["simulation"]["engine"] == engine
    assert [note for note in found["pool"]["notes"] if "is simulated" in note] == notes
    assert flag in out
    assert all(note in out for note in notes)


def test_a_variant_of_the_engine_is_no_contradiction(
    capsys: pytest.CaptureFixture[str], journal: Path, tmp_path: Path
) -> None:
    """`trtllm-max-utilization` is TensorRT-LLM."""
    page = tmp_path / "page.txt"
    page.write_text(TRTLLM)
    found = document(
        capsys,
        *("concurrency", "--journal", journal, "--metrics", page, "--users", "4", *QUICK),
        *("--engine", "trtllm-max-utilization"),
    )

    assert found["simulation"]["engine"] == "trtllm-max-utilization"
    assert not [note for note in found["pool"]["notes"] if "is simulated" in note]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (
            [],
            2,
            "give the size of the KV cache: --pool, --server, --metrics, --log, or --model-config with --memory",
        ),
        (
            ["--pool", "9", "--log", "x"],
            2,
            "--pool and --log exclude each other: give one of --pool, --log and --model-config",
        ),
        (
            ["--pool", "16000", "--model-config", "c.json", "--memory", "4GiB"],
            2,
            "--pool and --model-config exclude each other",
        ),
        (["--pool", "16000", "--memory", "4GiB"], 2, "--pool and --memory exclude each other"),
        (["--memory", "4GiB"], 2, "--memory: it goes with --model-config, the model's config.json"),
        (["--pool", "16000", "--engine", "gpt"], 2, "see `midstream advise flags --engine hosted`"),
        (["--pool", "16000", "--goal", "speed=9"], 2, "'speed=9' is no goal"),
        (["--pool", "16000", "--goal", "p99-gap=soon"], 2, "'p99-gap=soon' is no goal"),
        (["--pool", "16000", "--goal", f"p99-gap={'9' * 400}"], 2, "is no time; write it as in 2s or 500ms"),
        (["--pool", "16000", "--users", "100000000"], 2, "less than or equal to 10000"),
        (["--pool", "31"], 1, "a KV cache of 31 tokens (as given) does not hold even one of these requests"),
        (["--pool", f"1{'0' * 19}"], 1, "no memory holds a KV cache of 1e+19 tokens (as given)"),
        (["--log", "none.log"], 1, "there is no file none.log; check the path"),
        (["--model-config", "none.json"], 2, "give the memory that is left for the KV cache, as in 12GiB"),
        (["--model-config", "none.json", "--memory", f"{'9' * 400}GiB"], 2, "is no amount of memory"),
        (["--log", "/dev/zero"], 1, "/dev/zero is larger than 256 MiB"),
        (["--model-config", "none.json", "--memory", "much"], 2, "'much' is no amount of memory"),
        (
            ["--pool", "16000", "--users", "4", "--as-they-came"],
            2,
            "give --users or --as-they-came, not both",
        ),
        (["--pool", "16000", "--hardware", "abacus"], 2, "abacus is not one of l4"),
        (["--server", "127.0.0.1:1"], 1, "127.0.0.1:1"),
    ],
)
def test_a_pool_or_goal_that_cannot_be_is_told(
    capsys: pytest.CaptureFixture[str], journal: Path, arguments: list[str], status: int, sentence: str
) -> None:
    """What is wrong, and what would be right."""
    found = refused(capsys, "concurrency", "--journal", journal, *arguments)
    assert found[0] == status
    assert sentence in found[1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"hidden_size": 4096}', "the config has no `dtype`"),
    ],
)
def test_a_config_that_is_none_is_told(
    capsys: pytest.CaptureFixture[str], journal: Path, tmp_path: Path, content: str, sentence: str
) -> None:
    """With the file's name."""
    config = tmp_path / "config.json"
    config.write_text(content)
    status, told = refused(
        capsys, "concurrency", "--journal", journal, "--model-config", config, "--memory", "4GiB"
    )
    assert status == 1
    assert "config.json" in told
    assert sentence in told


def test_a_pool_of_one_block_is_told_however_short_requests_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One block is what vLLM keeps for itself."""
    short = journal_of(tmp_path / "short.db", [a_record(input_tokens=1, output_tokens=1)] * 60)
    status, sentence = refused(capsys, "concurrency", "--journal", short, "--pool", "16", *QUICK)
    assert status == 1
    assert "a KV cache of 16 tokens" in sentence


def test_a_freeze_is_what_it_was_when_it_was_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Freezes that were counted from 1 s on are not ended by a cap that ends those of 5 s; `compare` counts alike."""
    records = [
        replace(record, freeze_after_s=1.0, max_gap_s=1.5 if record.freezes else 0.9)
        for record in the_records()[:200]
    ]
    known = journal_of(tmp_path / "known.db", records)
    options = (
        "concurrency",
        "--journal",
        known,
        "--pool",
        "16000",
        "--requests",
        "20",
        "--seeds",
        "1",
        "--anyway",
    )

    assert document(capsys, *options)["simulation"]["freeze_after_s"] == 1.0
    assert document(capsys, *options, "--freeze-after", "7")["simulation"]["freeze_after_s"] == 7.0


@pytest.mark.parametrize("command", ["max-tokens", "concurrency"])
def test_an_empty_journal_is_not_blamed_on_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    """Whoever chose nothing cannot widen it."""
    empty = journal_of(tmp_path / "empty.db", [])
    pool = ("--pool", "16000") if command == "concurrency" else ()
    empty.touch()

    assert (
        "a program writes one when each stream ends" in refused(capsys, command, "--journal", empty, *pool)[1]
    )
    told = refused(capsys, command, "--journal", empty, *pool, "--where", "model=x")
    assert "holds no streams yet" in told[1]


@pytest.mark.parametrize(("streams", "missing"), [(20, "30 more are needed"), (49, "1 more is needed")])
def test_few_streams_are_not_enough_for_a_cap(
    streams: int, missing: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """How many more are needed is said."""
    journal = journal_of(tmp_path / "streams.db", [a_record()] * streams)
    assert refused(capsys, "concurrency", "--journal", journal, "--pool", "16000") == (
        3,
        (
            f"{streams} streams with known lengths are too few to show how often long answers run at the same time; "
            f"{missing}"
        ),
    )


# flags


def test_a_flag_needs_no_journal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cap is known already."""
    monkeypatch.delenv("MIDSTREAM_JOURNAL", raising=False)
    out = printed(capsys, "flags", "--engine", "vllm", "--engine-version", "0.31", "--cap", "12")
    assert out.splitlines()[0] == "At most 12 at once: as given."
    assert "server  --max-num-active-seqs 12" in out
    assert "--max-num-seqs 12" not in out
    assert (
        out.splitlines()[-1]
        == "Set --max-num-active-seqs 12, and check with `midstream compare` whether it helped."
    )


def test_the_server_says_which_it_is_and_how_it_does(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    """SGLang with a queue and half of its memory unused, and no retraction in all its life."""
    with serving(SGLANG) as address:
        found = document(capsys, "flags", "--server", address, "--journal", journal)
    assert found["engine"] == "sglang"
    assert found["situation"]["pool_tokens"] == 25224
    assert [flag["text"] for flag in found["flags"]][1] == "--schedule-conservativeness 0.3"
    assert [doubt["ground"] for doubt in found["doubts"]] == ["no preemption"]


def test_a_hosted_api_is_capped_by_what_happened(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Alone nobody froze, and among twenty half did; with the programs that hold back."""
    alone = [a_record(started_at=1.7e9 + 10 * n) for n in range(60)]
    together = [
        a_record(started_at=1.8e9, duration_s=9.0, freezes=n % 2, shared=0, hidden=0) for n in range(20)
    ]
    journal = journal_of(tmp_path / "streams.db", [*alone, *together])
    out = printed(capsys, "flags", "--engine", "hosted", "--journal", journal)
    assert out.splitlines()[0] == (
        "At most 1 at once: as observed: of 60 streams with at most so many at once 0 % froze."
    )
    assert "asyncio.Semaphore(1)" in out
    assert "threading.BoundedSemaphore(1)" in out


def test_without_any_number_there_is_no_flag(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And the status says so."""
    journal = journal_of(tmp_path / "streams.db", [a_record()] * 20)
    status, out, _ = run(capsys, "flags", "--engine", "vllm", "--journal", journal)
    assert status == 3
    assert out.splitlines()[0] == (
        "No cap: give --cap, or a journal of at least 50 streams, best with the size of the KV cache."
    )
    assert out.splitlines()[-1] == "There is nothing to set yet."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name one of vllm, sglang"),
        (["--engine", "gpt"], "gpt is not one of vllm, sglang"),
        (["--engine", "vllm", "--engine-version", "latest"], "'latest' is no version; write it as in 0.31.0"),
        (["--engine", "vllm", "--since", "2h"], "there is no journal to choose from; give --journal"),
        (["--server", "a", "--metrics", "b"], "give --server or --metrics, not both"),
    ],
)
def test_a_flag_that_cannot_be_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    """As wrong usage."""
    monkeypatch.delenv("MIDSTREAM_JOURNAL", raising=False)
    status, told = refused(capsys, "flags", *arguments)
    assert status == 2
    assert sentence in told


# Fleets


def a_fleet(above: float, *, length: float = 0.0) -> Summary:
    """10,000 answers, so many of them above 1,024 tokens, and so many that ended at their limit."""
    buckets = (Bucket(0, 256, 9000), Bucket(256, 1024, 1000 - above), Bucket(1024, 4096, above))
    return Summary(
        {MODEL: "m", OPERATION: "chat"},
        ended={("completed", "stop"): 10_000 - length, ("completed", "length"): length},
        output_tokens=Histogram(buckets, 2_000_000.0),
        input_tokens=Histogram((Bucket(0, 1024, 10_000),), 1_000_000.0),
    )


@pytest.mark.parametrize(
    ("fleet", "cut", "verdict"),
    [
        (
            a_fleet(50),
            0.01,
            (
                "Set max_tokens to 1,024 at most: the smallest limit that cuts 1 % of answers is above 256, and "
                "within the bucket that ends there; a journal has the exact lengths."
            ),
        ),
        (
            a_fleet(50, length=300),
            0.01,
            (
                "Which limit cuts 1 % of answers cannot be determined: 3 % of them ended early, and metrics do not "
                "show how long they were. Use a journal, or raise today's limit for a while; it is above 256."
            ),
        ),
        (
            a_fleet(50),
            0.0001,
            (
                "Which limit cuts 0.01 % of answers cannot be determined from 10,000 answers: about 27,000 more are "
                "needed; it is above 1,024."
            ),
        ),
    ],
)
def test_metrics_of_a_fleet_tell_bounds(fleet: Summary, cut: float, verdict: str) -> None:
    """As sharp as their buckets are."""
    (limit,), silent = fleet_limits([fleet, Summary({})], cut, 0.95)
    assert (limit.model, limit.operation, silent) == ("m", "chat", 1)
    assert fleet_limit_verdict(limit) == verdict


def test_metrics_of_a_fleet_tell_caps() -> None:
    """Prompts of 100 and answers of 200 on average; 95 % of answers are within the bucket that ends at 1,024."""
    assert fleet_caps(a_fleet(50), 30_000) == Caps(never=26, average=100)
    with pytest.raises(ValueError, match="the metrics hold no lengths of prompts and answers"):
        fleet_caps(Summary({}), 30_000)


# Help


@pytest.mark.parametrize("command", ["max-tokens", "concurrency", "timeout", "flags"])
def test_help_teaches_with_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Each with commands to copy."""
    out = printed(capsys, command, "--help")
    assert f"midstream advise {command} " in out


def test_alone_it_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """With a line for each."""
    out = printed(capsys, "--help")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  ") and "Choose " in line[3:]][
        :1
    ]
    for command in ("max-tokens", "concurrency", "timeout", "flags"):
        assert command in out
