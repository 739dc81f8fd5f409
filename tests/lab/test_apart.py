from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from openai import OpenAI

from midstream.lab.apart import serve_apart
from midstream.lab.library import read_recordings
from midstream.lab.replay import replayer
from support.paths import RECORDINGS

STREAMS = RECORDINGS / "streams"
PLAIN = read_recordings([STREAMS / "vllm_chat_plain.jsonl"])


def no_app() -> NoReturn:
    """Fail to make an application."""
    sys.stderr.write("there is no application\n")
    raise SystemExit(1)


def test_another_process_serves_for_as_long_as_the_block_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real client streams from it; what lies in the working folder is never imported."""
    (tmp_path / "typing.py").write_text("raise SystemExit('imported from the working folder')")
    monkeypatch.chdir(tmp_path)
    with (
        serve_apart(partial(replayer, PLAIN, speed=20)) as url,
        OpenAI(base_url=url, api_key="none") as client,
    ):
        stream = client.chat.completions.create(model="tiny", messages=[], stream=True)
        assert len(list(stream)) == 40
    with (
        OpenAI(base_url=url, api_key="none", max_retries=0) as client,
        pytest.raises(Exception, match=r"[Cc]onnection"),
    ):
        client.models.list()


def test_a_server_that_cannot_be_made_is_the_callers_error(capfd: pytest.CaptureFixture[str]) -> None:
    """The block is not entered; what the process had to say is on standard error."""
    with pytest.raises(ChildProcessError, match="ended before it could serve"), serve_apart(no_app):
        pass
    assert capfd.readouterr().err == "there is no application\n"
