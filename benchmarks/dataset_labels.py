r"""How good the labels of constructed data sets are, where the truth is known.

    OMP_NUM_THREADS=1 python -m benchmarks.dataset_labels \
        --json benchmarks/results/dataset-labels.json --page benchmarks/results/dataset-labels.md
    OMP_NUM_THREADS=1 python -m benchmarks.dataset_labels --quick

Images are scenes of the embedded world, whose patterns follow from rules. The describer, `shapes:`
with its knob `mislabel`, is asked by the stages of `cepbench dataset patterns`; people are
simulated with errors of the same kind. Exit code 1 where a measured share is more than 4 standard
errors from the computed one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb, sqrt
from pathlib import Path

from benchmarks.arena_figures.tables import fill_page
from benchmarks.whole_runs import machine
from pytest_cepbench.artifacts import digest_text, read_image
from pytest_cepbench.construction.frozen_set import error_share, vote_labels
from pytest_cepbench.construction.pattern_stages import (
    Constructed,
    ConstructionModels,
    ConstructionSettings,
    construct_patterns,
)
from pytest_cepbench.construction.source_images import choose_images, members_of
from pytest_cepbench.datasets.shapes import Scene, load_shapes, sample_scene
from pytest_cepbench.datasets.shapes.samples import PATTERN_NAMES, scene_patterns
from pytest_cepbench.models.rule_based.scene_models import labelled_patterns
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool, RoleChoices
from pytest_cepbench.suites.model_options import assigned_role

_ERRORS = 4.0  # standard errors that a measured share may be off

Labels = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class World:
    """Images and their truth: digest -> scene, digest -> patterns."""

    folder: Path
    scenes: Mapping[str, Scene]
    truth: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class LabelledRun:
    """A run of the stages.

    mislabel: of the describer. named: different names that it gave; wrong_counts: the largest
    difference of a count from the truth, in images. wrong_labels: share of annotations that are
    wrong. seconds: of the whole run; again: of the same once more, from the store.
    """

    mislabel: float
    images: int
    named: int
    largest_miscount: int
    wrong_labels: float
    seconds: float
    again_seconds: float
    again_inputs: int


@dataclass(frozen=True)
class Voted:
    """Wrong final labels: measured, and computed for independent errors."""

    model_error: float
    people_error: float
    people: int
    wrong: float
    expected: float
    labels: int

    @property
    def broken(self) -> bool:
        """Whether chance does not explain the difference."""
        error = sqrt(max(self.expected * (1 - self.expected), 1e-9) / self.labels)
        return abs(self.wrong - self.expected) > _ERRORS * error


@dataclass(frozen=True)
class Sampled:
    """A chosen set. least: images of the rarest pattern in it, by the model's labels; least_true:
    by the truth.
    """

    mislabel: float
    sampling: str
    per_pattern: int
    images: int
    least: int
    least_true: int


def draw_world(folder: Path, images: int) -> World:
    """So many different scenes as files."""
    folder.mkdir()
    scenes: dict[str, Scene] = {}
    for sample in load_shapes(-(-images // 8), 11).samples[:images]:
        path = folder / f"{sample.id.replace('/', '-')}.png"
        assert sample.image is not None
        sample.image.load().to_pil().save(path)
        scenes[read_image(path).digest] = sample_scene(sample)
    return World(folder, scenes, {image: scene_patterns(s) for image, s in scenes.items()})


def construct(world: World, out: Path, mislabel: float) -> tuple[Constructed, float, int]:
    """The stages with a describer; the data set, seconds, and inputs of models."""
    spec = f"shapes:?mislabel={mislabel}" if mislabel else "shapes:"
    choices = RoleChoices(roles={"describer": spec, "writer": "shapes:"})
    started = time.perf_counter()
    with Store(out.parent / "store") as store:
        pool = ModelPool(store)
        describer, writer = (
            pool.runner(assigned_role(choices, role)) for role in ("describer", "writer")
        )
        settings = ConstructionSettings(images=world.folder, out=out)
        made = construct_patterns(settings, ConstructionModels(describer, writer), lambda _: None)
        inputs = describer.tally.inputs + writer.tally.inputs
    return made, time.perf_counter() - started, inputs


def measure_run(world: World, root: Path, mislabel: float) -> tuple[LabelledRun, Labels]:
    """Label the world; returns the figures and the model's labels."""
    out = root / f"set-{mislabel}"
    made, seconds, _ = construct(world, out, mislabel)
    _, again, inputs = construct(world, out, mislabel)
    labels = {a.image: a.patterns for a in made.annotations}
    counts = made.counts.patterns if made.counts is not None else {}
    true = {name: sum(name in own for own in world.truth.values()) for name in PATTERN_NAMES}
    figures = LabelledRun(
        mislabel=mislabel,
        images=len(world.truth),
        named=len(counts),
        largest_miscount=max(abs(counts.get(name, 0) - number) for name, number in true.items()),
        wrong_labels=error_share(labels, world.truth, PATTERN_NAMES),
        seconds=round(seconds, 2),
        again_seconds=round(again, 2),
        again_inputs=inputs,
    )
    return figures, labels


