"""`midstream proxy` as people run it: a process that names its addresses, records, and ends as it is told to."""

from __future__ import annotations

import re
import signal
import socket
import threading
from pathlib import Path

import pytest
import requests

from midstream.cli import main
from midstream.journal import read_records
from midstream.testing import DONE, finish, role, text
from support.commands import end, read_until, running
from support.proxying import LAST, SSE_HEAD, Line, chunked, post, raw_server, read_all, sending

BEGUN = SSE_HEAD + chunked(role().encode(), text("Hel").encode())
REST = chunked(finish().encode(), DONE.encode()) + LAST


def test_it_names_its_addresses_records_a_stream_and_drains(tmp_path: Path) -> None:
    """SIGTERM in the middle of a stream: that goes on to its end, its record is in the journal, and the status is 0."""
    go_on = threading.Event()

    def play(line: Line) -> None:
        line.send(BEGUN)
        go_on.wait(30)
        line.send(REST)

    journal = tmp_path / "streams.db"
    options = ["--port", "0", "--metrics-port", "0", "--journal", str(journal), "--drain", "20"]
    with raw_server(play) as upstream, running("proxy", "--upstream", upstream.url, *options) as process:
        said = read_until(process, "^Clients: ")
        url = re.findall(r"^(http://\S+)$", said, re.MULTILINE)[0]
        metrics = re.findall(r"^Metrics: (\S+)$", said, re.MULTILINE)[0]
        assert said == (
            f"Passing on to {upstream.url}, until Ctrl-C.\n\n{url}\n\nJournal: {journal}\n"
            f"Metrics: {metrics}\nClients: OPENAI_BASE_URL={url}/v1\n"
        )
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as client:
            client.sendall(post())
            got = b""
            while b"Hel" not in got:
                got += client.recv(4096)
            page = requests.get(metrics, timeout=30).text
            assert re.search(r"^stream_active\{.*\} 1\.0$", page, re.MULTILINE)
            process.send_signal(signal.SIGTERM)
            go_on.set()
            assert (got + read_all(client)).endswith(LAST)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")

    (record,) = read_records(journal)
    assert (record.outcome, record.content_chunks, record.request_model) == ("completed", 1, "m")


