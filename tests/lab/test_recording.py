import json
from pathlib import Path

import pytest

from midstream.lab.library import PACKAGED, packaged_recordings, read_recordings
from midstream.lab.load import parse_load
from midstream.lab.recording import Arrival, Recording, RecordingError, parse_stream
from support.paths import RECORDINGS

REQUEST = '{"request": {"url": "http://u:p@host:8000/v1/chat/completions", "body": {"model": "tiny"}}}'
ANSWER = '{"t": 0.1, "status": 200, "headers": {"Content-Type": "text/event-stream", "server": "uvicorn"}}'
REPLAYABLE = "/v1/chat/completions, /v1/completions, /v1/responses"
LOAD = {"i": 3, "start": 1.0, "end": 4.5, "finish": "length", "usage": [49, 2], "times": [1.5, 4.0]}


def test_a_recording_is_parsed_into_what_was_asked_what_came_and_when() -> None:
    """Every field of a parsed recording holds what the file says, and nothing of the recorded connection."""
    text = "\n".join(
        [
            REQUEST,
            ANSWER,
            '{"t": 0.25, "line": "data: {}"}',
            '{"t": 0.25, "line": ""}',
            '{"t": 0.75, "line": "data: [DONE]"}',
            '{"t": 0.75, "line": ""}',
            '{"t": 0.8, "event": "closed"}\n',
        ]
    )
    assert parse_stream(text, name="one", source="one.jsonl") == Recording(
        name="one",
        operation="chat",
        model="tiny",
        server="host:8000",
        status=200,
        headers=(("content-type", "text/event-stream"),),
        headers_at_s=0.1,
        arrivals=(Arrival(0.25, b"data: {}\n\n"), Arrival(0.75, b"data: [DONE]\n\n")),
        ended_at_s=0.8,
        ending="closed",
    )


@pytest.mark.parametrize(
    ("name", "answer", "arrivals", "ending", "longest_gap_s"),
    [
        ("vllm_preempted_5", ("chat", 200), 679, "closed", 5.034),
        ("vllm_enginedeath_6", ("chat", 200), 339, "closed", 6.402),
        ("vllm_chat_client_abort", ("chat", 200), 20, "client_abort", 0.016),
        ("vllm_404_model", ("chat", 404), 1, "closed", 0.0),
        ("vllm_completions", ("text_completion", 200), 42, "closed", 0.016),
        ("vllm_responses", ("responses", 200), 37, "closed", 0.03),
    ],
)
def test_a_recording_of_a_real_server_is_read_from_its_file(
    name: str, answer: tuple[str, int], arrivals: int, ending: str, longest_gap_s: float
) -> None:
    """Operation, status, number of instants, ending and longest silence are those of the file."""
    (recording,) = read_recordings([RECORDINGS / "streams" / f"{name}.jsonl"])
    assert recording.name == name
    assert (recording.operation, recording.status) == answer
    assert len(recording.arrivals) == arrivals
    assert recording.ending == ending
    assert round(recording.longest_gap_s, 3) == longest_gap_s


