r"""Size and load time of the HTML report: as a single file, and as the folder of --cep-report-dir.

The reports show 20, 200 and 2,000 photographs of 1,024 by 1,024 pixels, ten in each case: five
chains of a photograph, a text and a photograph, in cases that all regressed. No two photographs are
equal. They are noise with a falling spectrum whose thumbnails take 12 KB; 11 pictures that
scikit-learn, scikit-image and gradio ship take 3 to 14 KB, 7 KB in the median.

A second table has reports of 12 cases with 20, 200 and 2,000 samples each and the same 72
photographs: what grows with the samples are the plots of paired differences and the tables below.

Load time is what Chromium reports from the start of the navigation to the end of the load event,
with all images of a single file in the page; in a folder it loads images when they are seen.

    OMP_NUM_THREADS=1 python -m benchmarks.report_page
    OMP_NUM_THREADS=1 python -m benchmarks.report_page --photographs 20 --loads 3
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

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

_CLOCK = """<script>
addEventListener("load", () => setTimeout(() => {
  document.title = `loaded ${performance.getEntriesByType("navigation")[0].loadEventEnd}`;
}));
</script>"""

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


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


def load_seconds(page: Path, loads: int) -> float:
    """Median time in which Chromium loads a page, in seconds."""
    text = _POLICY.sub("", page.read_text(encoding="utf-8"))
    timed = page.with_name("timed.html")
    timed.write_text(text.replace("</body>", f"{_CLOCK}</body>"), encoding="utf-8")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        msg = "Chromium is needed on PATH"
        raise SystemExit(msg)
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--timeout=60000"]
    seconds = []
    for _ in range(loads):
        done = subprocess.run(
            [*command, "--dump-dom", timed.as_uri()], check=True, capture_output=True, text=True
        )
        match = re.search(r"<title>loaded ([0-9.]+)", done.stdout)
        assert match is not None
        seconds.append(float(match[1]) / 1000)
    timed.unlink()
    return statistics.median(seconds)


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
        rows.append(_row(photographs, "single file", size, 0, written, load_seconds(single, loads)))
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
            _row(photographs, "folder", size, thumbnails, written, load_seconds(page, loads))
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
        size, loaded = page.stat().st_size, load_seconds(page, loads)
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
    parser.add_argument("--photographs", type=int, nargs="+", default=[20, 200, 2000])
    parser.add_argument("--samples", type=int, nargs="+", default=[20, 200, 2000])
    parser.add_argument("--loads", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    print("| photographs | page | size | thumbnails beside | written in | loaded in |")
    print("|---:|---|---:|---:|---:|---:|")
    for photographs in arguments.photographs:
        print("\n".join(measure(photographs, arguments.loads)), flush=True)
    print("\n| samples of each case | size | written in | loaded in |")
    print("|---:|---:|---:|---:|")
    for samples in arguments.samples:
        print(measure_samples(samples, arguments.loads), flush=True)


if __name__ == "__main__":
    main()