def expected_wrong(model: float, person: float, people: int) -> float:
    """Share of wrong labels after the vote, where all err independently.

    model, person: error of each. people: their number. As `vote_labels` decides: the majority, and
    that of the people where it is a tie.
    """
    total = 0.0
    for wrong_people in range(people + 1):
        among = comb(people, wrong_people) * person**wrong_people
        among *= (1 - person) ** (people - wrong_people)
        for wrong_model, chance in ((1, model), (0, 1 - model)):
            wrong = wrong_people + wrong_model
            right = 1 + people - wrong
            total += among * chance * (wrong > right or (wrong == right and wrong_model == 0))
    return total


def vote(
    world: World, labels: Labels, model_error: float, person_error: float, people: int
) -> Voted:
    """Final labels of a set that simulated people looked at."""
    final = {}
    for image, scene in world.scenes.items():
        own = [
            labelled_patterns(scene, person_error, int(digest_text(f"{person} {image}")[:8], 16))
            for person in range(people)
        ]
        final[image] = vote_labels(PATTERN_NAMES, labels[image], own).patterns
    return Voted(
        model_error,
        person_error,
        people,
        error_share(final, world.truth, PATTERN_NAMES),
        expected_wrong(model_error, person_error, people),
        len(world.truth) * len(PATTERN_NAMES),
    )


def sample(world: World, labels: Labels, mislabel: float) -> Iterator[Sampled]:
    """Chosen sets of two sizes by both ways."""
    by_image = {image: tuple(own) for image, own in labels.items() if own}
    fewest = min(map(len, members_of(by_image).values()))
    for sampling in ("quota", "bernoulli"):
        for wanted in (max(1, fewest // 4), max(1, fewest // 2)):
            chosen = choose_images(by_image, wanted, sampling, 0)
            least, least_true = (
                min(sum(name in source[image] for image in chosen) for name in PATTERN_NAMES)
                for source in (by_image, world.truth)
            )
            yield Sampled(mislabel, sampling, wanted, len(chosen), least, least_true)


def measure(*, quick: bool) -> tuple[dict[str, str], dict[str, object], bool]:
    """Tables by their place in the page, all figures, and whether votes are as computed."""
    shares = (0.0, 0.1) if quick else (0.0, 0.05, 0.1, 0.2)
    runs: list[LabelledRun] = []
    voted: list[Voted] = []
    sampled: list[Sampled] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        world = draw_world(root / "images", 80 if quick else 2000)
        for share in shares:
            run, labels = measure_run(world, root, share)
            runs.append(run)
            sampled += sample(world, labels, share)
            voted += [
                vote(world, labels, share, error, people)
                for error in ((0.05,) if quick else (0.02, 0.05, 0.1))
                for people in ((2,) if quick else (1, 2, 3))
            ]
    tables = {
        "labels": _table(
            ("mislabel", "images", "names", "largest miscount", "wrong labels", "run", "again"),
            [
                (
                    f"{r.mislabel:g}", f"{r.images:,}", str(r.named), str(r.largest_miscount),
                    f"{100 * r.wrong_labels:.2f} %", f"{r.seconds:.1f} s",
                    f"{r.again_seconds:.1f} s, {r.again_inputs} inputs",
                )
                for r in runs
            ],
        ),
        "votes": _table(
            ("model errs", "people err", "people", "wrong labels", "computed"),
            [
                (
                    f"{v.model_error:g}", f"{v.people_error:g}", str(v.people),
                    f"{100 * v.wrong:.2f} %", f"{100 * v.expected:.2f} %",
                )
                for v in voted
            ],
        ),
        "quotas": _table(
            ("mislabel", "sampling", "per pattern", "images", "least", "least by the truth"),
            [
                (
                    f"{s.mislabel:g}", s.sampling, str(s.per_pattern), f"{s.images:,}",
                    str(s.least), str(s.least_true),
                )
                for s in sampled
            ],
        ),
    }  # fmt: skip
    figures: dict[str, object] = {
        "labels": list(map(asdict, runs)),
        "votes": list(map(asdict, voted)),
        "quotas": list(map(asdict, sampled)),
    }
    broken = [v for v in voted if v.broken]
    for figure in broken:
        print(f"not as computed: {figure}", file=sys.stderr)
    return tables, figures, not broken and all(run.again_inputs == 0 for run in runs)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; exit codes as above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few images, few shares")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--page", type=Path, help="fill the tables of this page")
    options = parser.parse_args(arguments)
    about = f"{machine()}{'; --quick' if options.quick else ''}"
    tables, figures, kept = measure(quick=options.quick)
    for name, table in tables.items():
        print(f"{name}\n\n{table}")
    print(about)
    if options.json is not None:
        text = json.dumps({"machine": about, **figures}, indent=1)
        options.json.write_text(f"{text}\n", encoding="utf-8")
    if options.page is not None:
        fill_page(options.page, {"machine": f"{about}.\n", **tables})
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
