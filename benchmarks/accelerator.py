r"""All figures of an accelerator in one command, within a number of minutes.

    python -m benchmarks.accelerator --minutes 8 --out FOLDER
    python -m benchmarks.accelerator --minutes 5 --out FOLDER --size toy --device cpu  # a rehearsal

Builds checkpoints of real architecture and size with random weights (see `benchmarks.real_size`;
7 GB on disk, removed at the end) and measures fingerprint and load time, batch growth and halving,
chains against the papers' procedure and against a bare batched loop, memory and idle time, swap
against resident. With the trained checkpoints of this repository it measures what device and
precision change, and whole runs of pytest. Each part is a process of its own with its share of the
time: one that hangs or dies is written down as such, and the others go on. Figures are written to
FOLDER/figures.jsonl as they come; the table of all is printed at the end and kept in
FOLDER/table.md.

On a machine without a network: `benchmarks/accelerator-wheels.txt` lists what is brought along.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.accelerator_figures.parts import PARTS
from benchmarks.accelerator_figures.setting import Setting, markdown_table, read_figures


def run_part(options: argparse.Namespace) -> None:
    """Measure one part, in this process."""
    deadline = time.monotonic() + options.seconds
    import torch

    torch.set_grad_enabled(False)
    device = options.device
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    setting = Setting(
        part=options.part,
        folder=options.checkpoints,
        file=options.out / "figures.jsonl",
        device=device,
        toy=options.size == "toy",
        deadline=deadline,
    )
    PARTS[options.part][0](setting)


def run_all(options: argparse.Namespace, folder: Path) -> bool:
    """Run every part in a process of its own; whether all of them ended well."""
    end = time.monotonic() + 60 * options.minutes
    well = True
    waiting = dict(PARTS)
    for name, (_, weight) in PARTS.items():
        left = end - time.monotonic()
        seconds = left * weight / sum(weight for _, weight in waiting.values())
        del waiting[name]
        print(f"{name}: {seconds:.0f} s", flush=True)
        fault = _run_process(options, folder, name, seconds)
        if fault:
            well = False
            Setting(name, folder, options.out / "figures.jsonl", "", toy=True, deadline=0).record(
                f"{name}: ended early", None, note=fault
            )
            print(f"  {fault}", flush=True)
            if name == "build":
                break
    return well


def _run_process(options: argparse.Namespace, folder: Path, name: str, seconds: float) -> str:
    """Run one part; what went wrong, or nothing."""
    command = [sys.executable, "-m", "benchmarks.accelerator", "--out", str(options.out)]
    command += ["--size", options.size, "--device", options.device, "--checkpoints", str(folder)]
    command += ["--part", name, "--seconds", f"{seconds:.1f}"]
    log = options.out / f"{name}.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(seconds + options.grace)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"not done after {seconds + options.grace:.0f} s"
    if status == 0:
        return ""
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    return f"exit status {status}: {' '.join(last)[:200]} ({log.name})"


def machine_name() -> str:
    """The device, the processor and the versions, in a line."""
    import diffusers
    import torch
    import transformers

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    return (
        f"{device}, {os.cpu_count()} cores ({platform.machine()}), torch {torch.__version__}, "
        f"transformers {transformers.__version__}, diffusers {diffusers.__version__}"
    )


def main() -> int:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=("real", "toy"), default="real")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--checkpoints", type=Path, help="build them here, and keep them")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds beyond a part's share")
    parser.add_argument("--part", choices=tuple(PARTS), help="measure this part alone")
    parser.add_argument("--seconds", type=float, default=60.0, help="of that part")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part:
        run_part(options)
        return 0
    (options.out / "figures.jsonl").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        well = run_all(options, options.checkpoints or Path(temporary))
    table = markdown_table(read_figures(options.out / "figures.jsonl"), machine_name())
    (options.out / "table.md").write_text(table)
    print(f"\n{table}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