def test_ctrl_c_ends_it_at_once_and_leaves_nothing_behind() -> None:
    """Also with an open stream, and without a word: status 130, the client's stream is cut, the port is free."""
    with (
        raw_server(sending(BEGUN, then="stay")) as upstream,
        running("proxy", "--upstream", upstream.url, "--port", "0", "--metrics-port", "0") as process,
    ):
        url = re.findall(r"^(http://\S+)$", read_until(process, "^Clients: "), re.MULTILINE)[0]
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(post())
            got = b""
            while b"Hel" not in got:
                got += client.recv(4096)
            assert end(process) == (130, "")
            assert not (got + read_all(client)).endswith(LAST)
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--upstream", "vllm:8000"],
            "'vllm:8000' is not an HTTP address; give one such as http://localhost:8000",
        ),
        (
            ["--upstream", "ftp://vllm"],
            "'ftp://vllm' is not an HTTP address; give one such as http://localhost:8000",
        ),
        (
            ["--upstream", "https://api.openai.com/v1"],
            "ends in /v1, which clients have in their own paths; leave it out: https://api.openai.com",
        ),
        (
            ["--upstream", "http://me:sk-canary@vllm"],
            "the address of the upstream holds credentials; clients send their own, leave them out",
        ),
        (
            ["--upstream", "http://vllm/?key=sk-canary"],
            "'http://vllm/' has a query or a fragment; give the address without it",
        ),
        (
            ["--upstream", "http://vllm:99999"],
            "'http://vllm:99999' is not a URL; give one such as http://localhost:8000",
        ),
        (
            ["--upstream", "http://vllm", "--freeze-after", "soon"],
            "--freeze-after must be a positive number of seconds or 'off', got 'soon'",
        ),
        (["--upstream", "http://vllm", "--drain", "-1"], "-1 is not a number of seconds"),
        ([], "where to? Give --upstream URL, or --routes FILE"),
    ],
)
def test_what_cannot_be_run_gets_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is opened, and without what may be a secret."""
    assert main(["proxy", *arguments]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert sentence in said
    assert "canary" not in said


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["proxy", "--upstream", "http://vllm", "--port", str(port)]) == 1
    assert capsys.readouterr().err == (
        f"midstream: port {port} on 127.0.0.1 is in use; choose another, or take any free one with --port 0\n"
    )


def test_it_warns_where_other_machines_can_reach_it() -> None:
    """On standard error, for the proxy and for the metrics."""
    options = ["--port", "0", "--metrics-port", "0", "--host", "0.0.0.0", "--metrics-host", "0.0.0.0"]
    with running("proxy", "--upstream", "http://127.0.0.1:9", *options) as process:
        read_until(process, "^Clients: OPENAI_BASE_URL=http://localhost:")
        status, said = end(process)
    assert status == 130
    assert said.count("every machine that can reach this one on 0.0.0.0 can") == 2


def test_no_key_no_text_and_no_header_is_kept_or_printed(tmp_path: Path) -> None:
    """Of a stream, of one that freezes and is cut, of refused requests and of an upstream that is not there."""
    answer = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nx-request-id: canary\r\n\r\n") + chunked(
        text("canary").encode()
    )
    asked = post(
        b'{"model":"m","stream":true,"messages":[{"role":"canary","content":"canary"}],"user":"canary"}',
        b"/v1/chat/completions?key=canary",
        b"Authorization: Bearer canary",
        b"Cookie: canary",
        b"X-Team: search",
        b"X-Api-Key: canary",
        b"X-Request-ID: canary",
        b"Referer: http://canary",
    )
    turn = iter(["whole", "cut", "none"])

    def play(line: Line) -> None:
        how = next(turn)
        if how == "none":
            line.connection.close()
            return
        line.send(answer)
        if how == "cut":
            threading.Event().wait(1.0)
            line.reset()
        line.send(chunked(finish().encode(), DONE.encode()) + LAST)

    journal = tmp_path / "streams.db"
    options = [
        "--port",
        "0",
        "--metrics-port",
        "0",
        "--journal",
        str(journal),
        "--attribute-header",
        "X-Team",
    ]
    with raw_server(play) as upstream:
        options += ["--upstream", upstream.url, "--freeze-after", "0.3", "--upstream-timeout", "2"]
        with running("proxy", *options) as process:
            said = read_until(process, "^Clients: ")
            url = re.findall(r"^(http://\S+)$", said, re.MULTILINE)[0]
            pages = re.findall(r"^Metrics: (\S+)$", said, re.MULTILINE)

            def ask(request: bytes) -> bytes:
                with socket.create_connection(
                    ("127.0.0.1", int(url.rpartition(":")[2])), timeout=30
                ) as client:
                    client.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                    return read_all(client)

            assert b"canary" in ask(asked)
            assert b"canary" in ask(asked)
            own = [
                ask(asked),
                ask(asked.replace(b"POST", b"CANARY canary", 1)),
                ask(asked.replace(b"localhost", b"canary.example", 1)),
                ask(asked.replace(b"/v1", b"http://canary/v1", 1)),
            ]
            page = requests.get(pages[0], timeout=30).text
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)

    records = read_records(journal)
    assert [(record.outcome, record.attributes) for record in records] == [
        ("completed", {"team": "search"}),
        ("error", {"team": "search"}),
    ]
    assert [answer.split(b" ")[1] for answer in own] == [b"502", b"400", b"403", b"400"]
    assert "frozen" in err
    assert 'team="search"' in page
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for kept in (stored, b"".join(own), page.encode(), out.encode(), err.encode()):
        assert b"canary" not in kept.lower()


def test_routes_are_printed_and_wrong_ones_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file and the sentence of what is wrong in it."""
    file = tmp_path / "routes.yml"
    file.write_text(
        'large: {upstream: "http://large:8000", path: /large}\nsmall: {upstream: "http://s/b", models: [m*]}\n'
    )
    with running("proxy", "--routes", file, "--port", "0", "--metrics-port", "0") as process:
        said = read_until(process, "^Clients: ")
        assert end(process) == (130, "")
    assert said.startswith(
        "large: /large to http://large:8000\nsmall: models m* to http://s/b\n"
        "Everything else is refused, until Ctrl-C.\n\nhttp://127.0.0.1:"
    )

    file.write_text("large: {upstream: http://large, path: large}")
    assert main(["proxy", "--routes", str(file)]) == 1
    assert main(["proxy", "--routes", str(tmp_path / "none.yml")]) == 1
    assert capsys.readouterr().err == (
        f"midstream: {file}: the path of the route large must look like /large\n"
        f"midstream: there is no file {tmp_path / 'none.yml'}; check the path\n"
    )
