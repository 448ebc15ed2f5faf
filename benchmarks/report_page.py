r"""Size, nodes and load time of the HTML report: of suites of this repository, and of many images.

The first table has the reports of two runs that fail: the README's example, `suites/instrument`
with `shapes:?miss=0.1`, and `suites/shapes` with a stale projector. Their pictures are small ones
that the page enlarges. Nodes are what Chromium counts after loading, with those that it makes for
pictures that are shown several times: few in a page that closes its tags.

The second table has reports as a single file, and as the folder of --cep-report-dir. They show 20,
200 and 2,000 photographs of 1,024 by 1,024 pixels, ten in each case: five chains of a photograph, a
text and a photograph, in cases that all regressed. No two photographs are equal. They are noise
with a falling spectrum whose thumbnails take 12 KB; 11 pictures that scikit-learn, scikit-image and
gradio ship take 3 to 14 KB, 7 KB in the median.

A third table has reports of 12 cases with 20, 200 and 2,000 samples each and the same 72
photographs: what grows with the samples are the plots of paired differences and the tables below.

Load time is what Chromium reports from the start of the navigation to the end of the load event,
with all images of a single file in the page; in a folder it loads images when they are seen.

    OMP_NUM_THREADS=1 python -m benchmarks.report_page
    OMP_NUM_THREADS=1 python -m benchmarks.report_page --photographs 20 --loads 3
    OMP_NUM_THREADS=1 python -m benchmarks.report_page --photographs --samples --pages report.html
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from benchmarks.whole_runs import machine
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.gate.baseline import FORMAT, Baseline
from pytest_cepbench.report import CaseResult, ChainShown, LinkShown
from pytest_cepbench.report.html_page import html_page
from pytest_cepbench.report.page_folder import write_page_folder
from pytest_cepbench.report.writers import RunFacts

SIDE = 1024

_PER_CASE = 10

_SAMPLED_CASES = 12  # of the reports with many samples

_PATTERNS = 8  # photographs are these, shifted

_STEEPNESS = 1.35
"""Exponent of the spectrum: thumbnails take 12 KB, as those of detailed photographs."""

_COLORFULNESS = 0.3  # of the brightness; what is independent in the colors

_CAPTION = "a small dog lies on a red sofa beside a window, with two cushions and a blue blanket"

_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"

_PATIENCE = 300_000  # milliseconds until a page is given up


class Loaded(NamedTuple):
    """Of a page: the median time to the end of its load event in seconds, and Chromium's nodes."""

    seconds: float
    nodes: int


def patterns() -> list[npt.NDArray[np.uint8]]:
    """Images of noise, of which all photographs are made."""
    draw = np.random.default_rng(0)
    frequencies = np.fft.fftfreq(SIDE)
    distance = np.hypot(frequencies[:, None], frequencies[None, :])
    distance[0, 0] = 1.0
    images = []
    for _ in range(_PATTERNS):
        noise = draw.standard_normal((SIDE, SIDE, 4))
        channels = noise[:, :, :1] + _COLORFULNESS * noise[:, :, 1:]
        spectrum = np.fft.fft2(channels, axes=(0, 1))
        values = np.real(np.fft.ifft2(spectrum / distance[:, :, None] ** _STEEPNESS, axes=(0, 1)))
        low, high = np.percentile(values, (1, 99))
        images.append((255 * np.clip((values - low) / (high - low), 0, 1)).astype(np.uint8))
    return images


def photograph(number: int, images: list[npt.NDArray[np.uint8]]) -> ImageArtifact:
    """One of any number of different photographs."""
    shift = 1 + number // len(images)
    return ImageArtifact(np.roll(images[number % len(images)], (shift, 3 * shift), (0, 1)))


def cases(photographs: int) -> list[CaseResult]:
    """Regressed cases whose chains show that many photographs; a digest is the number of one."""
    return [_case(first) for first in range(0, photographs, _PER_CASE)]


def sampled_cases(samples: int) -> list[CaseResult]:
    """Regressed cases of so many samples, of which each shows three."""
    draw = np.random.default_rng(0)
    results = []
    for number in range(_SAMPLED_CASES):
        case = _case(number * _PER_CASE)
        scores = {f"category/{k:05d}.png": round(float(draw.uniform()), 6) for k in range(samples)}
        measured = Baseline(
            format=FORMAT,
            case=f"photographs/{case.part}/gc",
            metric="GC@1",
            value=0.4,
            n=samples,
            higher_is_better=True,
            model={},
            identity={},
            scores={"category": scores},
        )
        changes = {name: round(score - 0.9, 6) for name, score in scores.items()}
        results.append(
            replace(case, n=samples, chains=case.chains[:3], measured=measured, differences=changes)
        )
    return results


def _case(first: int) -> CaseResult:
    chains = [
        ChainShown(
            f"sample-{number:05d}",
            0.4,
            0.9,
            [
                LinkShown(image=str(number)),
                LinkShown(text=_CAPTION),
                LinkShown(image=str(number + 1), similarity=0.4),
            ],
        )
        for number in range(first, first + _PER_CASE, 2)
    ]
    return CaseResult(
        nodeid=f"test_x.py::test_drift[{first}]",
        suite="photographs",
        part=f"category-{first // _PER_CASE}",
        metric="gc",
        label="GC@1",
        verdict="regressed",
        tolerance=0.01,
        value=0.4,
        baseline=0.9,
        difference=-0.5,
        low=-0.6,
        high=-0.4,
        n=25,
        curve=[0.4],
        chains=chains,
    )


