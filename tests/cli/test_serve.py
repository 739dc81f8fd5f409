"""`midstream serve` as people run it: a process that says what it is, answers, and ends with Ctrl-C."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from openai import OpenAI

from midstream import StreamRecord, monitor
from midstream.cli import main
from support.waiting import until


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command in a process of its own, and give it with what it said when it was up."""
    command = [sys.executable, "-m", "midstream", "serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if "/metrics" in line:
                    break
            yield process, said
        finally:
            process.kill()


def base_url(said: str) -> str:
    """Return the address that the command names."""
    match = re.search(r"^(http://\S+/v1)$", said, re.MULTILINE)
    assert match is not None, said
    return match[1]


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Press Ctrl-C, and return the exit status and what was said since."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_it_says_what_it_is_and_ends_without_a_word() -> None:
    """Engine, hardware, flags, rule, address, and three lines to try; status 130 at the end, the port is free."""
    with running("--engine", "vllm", "--num-gpu-blocks", "60", "--speed", "4") as (process, said):
        url = base_url(said)
        assert said.splitlines()[:2] == [
            "Emulating vllm on l4, num-gpu-blocks 60, 4 times as fast, until Ctrl-C.",
            "It reserves nothing; preempts the last one admitted, to the front.",
        ]
        assert f"    midstream probe {url} --prompt tokens=700" in said
        assert f"    curl {url.removesuffix('/v1')}/metrics\n" in said
        assert end(process) == (130, "", "")
    with socket.create_server(("127.0.0.1", int(url.split(":")[2].removesuffix("/v1")))):
        pass


def test_the_line_for_curl_can_be_copied() -> None:
    """The shell takes it apart into a request that is answered."""
    with running("--speed", "50") as (_, said):
        line = next(line for line in said.splitlines() if "chat/completions" in line)
        words = shlex.split(line)
        body = json.loads(words[-1])
        with OpenAI(base_url=base_url(said), api_key="none") as client:
            chunks = list(client.chat.completions.create(**body))
    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 10


def test_a_monitored_client_sees_the_freezes_of_a_small_pool_and_none_with_a_cap() -> None:
    """Four streams of 300 tokens in a pool of 800: preemptions freeze some; two at a time, nobody freezes."""
    seen = {}
    for name, flags in (("open", ()), ("capped", ("--max-num-active-seqs", "2"))):
        arguments = ("--hardware", "vllm-cpu", "--num-gpu-blocks", "51", "--speed", "4", *flags)
        with running(*arguments) as (_, said):
            seen[name] = records(base_url(said), streams=4)
    assert all(record.outcome == "completed" for each in seen.values() for record in each)
    assert sum(record.freezes for record in seen["open"]) >= 1
    assert max(record.max_gap_s or 0 for record in seen["capped"]) < 0.5


def records(url: str, *, streams: int) -> list[StreamRecord]:
    """Stream several answers at once through a monitored client, and return their records."""
    found: list[StreamRecord] = []
    client = monitor(OpenAI(base_url=url, api_key="none"), freeze_after_s=0.5, on_end=found.append)
    told = {"emulate": {"prompt_tokens": 40, "answer_tokens": 300}}
    opened = [
        client.chat.completions.create(
            model="emulated",
            messages=[{"role": "user", "content": "x"}],
            stream=True,
            stream_options={"include_usage": True},
            extra_body=told,
        )
        for _ in range(streams)
    ]
    threads = [threading.Thread(target=list, args=(stream,)) for stream in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(found) == streams)
    client.close()
    return found


def test_a_port_in_use_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """It says which, and how to get another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"midstream: port {port} on 127.0.0.1 is in use; choose another, or take any free one with --port 0\n"
    )


def test_whoever_listens_to_the_world_is_warned() -> None:
    """One line on standard error."""
    with running("--host", "0.0.0.0") as (process, _):
        status, _, err = end(process)
    assert status == 130
    assert err == "midstream: warning: every machine that can reach this one on 0.0.0.0 can use this server\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--engine", "nope"], "there is no engine nope; choose from vllm, sglang, tgi, "),
        (["--ctx-size", "10"], "vllm has no ctx-size; it has num-gpu-blocks, block-size, "),
        (["--watermark", "2"], "watermark must be from 0 up to, not including, 1; got 2"),
        (["--hardware", "b200"], "b200"),
        (["--speed", "0"], "0.0 is not a positive number"),
        (["--speed", "nan"], "nan is not a positive number"),
        (["--keep-alive", "-1"], "-1.0 is not a number of seconds"),
        (["--answer", "lognormal:mean=3"], "lognormal needs mean and p95, or mu and sigma"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is named before anything is served."""
    assert main(["serve", *arguments]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("said", "name"), [("tensorrt-llm", "trtllm"), ("llama.cpp", "llamacpp")])
def test_engines_go_by_the_names_that_people_give_them(said: str, name: str) -> None:
    """And are called by one."""
    with running("--engine", said) as (_, printed):
        assert printed.startswith(f"Emulating {name} on ")


def test_help_shows_lines_to_copy(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what it is for."""
    assert main(["serve", "--help"]) == 0
    assert len(re.findall(r"^  midstream serve .*  \S", capsys.readouterr().out, re.MULTILINE)) >= 5
