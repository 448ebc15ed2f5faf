r"""Listing a data set of many rows in tables: time, and memory over a listing of few rows.

Parquet shards of tiny images in five categories, and processes that load the data set as a suite
does, 25 samples of each category, read their images, and tell their peak of resident memory.

    python -m benchmarks.table_listing
    python -m benchmarks.table_listing --rows 10000 1000000 --repeats 3
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from benchmarks.whole_runs import machine

SAMPLES = 25
CATEGORIES = 5
_SHARD = 250_000
_GROUP = 1_000
_CHILD = """
import json, resource, sys, time
from pathlib import Path
from pytest_cepbench.suites import load_data, load_suite
import pyarrow.parquet, huggingface_hub
suite, most = load_suite(Path(sys.argv[1])), int(sys.argv[3]) or None
started, cpu = time.perf_counter(), time.process_time()
dataset = load_data(suite, {"folder": Path(sys.argv[2])}, most)
listed, cpu = time.perf_counter() - started, time.process_time() - cpu
for sample in dataset.samples[:1000]:
    sample.image.load()
read = time.perf_counter() - started - listed
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
figures = {"samples": len(dataset.samples), "s": listed, "cpu_s": cpu, "images_s": read}
print(json.dumps({**figures, "MiB": peak}))
"""

_SUITE = """name = "listing"
version = 1
[data]
loader = "folder"
[prompts]
describe = "d"
[metrics.gc]
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for rows in options.rows:
            write_shards(home / str(rows), rows)
            runs = [measure(home, home / str(rows), SAMPLES) for _ in range(options.repeats)]
            middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            print(
                f"{rows:>10,} rows: {middle['samples']:.0f} samples listed in {middle['s']:.2f} s "
                f"({middle['cpu_s']:.2f} s of one core), their images read in "
                f"{middle['images_s']:.2f} s, peak {middle['MiB']:.0f} MiB"
            )


def write_shards(folder: Path, rows: int) -> None:
    """A data set of tiny images, each row with an id and a category."""
    folder.mkdir(parents=True)
    stream = io.BytesIO()
    Image.new("RGB", (1, 1)).save(stream, "PNG")
    cell = {"bytes": stream.getvalue(), "path": None}
    shards = -(-rows // _SHARD)
    for shard in range(shards):
        numbers = range(shard * _SHARD, min(rows, (shard + 1) * _SHARD))
        columns = {
            "id": [f"sample-{number:07}" for number in numbers],
            "category": [f"c{number % CATEGORIES}" for number in numbers],
            "image": [cell] * len(numbers),
        }
        path = folder / f"train-{shard:05}-of-{shards:05}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=_GROUP)


def measure(home: Path, folder: Path, most: int) -> dict[str, float]:
    """What a process of its own takes. most: samples of each category; 0 for all of them."""
    suite = home / "suite.toml"
    suite.write_text(_SUITE)
    result = subprocess.run(
        [sys.executable, "-c", _CHILD, str(suite), str(folder), str(most)],
        capture_output=True,
        text=True,
        check=True,
    )
    values: dict[str, float] = json.loads(result.stdout)
    return values


if __name__ == "__main__":
    main()
