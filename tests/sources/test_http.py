"""Servers that do not answer, or with something else: each in one sentence, with nothing secret in it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from midstream.sources.address import shown, url_of
from midstream.sources.http import Getter
from midstream.sources.prometheus import PrometheusError, PrometheusSource
from midstream.sources.scrape import ScrapeError, Scraper
from support.certificate import CERTIFICATE
from support.metrics_pages import SGLANG, Served, serving, vllm

SECRET = "s3cr3t-v4lue"


@contextmanager
def listening(say: bytes | None) -> Iterator[str]:
    """Listen, and say this to whoever connects, or nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            kept.append(connection)
            if say is not None:
                connection.recv(65536)
                connection.sendall(say)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in kept:
            connection.close()


def failure(url: str, **options: object) -> str:
    """What is said of a server."""
    with Scraper(url, timeout_s=0.3, **options) as scraper, pytest.raises(ScrapeError) as failed:  # type: ignore[arg-type]
        scraper.read()
    return str(failed.value)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://h/prometheus/", "http://h/prometheus"),
        ("10.0.0.1", "http://10.0.0.1"),
        ("llm.example.com", "https://llm.example.com"),
        ("[::1]:9090", "http://[::1]:9090"),
        ("HTTPS://H:1", "https://H:1"),
    ],
)
def test_an_address_may_be_written_in_short(written: str, asked: str) -> None:
    """Beyond one's own network it is https, so that no token crosses it in the clear."""
    assert url_of(written) == asked


@pytest.mark.parametrize(
    "written",
    [
        "",
        "a b",
        "ftp://h",
        "http://h:99999",
        "http://h?x=1",
        "http://",
        "h:0",
        "http://[::1",
        "http://ü.example",
    ],
)
def test_what_is_no_address_is_refused(written: str) -> None:
    """With the remedy."""
    with pytest.raises(
        ValueError, match=r"write it like http://localhost:8000|leave it out|in its xn-- form"
    ):
        url_of(written)


def test_a_user_and_a_password_are_never_shown() -> None:
    """They may be part of an address."""
    assert shown(f"http://me:{SECRET}@h:1/p?q=2") == "http://h:1/p"


@pytest.mark.parametrize("written", ["", "/v1", "/v1/chat/completions", "/metrics", "/v1/models"])
def test_any_address_of_the_api_leads_to_its_metrics(written: str) -> None:
    """People paste what they have."""
    with serving(Served(vllm())) as served, Scraper(f"{served.url}{written}") as scraper:
        assert scraper.read().view.engine == "vllm"

    assert [path for path, _ in served.asked] == ["/metrics"]


