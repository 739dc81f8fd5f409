"""Makes images/report.png from real streams: `python docs/make_report_image.py`. It takes three minutes, and chromium.

Twelve users share an emulated vLLM whose KV cache is too small for them (`midstream serve`), so that answers freeze.
After a minute the server's process is stopped for a while, as if its machine had stalled: everything freezes together.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient

from midstream import monitor
from midstream.cli import main as midstream

IMAGE = Path(__file__).with_name("images") / "report.png"
MODEL = "Qwen/Qwen3-8B"
POOL = ("--num-gpu-blocks", "110")
USERS = 12
LASTS_S = 100.0
STALLS_AT_S, STALLS_S = 70.0, 8.0
SIZE = "1100,1180"


def main() -> None:
    """Run the streams, report them, and take the picture."""
    browser = shutil.which("chromium") or sys.exit("this needs chromium")
    with TemporaryDirectory() as folder:
        journal, page = Path(folder) / "streams.db", Path(folder) / "report.html"
        record(journal)
        midstream(["report", "--journal", str(journal), "--by", "team"])
        if midstream(["report", "--journal", str(journal), "--html", str(page)]):
            sys.exit("the page could not be made")
        picture(browser, page, IMAGE)


def record(journal: Path) -> None:
    """Let the users talk to the server, and keep their streams."""
    with serving() as (base_url, server):
        asyncio.run(_talk(journal, base_url, server))


@contextmanager
def serving() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the emulated server."""
    command = [
        sys.executable,
        "-c",
        "from midstream.cli import main; main()",
        "serve",
        "--model",
        MODEL,
        *POOL,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own program
        try:
            yield next(line.strip() for line in server.stdout or () if line.startswith("http")), server
        finally:
            server.terminate()


def picture(browser: str, page: Path, image: Path) -> None:
    """Take a picture of the upper part of a page."""
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={page.parent / 'browser'}", "--virtual-time-budget=9000"]
    command += [f"--window-size={SIZE}", f"--screenshot={image}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603 - our own page


async def _talk(journal: Path, base_url: str, server: subprocess.Popen[str]) -> None:
    until = time.monotonic() + LASTS_S
    async with DefaultAsyncHttpxClient(trust_env=False) as http:
        users = [asyncio.create_task(_user(n, journal, base_url, http, until)) for n in range(USERS)]
        await asyncio.sleep(STALLS_AT_S)
        server.send_signal(signal.SIGSTOP)
        await asyncio.sleep(STALLS_S)
        server.send_signal(signal.SIGCONT)
        await asyncio.gather(*users)


async def _user(n: int, journal: Path, base_url: str, http: DefaultAsyncHttpxClient, until: float) -> None:
    """Ask one thing after another; now and then, lose patience."""
    chance = random.Random(n)  # noqa: S311 - a load, not secrets
    client = monitor(
        AsyncOpenAI(base_url=base_url, api_key="none", http_client=http, max_retries=0),
        journal=journal,
        attributes={"team": ("search", "chat")[n % 2]},
    )
    await asyncio.sleep(0.4 * n)
    while time.monotonic() < until:
        length = int(min(900.0, max(20.0, chance.lognormvariate(5.4, 0.7))))
        limit = chance.choice([256, 512, 1024])
        try:
            await asyncio.wait_for(_ask(client, length, limit), chance.choice([20.0, 90.0, 90.0]))
        except (APIError, asyncio.TimeoutError) as error:
            sys.stderr.write(f"{type(error).__name__}\n")
        await asyncio.sleep(chance.expovariate(1.0))


async def _ask(client: AsyncOpenAI, length: int, limit: int) -> None:
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"tokens={length}"}],
        max_tokens=limit,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for _ in stream:
        pass


if __name__ == "__main__":
    main()
