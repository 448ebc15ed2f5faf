"""Which metric sees what: power at equal false alarm over kinds of damage, and its price in calls.

    # the page and the figures: half an hour on two cores
    OMP_NUM_THREADS=1 python benchmarks/sensitivity.py --jobs 2 --write
    # a few samples of the rule-based models, in seconds
    OMP_NUM_THREADS=1 python benchmarks/sensitivity.py --quick
    # page from the JSON
    python benchmarks/sensitivity.py --read --write

Three worlds: the instrument (rule-based models, of which one has a knob turned up), the arena
(answers of a rule-based interleaver before rule-based judges) and the reference models (the best
describer with the thirteen damages of `reference/regress.py`, and earlier steps). Undamaged models
are played at several seeds; the drops between these runs say which drop alarms in 5 % of them. Then
the damaged models are played at other seeds, and the share that alarms is counted, from few samples
to many.

Prints Markdown tables. --write puts them into benchmarks/results/sensitivity.md between its marks,
and the figures into benchmarks/results/sensitivity.json. What is played is kept in the store that
pytest uses in this repository.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

if __package__ in (
    None,
    "",
):  # Run by its path, Python looks beside the script for what it imports.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gated import fill_in
from benchmarks.sensitivity_figures.figures import (
    Damaged,
    Document,
    WorldFigures,
    merged,
    metrics_of,
    read,
    sights,
    write,
)
from benchmarks.sensitivity_figures.lineups import World, arena, instrument, reference
from benchmarks.sensitivity_figures.playing import Played, Sampling, play
from benchmarks.sensitivity_figures.power import ALPHA, TARGET
from benchmarks.sensitivity_figures.suites import Setting
from benchmarks.sensitivity_figures.tables import all_tables
from pytest_cepbench.errors import CepError

_ROOT = Path(__file__).resolve().parents[1]

PAGE = _ROOT / "benchmarks" / "results" / "sensitivity.md"

PRINTED_ALONE = "-calls"
"""End of the names of tables that are printed and stand on no page."""

RESULTS = _ROOT / "benchmarks" / "results" / "sensitivity.json"

WORLDS = ("instrument", "arena", "reference")

DAMAGED_SEEDS = (10,)


def make_world(name: str, copies: Path, *, quick: bool) -> World:
    """A world at its full size, or in small. copies: folder of damaged checkpoints."""
    seeds: tuple[int, ...] = (0, 1) if quick else (0, 1, 2, 3)
    if quick:
        sampling = Sampling(4, (1, 2), 10)
    elif name == "reference":
        sampling = Sampling(8, (1, 2, 4), 40)
    else:
        sampling = Sampling(24, (1, 2, 4, 8), 40)
    if name == "reference":
        return reference(sampling, seeds, DAMAGED_SEEDS, copies)
    return {"instrument": instrument, "arena": arena}[name](sampling, seeds, DAMAGED_SEEDS)


def measure(world: World, store: Path, jobs: int, command: str) -> WorldFigures:
    """Play the world, and see which metric sees what. jobs: processes that play."""
    started = time.perf_counter()
    work = [(setting, seed) for setting in world.settings for seed in world.seeds]
    work += [
        (setting, seed)
        for damage in world.damages
        for setting in damage.settings
        for seed in world.damaged_seeds
    ]
    work = list(dict.fromkeys(work))
    played = dict(zip(work, _play_all(work, world.sampling, store, jobs), strict=True))

    def runs(settings: Sequence[Setting], seeds: Sequence[int]) -> dict[int, list[Played]]:
        return {seed: [played[setting, seed] for setting in settings] for seed in seeds}

    undamaged = runs(world.settings, world.seeds)
    refused = next((run.refused for own in undamaged.values() for run in own if run.refused), "")
    if refused:
        raise ValueError(f"{world.name}: undamaged models cannot be measured: {refused}")
    samples = {setting.name: played[setting, world.seeds[0]].samples for setting in world.settings}
    damages = []
    for damage in world.damages:
        own = runs(damage.settings, world.damaged_seeds)
        why = next((run.refused for each in own.values() for run in each if run.refused), "")
        seen = () if why else tuple(sights(world, undamaged, own, samples))
        damages.append(Damaged(damage.name, damage.about, why, seen))
    return WorldFigures(
        name=world.name,
        command=command,
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        seconds=round(time.perf_counter() - started, 1),
        samples=max(samples.values()),
        seeds=world.seeds,
        damaged_seeds=world.damaged_seeds,
        draws=world.sampling.draws,
        metrics=tuple(metrics_of(world, undamaged)),
        damages=tuple(damages),
    )


def _play_all(
    work: Sequence[tuple[Setting, int]], sampling: Sampling, store: Path, jobs: int
) -> list[Played]:
    if jobs == 1:
        return [_play(*job, sampling, store) for job in work]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_play, *zip(*work, strict=True), repeat(sampling), repeat(store)))


def _play(setting: Setting, seed: int, sampling: Sampling, store: Path) -> Played:
    started = time.perf_counter()
    played = play(setting, seed, sampling, store)
    models = ", ".join(Path(spec).name for spec in setting.roles.values())
    seconds = time.perf_counter() - started
    print(f"{setting.name}, {models}, seed {seed}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return played


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or read, print, write what was asked for; 2 where something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}; all")
    parser.add_argument("--quick", action="store_true", help="the instrument with few samples")
    parser.add_argument("--read", action="store_true", help="play nothing: take the JSON file")
    parser.add_argument("--write", action="store_true", help="write the JSON file and the page")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play; 1")
    parser.add_argument("--store", type=Path, default=_ROOT / ".cepbench" / "store")
    parser.add_argument("--copies", type=Path, default=_ROOT / ".cepbench" / "damaged")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures are kept")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.worlds if name not in WORLDS]
    if unknown:
        parser.error(f"no world {unknown[0]!r}; there are {', '.join(WORLDS)}")
    if options.jobs < 1:
        parser.error(f"--jobs: at least one process has to play, got {options.jobs}")
    try:
        figures = read(options.json) if options.read else _measured(options)
    except (CepError, ValueError, OSError) as error:
        print(f"sensitivity: {error}", file=sys.stderr)
        return 2
    for name, text in all_tables(figures).items():
        print(f"## {name}\n\n{text}\n")
    if options.write:
        _write(figures, options)
    return 0


def _measured(options: argparse.Namespace) -> Document:
    names = options.worlds or (("instrument",) if options.quick else WORLDS)
    new = []
    for name in names:
        world = make_world(name, options.copies, quick=options.quick)
        # Where things are kept decides no number, and differs between machines.
        flags = ["--quick"] if options.quick else []
        command = shlex.join(["python", "benchmarks/sensitivity.py", name, *flags])
        new.append(measure(world, options.store, options.jobs, command))
    old = read(options.json) if options.json.exists() and options.write else None
    return Document(ALPHA, TARGET, tuple(merged(old, new)))


def _write(figures: Document, options: argparse.Namespace) -> None:
    """The page belongs to the shipped figures: figures kept elsewhere do not change it."""
    if not options.read:
        write(figures, options.json)
    if options.json.resolve() == RESULTS:
        for name, text in all_tables(figures).items():
            if not name.endswith(PRINTED_ALONE):
                fill_in(PAGE, name, text)


if __name__ == "__main__":
    sys.exit(main())