def test_an_answer_without_a_last_newline_keeps_it_out() -> None:
    """`eof_no_newline` marks bytes that ended without a line break, and they stay that way."""
    text = "\n".join([REQUEST, ANSWER, '{"t": 0.2, "line": "{}", "eof_no_newline": true}'])
    recording = parse_stream(text, name="one", source="one.jsonl")
    assert recording.arrivals == (Arrival(0.2, b"{}"),)
    assert recording.ending == "unknown"


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "x.jsonl is empty; record it again, or leave it out"),
        ([REQUEST], "x.jsonl, line 1: nothing follows the request; line 2 must hold status and headers"),
        (
            [REQUEST, ANSWER, "data: {}"],
            "x.jsonl, line 3: not JSON (Expecting value); each line is one JSON object: repair or delete it",
        ),
        ([REQUEST, "[1]"], "x.jsonl, line 2: each line must be one JSON object, got [1]"),
        (["{}", ANSWER], "x.jsonl, line 1: `request` must be an object, got nothing"),
        (
            [REQUEST.replace("chat/completions", "embeddings"), ANSWER],
            f"x.jsonl, line 1: it asked for /v1/embeddings, which cannot be replayed; only {REPLAYABLE} can",
        ),
        ([REQUEST.replace('"tiny"', "7"), ANSWER], "x.jsonl, line 1: `model` must be a string, got 7"),
        (
            [REQUEST, ANSWER.replace("200", "20")],
            "x.jsonl, line 2: `status` must be an HTTP status from 200 to 599, got 20",
        ),
        (
            [REQUEST, ANSWER, '{"t": "1", "line": ""}'],
            'x.jsonl, line 3: `t` must be a number of seconds, got "1"',
        ),
        (
            [REQUEST, ANSWER, '{"t": NaN, "line": ""}'],
            "x.jsonl, line 3: `t` must be a number of seconds, got NaN",
        ),
        (
            [REQUEST, ANSWER, '{"t": 0.05, "line": ""}'],
            "x.jsonl, line 3: `t` is 0.05, before 0.1; times must never go backwards",
        ),
        ([REQUEST, ANSWER, '{"t": 0.2}'], "x.jsonl, line 3: `line` must be a string, got nothing"),
        (
            [REQUEST, ANSWER, '{"t": 0.2, "lines": ""}'],
            "x.jsonl, line 3: unknown field `lines`; only `eof_no_newline`, `line`, `t` can stand here",
        ),
        (
            [REQUEST, ANSWER, '{"t": 0.2, "event": "lunch"}'],
            "x.jsonl, line 3: unknown event `lunch`; only `closed` and `client_abort` can stand here",
        ),
        (
            [REQUEST, ANSWER, '{"t": 0.2, "event": "closed"}', '{"t": 0.3, "line": ""}'],
            "x.jsonl, line 4: more output after the end of the answer; delete what follows the end",
        ),
    ],
)
def test_a_malformed_recording_is_refused_with_file_line_and_remedy(lines: list[str], complaint: str) -> None:
    """A bad recording raises one error whose message says where and what to do."""
    with pytest.raises(RecordingError) as refused:
        parse_stream("\n".join(lines), name="x", source="x.jsonl")
    assert str(refused.value) == complaint


def test_a_load_becomes_one_recording_a_stream_in_the_dialect_of_vllm() -> None:
    """Arrivals count from the stream's own start; role, words, finish, usage and end mark are the wire's."""
    (recording,) = parse_load(json.dumps(LOAD), name="busy", source="busy.jsonl")
    head = '{"id":"chatcmpl-busy-3","object":"chat.completion.chunk","created":0,"model":"busy","choices":'
    choice = '[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}'
    role = head + choice % ('{"role":"assistant","content":""}', "null")
    so = head + choice % ('{"content":"so "}', "null")
    the = head + choice % ('{"content":"the "}', "null")
    finish = head + choice % ("{}", '"length"')
    usage = head + '[],"usage":{"prompt_tokens":49,"total_tokens":51,"completion_tokens":2}}'
    assert recording == Recording(
        name="busy-3",
        operation="chat",
        model="busy",
        server="",
        status=200,
        headers=(("content-type", "text/event-stream; charset=utf-8"),),
        headers_at_s=0.0,
        arrivals=(
            Arrival(0.5, f"data: {role}\n\ndata: {so}\n\n".encode()),
            Arrival(3.0, f"data: {the}\n\ndata: {finish}\n\ndata: {usage}\n\ndata: [DONE]\n\n".encode()),
        ),
        ended_at_s=3.5,
        ending="closed",
    )


