r"""Describing through a server: how near to what its answering time allows, and what refusals cost.

A server of its own process answers each request in a given time. 64 images are described through
`RoleRunner` into a fresh store, as a run does it: encoding, requests, reading and storing. The
ideal is the answering time times the rounds that the concurrency needs: 64 / 16 * 0.2 s = 0.8 s.

    OMP_NUM_THREADS=1 python -m benchmarks.api_describer
    OMP_NUM_THREADS=1 python -m benchmarks.api_describer --repeats 9 --json out.json

"crowded" is the same server taking so many requests at once only, and refusing the others with 429
and a Retry-After of half its answering time; its ideal is that of those places. "faulty" fails
every eighth request with 500.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.whole_runs import machine
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store

_ANSWER = (
    b'{"model":"m","choices":[{"message":{"content":"a red circle"}}],"usage":{"prompt_tokens":9}}'
)

_EVERY = 8  # of the faulty server's requests fails


@dataclass(frozen=True)
class Setting:
    """What is measured. places: requests that the server takes at once; 0 for any number.
    query: further parameters of the spec.
    """

    name: str
    side: int
    places: int = 0
    faulty: bool = False
    query: str = ""


@dataclass(frozen=True)
class Measurement:
    """Medians over the repeats.

    seconds: of all images; first: the same with loading client and model. ratio: to the ideal.
    cpu: of this process. retries: requests beside the first of each image.
    """

    name: str
    side: int
    ideal: float
    seconds: float
    ratio: float
    first: float
    cpu: float
    retries: float


SETTINGS = (
    Setting("plain", 64),
    Setting("plain", 512),
    Setting("webp", 512, query="&image_format=webp"),
    Setting("crowded", 64, places=8),
    Setting("faulty", 64, faulty=True),
)


def main() -> None:
    """Measure and print, or be the server."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--serve", nargs=3, metavar=("SECONDS", "PLACES", "FAULTY"), help=argparse.SUPPRESS
    )
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.2, help="in which the server answers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.serve:
        seconds, places, faulty = options.serve
        asyncio.run(_serve(float(seconds), int(places), faulty == "1"))
        return
    print(machine())
    print(
        f"{options.images} images, concurrency {options.concurrency}, "
        f"answers in {options.seconds} s"
    )
    print(
        f"{'server':>8}{'side':>6}{'ideal':>8}{'seconds':>9}{'ratio':>7}"
        f"{'first':>8}{'CPU':>7}{'retries':>9}"
    )
    measured = [_measure(setting, options) for setting in SETTINGS]
    for row in measured:
        print(
            f"{row.name:>8}{row.side:>6}{row.ideal:>7.2f}s{row.seconds:>8.2f}s{row.ratio:>7.2f}"
            f"{row.first:>7.2f}s{row.cpu:>6.2f}s{row.retries:>9.0f}"
        )
    if options.json:
        figures = {"machine": machine(), "found": [asdict(row) for row in measured]}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def _measure(setting: Setting, options: argparse.Namespace) -> Measurement:
    at_once = min(options.concurrency, setting.places or options.concurrency)
    ideal = -(-options.images // at_once) * options.seconds
    images = _images(options.images, setting.side)
    spent, cpu, retries = [], [], []
    with _server(setting, options.seconds) as url, tempfile.TemporaryDirectory() as folder:
        spec = (
            f"openai:m?base_url={url}&revision=1&concurrency={options.concurrency}{setting.query}"
        )
        with Store(Path(folder)) as store:
            runner = RoleRunner(
                bind(parse_spec(spec), "describer", BindContext(lambda _: "")), store
            )
            for repeat in range(
                options.repeats + 1
            ):  # each with a prompt of its own: nothing is stored
                before = runner.tally.usage
                started, busy = time.perf_counter(), time.process_time()
                steps = [
                    Step(runner.key(f"{repeat}", 0, "image", image.digest), 0, image.to_pil)
                    for image in images
                ]
                assert set(runner.ask("describe", steps, f"{repeat}")) == {"a red circle"}
                spent.append(time.perf_counter() - started)
                cpu.append(time.process_time() - busy)
                retries.append((runner.tally.usage - before).retries)
    seconds = median(spent[1:])
    return Measurement(
        setting.name,
        setting.side,
        ideal,
        seconds,
        seconds / ideal,
        spent[0],
        median(cpu[1:]),
        median(retries[1:]),
    )


def _images(count: int, side: int) -> list[ImageArtifact]:
    """Smooth pictures with some noise, which compress as photographs do."""
    random = np.random.default_rng(0)
    ramp = np.linspace(0, 200, side)
    made = []
    for number in range(count):
        smooth = (ramp[:, None, None] + ramp[None, :, None]) / 2 + np.arange(3) * 10 + number % 32
        noisy = smooth + random.normal(0, 4, (side, side, 3))
        made.append(ImageArtifact(noisy.clip(0, 255).astype(np.uint8)))
    return made


@contextmanager
def _server(setting: Setting, seconds: float) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.api_describer", "--serve"]
    arguments = [str(seconds), str(setting.places), str(int(setting.faulty))]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


async def _serve(seconds: float, places: int, faulty: bool) -> None:  # noqa: FBT001 - an option
    """A server that does nothing but wait, so that it costs next to nothing itself."""
    busy, numbers = 0, itertools.count(1)

    async def answer(method: str) -> tuple[int, str, bytes]:
        nonlocal busy
        if method == "GET":
            return 200, "", b'{"data":[{"id":"m"}]}'
        if faulty and next(numbers) % _EVERY == 0:
            return 500, "", b'{"error":{"message":"no luck"}}'
        if places and busy >= places:
            return 429, f"retry-after-ms: {seconds * 500:.0f}\r\n", b'{"error":{"message":"busy"}}'
        busy += 1
        await asyncio.sleep(seconds)
        busy -= 1
        return 200, "", _ANSWER

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            lines = head.split("\r\n")
            sizes = [
                line.split(":")[1] for line in lines if line.lower().startswith("content-length:")
            ]
            await reader.readexactly(int(sizes[0]) if sizes else 0)
            status, more, body = await answer(lines[0].split()[0])
            writer.write(
                f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n{more}"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""


if __name__ == "__main__":
    main()
