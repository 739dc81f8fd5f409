import threading
import time
from urllib.parse import urlsplit

import pytest
from openai import OpenAI

from midstream.lab.library import read_recordings
from midstream.lab.replay import replayer
from midstream.lab.server import serve
from support.paths import RECORDINGS

FROZEN = read_recordings([RECORDINGS / "streams" / "vllm_preempted_5.jsonl"])


def test_leaving_the_server_cuts_its_open_streams(caplog: pytest.LogCaptureFixture) -> None:
    """The block ends long before the recording would; no thread, no log and no taken port are left."""
    threads = threading.enumerate()
    with serve(replayer(FROZEN)) as url:
        client = OpenAI(base_url=url, api_key="none")
        stream = client.chat.completions.create(model="tiny", messages=[], stream=True)
        begun = time.monotonic()
    assert time.monotonic() - begun < 3
    assert threading.enumerate() == threads
    assert caplog.records == []
    # Older clients let the transport's own error through; either speaks of the connection.
    with pytest.raises(Exception, match=r"[Cc]onnection"):
        list(stream)
    client.close()
    with serve(replayer(FROZEN), port=urlsplit(url).port or 0) as again:
        assert again == url


def test_a_port_in_use_is_the_callers_error() -> None:
    """The address is taken before anything is started, so its error reaches the caller."""
    with serve(replayer(FROZEN)) as url:
        port = urlsplit(url).port or 0
        with pytest.raises(OSError, match="in use"), serve(replayer(FROZEN), port=port):
            pass
