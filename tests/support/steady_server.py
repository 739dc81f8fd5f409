"""A server in a process of its own that sends one chunk each interval, whatever the test's process is busy with."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def steady_server(
    interval_s: float, chunks: int, *, pause_at: int = -1, pause_s: float = 0.0
) -> Iterator[str]:
    """Give the base URL of a server whose answers pause once, before the chunk of this number."""
    arguments = [str(value) for value in (interval_s, chunks, pause_at, pause_s)]
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout is not None else None


def _chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    event = b"data: " + json.dumps(body).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


async def _serve(interval_s: float, chunks: int, pause_at: int, pause_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for number in range(chunks):
            await asyncio.sleep(interval_s + (pause_s if number == pause_at else 0.0))
            writer.write(_chunk({"content": "word "}))
        writer.write(_chunk({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - for the parent
    await server.serve_forever()


if __name__ == "__main__":
    interval, number, at, pause = sys.argv[1:]
    asyncio.run(_serve(float(interval), int(number), int(at), float(pause)))