@pytest.mark.parametrize(
    ("served", "said"),
    [
        (
            Served("not here", 404),
            "answers 404: there are no metrics; SGLang shows them with --enable-metrics",
        ),
        (Served("{}", 401), "answers 401: it wants a key; give it with --header, or MIDSTREAM_SERVER_TOKEN"),
        (Served("start it with `--metrics`", 501), "this llama.cpp was started without --metrics"),
        (Served("<html>oops", 500, "text/html"), "answers 500; see the server's log"),
        (Served("out of \x1b[31mmemory", 500), "answers 500 (out of memory); see the server's log"),
        (Served("<html>", 200, "text/html"), "is a web page and not metrics"),
        (Served("litellm_x 1\n"), "is the page of a LiteLLM proxy"),
        (Served("", 302, headers={"Location": "/metrics"}), "redirects without an end"),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
def test_an_answer_that_is_no_page_is_one_sentence(served: Served, said: str) -> None:
    """What, where, and what to do."""
    with serving(served):
        assert said in failure(served.url)


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    """Each way of not being there has its own."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert failure(f"127.0.0.1:{port}").startswith(f"nothing listens at http://127.0.0.1:{port}")
    assert failure("no.such.host.invalid:1").startswith("no host is called no.such.host.invalid")
    with listening(None) as silent:
        assert "did not answer within 0.3 s" in failure(silent)
    with listening(b"SSH-2.0-OpenSSH_9\r\n") as other:
        assert "hangs up without an answer in HTTP" in failure(other)
    with listening(b"HTTP/1.1 200 OK\r\n\r\n") as plain:
        assert "does not speak TLS as expected" in failure(f"https://{plain}")


def test_a_body_that_breaks_off_is_one_sentence() -> None:
    """Less came than was announced."""
    cut = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99999999\r\n\r\nx 1\n"
    with listening(cut) as server:
        assert "hangs up without an answer in HTTP" in failure(server)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_headers_that_trickle_for_ever_have_an_end(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte at a time, each of them well within the timeout; encrypted or not."""
    over = threading.Event()
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(CERTIFICATE)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                if scheme == "https":
                    connection = context.wrap_socket(connection, server_side=True)
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                    while not over.wait(0.01):
                        connection.sendall(b"a")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        began = time.monotonic()
        said = failure(f"{scheme}://127.0.0.1:{server.getsockname()[1]}")
        took = time.monotonic() - began
        over.set()
        thread.join()
    assert "did not answer within 0.3 s" in said
    assert took < 10


@pytest.mark.parametrize("piece", [b"x" * 70_000, b"#\n"], ids=["much", "next to nothing"])
def test_a_body_that_trickles_for_ever_has_an_end(piece: bytes) -> None:
    """No single read takes too long, and all of them together do; or one never ends, for want of enough to return."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
                while not over.wait(0.01):
                    connection.sendall(piece)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        said = failure(f"127.0.0.1:{server.getsockname()[1]}")
        over.set()
        thread.join()
    assert "did not answer within 0.3 s" in said


def test_a_charset_that_does_not_exist_is_no_hindrance() -> None:
    """What is on a page of metrics is ASCII in any."""
    served = Served(vllm(running=3), kind="text/plain; charset=utf-99")
    with serving(served):
        assert Getter().get(f"{served.url}/metrics").text == vllm(running=3)


def test_headers_stay_at_the_server_that_they_are_for() -> None:
    """A redirect within it is followed, one to another server is not."""
    with serving(Served(vllm())) as other, serving(Served("")) as served:
        served.status, served.headers = 307, {"Location": f"{other.url}/metrics"}
        said = failure(served.url, headers={"Authorization": f"Bearer {SECRET}"})

    assert f"redirects to {other.url}; ask that address instead" in said
    assert SECRET not in said
    assert other.asked == []
    assert served.asked[0][1]["Authorization"] == f"Bearer {SECRET}"


def test_a_redirect_within_a_server_is_followed() -> None:
    """An application that is mounted at /metrics answers at /metrics/."""
    with serving(Served(vllm())) as served:
        with Getter() as getter:
            assert getter.get(f"{served.url}/metrics").status == 200
        served.status, served.headers = 307, {"Location": "/metrics/"}
        assert "redirects without an end" in failure(served.url)
    assert served.asked[-1][0] == "/metrics/"


def test_an_engine_that_restarted_is_still_itself() -> None:
    """A fresh SGLang has nothing on its page by which it could be told."""
    with serving(Served(SGLANG)) as served, Scraper(served.url) as scraper:
        assert scraper.read().view.running.value == 3
        served.text = ""
        again = scraper.read().view

    assert (again.engine, again.running.value) == ("sglang", None)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, "", "answers 401: it wants a token, in MIDSTREAM_PROMETHEUS_TOKEN"),
        (404, "nothing", "give the path before it, too, such as http://mimir/prometheus"),
        (
            422,
            {"status": "error", "error": "query processing would load too many samples"},
            "would load too many samples",
        ),
        (
            400,
            {"status": "error", "error": "1:2: parse error"},
            "cannot evaluate the query (1:2: parse error); see what is said with --where and --by",
        ),
        (
            400,
            "the query is \x1b[31mtoo long",
            "cannot evaluate the query (the query is too long); a shorter",
        ),
        (400, "<html>no", "cannot evaluate the query; a shorter span of time"),
        (400, {"status": "error", "error": ["odd"]}, "cannot evaluate the query; a shorter span of time"),
        (503, "busy", "answers 503 (busy): it is too busy"),
        (500, "oops", "answers 500 (oops); see its log"),
        (200, "<html>", "does not answer as a Prometheus does"),
        (200, {"status": "success", "data": 3}, "does not answer as a Prometheus does"),
        (200, {"status": "success", "data": []}, "has no metric of midstream in this time"),
        (200, {"status": "success", "isPartial": True, "data": []}, "has only a part of the data"),
        (
            200,
            {"status": "success", "warnings": ["store down"], "data": []},
            "a part of the data (store down)",
        ),
    ],
)
def test_what_an_api_refuses_is_one_sentence(status: int, body: object, said: str) -> None:
    """Its own words are in it where they help, and nothing that was sent."""
    text = body if isinstance(body, str) else json.dumps(body)
    with (
        serving(Served(text, status, "application/json")) as served,
        PrometheusSource(f"{served.url}/prom/api/v1/query", headers={"X-Key": SECRET}) as source,
        pytest.raises(PrometheusError) as failed,
    ):
        source.fleet(0, 1000)

    assert said in str(failed.value)
    assert "\n" not in str(failed.value)
    assert SECRET not in str(failed.value)
    assert served.asked[0][0].startswith("/prom/api/v1/label/__name__/values?")
    assert served.asked[0][1]["X-Key"] == SECRET


def test_data_stay_as_they_are_whatever_was_sent() -> None:
    """A tenant may be called as a label's value is."""
    with serving(Served(vllm())) as served, Getter({"X-Scope-OrgID": "running"}) as getter:
        assert getter.get(f"{served.url}/metrics").text == vllm()


def test_a_key_that_the_server_repeats_is_not_shown() -> None:
    """Some say what they did not like."""
    said = f"malformed header: Authorization: Bearer {SECRET}, or just {SECRET}"
    with (
        serving(Served(said, 400)) as served,
        PrometheusSource(served.url, headers={"Authorization": f"Bearer {SECRET}", "X": "a"}) as source,
        pytest.raises(PrometheusError) as failed,
    ):
        source.fleet(0, 1000)
    assert "cannot evaluate the query (malformed header: Authorization: ***, or just ***); " in str(
        failed.value
    )
    assert SECRET in served.asked[0][1]["Authorization"]


def test_names_of_every_translation_are_found() -> None:
    """With and without the unit, with dots, with buckets and without."""
    for name, part in (
        ("stream_max_gap_seconds", "_bucket"),
        ("stream_max_gap", "_bucket"),
        ("stream.max_gap_seconds", "_bucket"),
        ("stream.max_gap", "_bucket"),
        ("stream_max_gap_seconds", ""),
        ("stream.max_gap", ""),
    ):
        queries: list[str] = []

        def answer(path: str, name: str = name, part: str = part, queries: list[str] = queries) -> str:
            queries.append(path)
            data: object = [name + part] if "/label/" in path else {"resultType": "vector", "result": []}
            return json.dumps({"status": "success", "data": data})

        with (
            serving(Served("", kind="application/json", answer=answer)) as served,
            PrometheusSource(served.url) as source,
            pytest.raises(PrometheusError, match="has no streams in this time"),
        ):
            source.fleet(0, 1000, by=("gen_ai.request.model",))
        label = "%22gen_ai.request.model%22" if "." in name else "gen_ai_request_model"
        assert f"%22{name}{part}%22" in queries[1]
        assert f"sum+by+%28{label}" in queries[1]