def load_page(page: Path, loads: int) -> Loaded:
    """A page in Chromium, loaded so often."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("Chromium is needed on PATH")
    seconds, nodes = [], 0
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(loads):
            tab = browser.new_page()
            tab.goto(page.absolute().as_uri(), timeout=_PATIENCE)
            seconds.append(tab.evaluate(_LOADED) / 1000)
            session = tab.context.new_cdp_session(tab)
            session.send("Performance.enable")
            metrics = session.send("Performance.getMetrics")["metrics"]
            nodes = next(int(each["value"]) for each in metrics if each["name"] == "Nodes")
            tab.close()
        browser.close()
    return Loaded(statistics.median(seconds), nodes)


def failing_pages(folder: Path) -> Iterator[Path]:
    """The pages of the two runs that fail; their results are computed first, in some minutes."""
    stale, root = folder / "stale", Path(__file__).resolve().parents[1]
    made = ["reference/regress.py", "stale-projector", "--out", str(stale)]
    of = "reference/checkpoints/describer-step2000"
    subprocess.run([sys.executable, *made, "--of", of], cwd=root, check=True)
    for suite, model in (("instrument", "shapes:?miss=0.1"), ("shapes", str(stale))):
        report = folder / f"{suite}.json"
        options = [f"--model={model}", f"--cep-store={folder / 'store'}", f"--cep-report={report}"]
        command = [sys.executable, "-m", "pytest", f"suites/{suite}", *options, "-qq"]
        subprocess.run(
            [*command, "--cep-history=off", "-p", "no:cacheprovider"],
            cwd=root, check=False, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        yield report.with_suffix(".html")


def measure_page(page: Path, loads: int) -> str:
    """A row for a page that is there."""
    loaded, size = load_page(page, loads), page.stat().st_size
    return f"| {page.stem} | {size / 1e6:.2f} MB | {loaded.nodes:,} | {loaded.seconds:.2f} s |"


def measure(photographs: int, loads: int) -> list[str]:
    """A row for the single file, and one for the folder."""
    images = patterns()
    results, facts = cases(photographs), RunFacts("failed", "0", [], [])

    def stored(digest: str) -> ImageArtifact:
        return photograph(int(digest), images)

    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        single = folder / "report.html"
        started = time.perf_counter()
        single.write_text(html_page(facts, results, stored), encoding="utf-8")
        written = time.perf_counter() - started
        size = single.stat().st_size
        rows.append(
            _row(photographs, "single file", size, 0, written, load_page(single, loads).seconds)
        )
        files = [folder / f"{number}.png" for number in range(_PATTERNS)]
        for number, path in enumerate(files):
            photograph(number, images).to_pil().save(path)
        started = time.perf_counter()
        page = write_page_folder(
            folder / "page", facts, results, stored, lambda digest: files[int(digest) % _PATTERNS]
        )
        written = time.perf_counter() - started
        thumbnails = sum(path.stat().st_size for path in page.parent.glob("images/*.webp"))
        size = page.stat().st_size
        rows.append(
            _row(photographs, "folder", size, thumbnails, written, load_page(page, loads).seconds)
        )
    return rows


def measure_samples(samples: int, loads: int) -> str:
    """A row for the single file of cases of so many samples."""
    images, facts = patterns(), RunFacts("failed", "0", [], [])
    with tempfile.TemporaryDirectory() as temporary:
        page = Path(temporary) / "report.html"
        started = time.perf_counter()
        text = html_page(
            facts, sampled_cases(samples), lambda digest: photograph(int(digest), images)
        )
        page.write_text(text, encoding="utf-8")
        written = time.perf_counter() - started
        size, loaded = page.stat().st_size, load_page(page, loads).seconds
    return f"| {samples:,} | {size / 1e6:.2f} MB | {written:.1f} s | {loaded:.2f} s |"


def _row(
    photographs: int, kind: str, size: int, thumbnails: int, written: float, loaded: float
) -> str:
    beside = f"{thumbnails / 1e6:.2f} MB" if thumbnails else "-"
    return (
        f"| {photographs:,} | {kind} | {size / 1e6:.2f} MB | {beside} | {written:.1f} s "
        f"| {loaded:.2f} s |"
    )


def main() -> None:
    """Print the tables of benchmarks/results/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=Path, nargs="*", help="pages to load in place of two runs")
    parser.add_argument("--photographs", type=int, nargs="*", default=[20, 200, 2000])
    parser.add_argument("--samples", type=int, nargs="*", default=[20, 200, 2000])
    parser.add_argument("--loads", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    print("| page | size | nodes | loaded in |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as temporary:
        pages = arguments.pages
        for page in failing_pages(Path(temporary)) if pages is None else pages:
            print(measure_page(page, arguments.loads), flush=True)
    print("\n| photographs | page | size | thumbnails beside | written in | loaded in |")
    print("|---:|---|---:|---:|---:|---:|")
    for photographs in arguments.photographs:
        print("\n".join(measure(photographs, arguments.loads)), flush=True)
    print("\n| samples of each case | size | written in | loaded in |")
    print("|---:|---:|---:|---:|")
    for samples in arguments.samples:
        print(measure_samples(samples, arguments.loads), flush=True)


if __name__ == "__main__":
    main()