def test_a_stream_of_a_load_without_a_finish_reason_is_a_cut_stream() -> None:
    """Nothing is made up for a stream that never finished: no reason, no usage, no end mark."""
    (recording,) = parse_load(json.dumps({**LOAD, "finish": None}), name="busy", source="busy.jsonl")
    assert recording.arrivals[-1].data.endswith(b'"finish_reason":null}]}\n\n')


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"times": []},
            "`times` must list the arrival of every content chunk; leave out a stream that has none",
        ),
        ({"times": [2.0, 1.5]}, "`times` is 1.5, before 2.0; times must never go backwards"),
        ({"start": 2.0}, "`times` is 1.5, before 2.0; times must never go backwards"),
        ({"end": 3.0}, "`end` is 3.0, before 4.0; times must never go backwards"),
        ({"i": -1}, "`i` must hold whole numbers from 0 up"),
        ({"usage": [49]}, "`usage` must be [prompt tokens, completion tokens]"),
        ({"usage": [49, 1.5]}, "`usage` must hold whole numbers from 0 up"),
    ],
)
def test_a_malformed_load_is_refused_with_file_line_and_remedy(
    changes: dict[str, object], complaint: str
) -> None:
    """A bad load raises one error whose message says where and what is wrong."""
    with pytest.raises(RecordingError) as refused:
        parse_load(json.dumps({**LOAD, **changes}), name="busy", source="busy.jsonl")
    assert str(refused.value) == f"busy.jsonl, line 1: {complaint}"


def test_the_overload_keeps_the_recorded_silences() -> None:
    """The eight streams of the recorded overload fall silent for as long as they did."""
    streams = read_recordings([RECORDINGS / "load" / "over8.jsonl"])
    assert [(stream.name, round(stream.longest_gap_s, 3)) for stream in streams] == [
        ("over8-0", 0.126),
        ("over8-1", 0.748),
        ("over8-2", 0.749),
        ("over8-3", 0.746),
        ("over8-4", 2.564),
        ("over8-5", 4.94),
        ("over8-6", 7.644),
        ("over8-7", 8.114),
    ]


def test_a_folder_is_read_at_any_depth_and_no_file_twice() -> None:
    """Thirty streams and three loads of eight, though one file is named a second time."""
    twice = RECORDINGS / "streams" / "vllm_preempted_5.jsonl"
    assert len(read_recordings([RECORDINGS, twice])) == 30 + 3 * 8


def test_what_comes_with_the_library_is_what_the_tests_use() -> None:
    """The packaged recordings are named here, and are byte for byte those of the tests."""
    assert [recording.name for recording in packaged_recordings()] == [
        "llamacpp_kv_overflow_0",
        *(f"over8-{i}" for i in range(8)),
        "transformers_chat",
        "vllm_chat_plain",
        "vllm_chat_tools_required",
        "vllm_enginedeath_6",
        "vllm_preempted_5",
        "vllm_responses",
    ]
    for packaged in PACKAGED.glob("*.jsonl"):
        (ours,) = RECORDINGS.rglob(packaged.name)
        assert packaged.read_bytes() == ours.read_bytes()


def test_what_cannot_be_read_is_explained(tmp_path: Path) -> None:
    """A missing path, an empty folder, a file of other bytes and a name used twice each get one sentence."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.jsonl").write_text(f"{REQUEST}\n{ANSWER}\n")
    complaints = {
        "missing": f"there is no file or folder {tmp_path}/missing; check the path",
        "empty": f"{tmp_path}/empty holds no recording; recordings are files that end in .jsonl",
        "bytes.jsonl": f"{tmp_path}/bytes.jsonl is not text in UTF-8; recordings are files of JSON lines",
        "a": f"two recordings are called one: {tmp_path}/b/one.jsonl and {tmp_path}/a/one.jsonl; rename one",
    }
    for path, complaint in complaints.items():
        with pytest.raises(RecordingError) as refused:
            read_recordings([tmp_path / "b", tmp_path / path])
        assert str(refused.value) == complaint
