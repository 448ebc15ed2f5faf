"""Items for people to rate, made of what runs of a suite have left in stores: no model is asked.

Which samples are drawn follows from a seed and the samples' ids alone, before a verdict is seen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from msgspec.structs import replace

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.chains import Chain, Modality
from pytest_cepbench.chains.answers.answer_plan import PieceRefs, refer_to_answer, refer_to_question
from pytest_cepbench.datasets.sample import Dataset, Sample, Seed
from pytest_cepbench.errors import DatasetError, NotInStoreError, StoreError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import Item, Part, Source, Task, option_digest
from pytest_cepbench.store import ArtifactRef, Store
from pytest_cepbench.store.answers import get_answers
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.stored_chains import stored_chains
from pytest_cepbench.suites.suite_run import sample_digest

_NAMED = 3

_FURTHER_SEED = re.compile(r" seed ([1-9][0-9]*)")


@dataclass(frozen=True)
class RatedRun:
    """A run whose outputs people rate.

    name: of its model, in tables and in the folder's sources.
    record: a case of the suite as the run measured it; of battles one with answers.
    """

    name: str
    record: Measurement

    @property
    def tested(self) -> str:
        """The roles under test, with "+" between them."""
        return self.record.model.get("role", "")

    @property
    def sample_ids(self) -> list[str]:
        """The samples that it measured, sorted."""
        return sorted({name for part in self.record.scores.values() for name in part})


def fingerprint_of(record: Measurement) -> str:
    """Digest of all of a measured model that decides its outputs; empty where that is unknown."""
    step = record.model.get("step", "")
    return digest_text(step) if step else ""


def seeds_of(record: Measurement) -> int:
    """The number of seeds of each sample in a result, as `Dataset.repeated` names them."""
    further = [
        int(match[1])
        for name, unit in record.clusters.items()
        if name.startswith(unit) and (match := _FURTHER_SEED.fullmatch(name.removeprefix(unit)))
    ]
    return 1 + max(further, default=0)


@dataclass
class RatedItems:
    """Items of a study with everything that its folder needs.

    task: of the items. suite: whose samples they are of.
    most: how many items people get; all where None.
    seed: of the choice; fewer are among more.
    items: in the order of their samples' ids.
    images: digest -> image.
    sources: which model made which option.
    population: how many items there were to draw from. probability: with which each was drawn.
    remarks: what was left out and why, a sentence each.
    """

    task: Task
    suite: str
    most: int | None = None
    seed: int = 0
    items: list[Item] = field(default_factory=list)
    images: dict[str, ImageArtifact] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    population: int = 0
    probability: float = 1.0
    remarks: list[str] = field(default_factory=list)

    def choose(self, able: Iterable[str], left_out: Mapping[str, int]) -> list[str]:
        """The samples that are drawn, by id.

        able: that could be rated. left_out: why others could not, and how many.
        Raises DatasetError where none could.
        """
        names = sorted(able)
        self.remarks += [
            f"{count} samples {why} and are left out" for why, count in left_out.items() if count
        ]
        if not names:
            why = "; ".join(self.remarks) or "the runs have no sample in common"
            raise DatasetError(f"there is nothing to rate: {why}")
        self.population = len(names)
        if self.most is None or self.most >= len(names):
            return names
        self.probability = self.most / len(names)
        ranked = sorted(names, key=lambda name: digest_text(f"rate {self.seed} {name}"))
        return sorted(ranked[: self.most])

    def add(
        self,
        sample: str,
        question: Sequence[Part],
        outputs: Sequence[tuple[RatedRun, Sequence[Part]]] = (),
    ) -> None:
        """An item of a sample; equal outputs are one option with several sources.

        outputs: what runs made of it.
        """
        named = [(run, option_digest(parts), parts) for run, parts in outputs]
        options = {digest: parts for _, digest, parts in named}
        item = make_item(self.task, question, options.values(), probability=self.probability)
        self.items.append(item)
        source = Source(item=item.item, sample=sample, suite=self.suite)
        self.sources += [
            replace(source, option=o, model=run.name, fingerprint=fingerprint_of(run.record))
            for run, o, _ in named
        ] or [source]

    def take(self, refs: PieceRefs, store: Store) -> tuple[Part, ...]:
        """The parts of a question or an answer; their images are added.

        Raises StoreError where the store has lost an image.
        """
        pieces = zip(refs.pieces, refs.inputs, strict=True)
        return tuple(
            Part(text=piece)
            if isinstance(piece, str)
            else self.take_image(digest, None if isinstance(piece, ArtifactRef) else piece, store)
            for piece, (_, digest) in pieces
        )

    def take_image(self, digest: str, source: Seed | None, store: Store) -> Part:
        """An image as a part; it is added. source: where it lies outside the store.

        Raises StoreError where the store has lost it.
        """
        if digest not in self.images:
            image = store.get_image(digest) if source is None else source.load()
            if not isinstance(image, ImageArtifact) or image.digest != digest:
                raise StoreError(
                    f"the image {digest[:16]} is not in the store {store.root} any more: measure "
                    "its model again with this store"
                )
            self.images[digest] = image
        return Part(image=digest)


def answer_items(
    made: RatedItems, dataset: Dataset, runs: Sequence[RatedRun], store: Store
) -> None:
    """Make items of the kind `pair` or `grades`: the interleaved answers of runs to a question.

    Drawn from the questions to which there are two different answers: equal answers and missing
    ones need no judge. Raises DatasetError where the data set is not that of the runs, where there
    are not two of them (or more, to grade) and where nothing is left to rate; StoreError where the
    store lacks answers.
    """
    require_runs(runs, 2, most=2 if made.task == "pair" else None)
    named = [(run, answers_of(run)) for run in runs]
    known = [set(answers) for _, answers in named]
    given = {n: {own[n] for _, own in named} for n in sorted(set.intersection(*known))}
    able = [name for name, own in given.items() if len(own - {""}) > 1]
    equal = sum(len(own) == 1 and own != {""} for own in given.values())
    left_out = {
        "are not of all runs": len(set.union(*known)) - len(given),
        "have equal answers": equal,
        "lack an answer": len(given) - len(able) - equal,
    }
    chosen = made.choose(able, left_out)
    asked = [sample for sample in dataset.samples if sample.question]
    questions = {sample.id: (sample, refer_to_question(sample, store)) for sample in asked}
    for run in runs:
        check_samples(questions, run)
    wanted = set().union(*(given[name] for name in chosen)) - {""}
    stored = load_answers(wanted, "the runs", store)
    for name in chosen:
        outputs = [
            (run, made.take(refer_to_answer(stored[answers[name]], name), store))
            for run, answers in named
            if answers[name]
        ]
        made.add(name, made.take(questions[name][1], store), outputs)


def described_images(made: RatedItems, dataset: Dataset) -> None:
    """Make items of the kind `describe`: the images of a data set. Raises DatasetError for none."""
    images = {sample.id: sample.image for sample in dataset.samples if sample.image is not None}
    chosen = made.choose(images, {"have no image": len(dataset.samples) - len(images)})
    for name in chosen:
        image = images[name].load()
        if image.digest not in made.images:  # one image is one item, whatever samples show it
            made.images[image.digest] = image
            made.add(name, [Part(image=image.digest)])
    if len(made.images) < len(chosen):
        made.remarks.append(f"{len(chosen) - len(made.images)} samples show the image of another")


def require_runs(runs: Sequence[RatedRun], least: int, most: int | None = None) -> None:
    """Raise DatasetError for another number of runs, and for two of the same name."""
    if len(runs) < least or (most is not None and len(runs) > most):
        wanted = f"{least} runs" if most == least else f"at least {least} runs"
        raise DatasetError(
            f"{wanted} are compared here, got {len(runs)}: give --report REPORT for each"
        )
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise DatasetError(f"two runs are of {name!r}: name them, --report NAME=REPORT")


def check_samples(questions: Mapping[str, tuple[Sample, PieceRefs]], run: RatedRun) -> None:
    """Raise DatasetError where the samples are not those that the run measured.

    questions: id -> sample, and its question.
    """
    ids = run.sample_ids
    absent = [name for name in ids if name not in questions]
    known = [questions[name] for name in ids if name in questions]
    digests = {sample.id: question.digest for sample, question in known}
    now = sample_digest([sample for sample, _ in known], [digests])
    if absent or now != run.record.identity.get("samples"):
        which = f" ({', '.join(absent[:_NAMED])} are gone)" if absent else ""
        raise DatasetError(
            f"the samples of the suite are not those that the run of {run.name!r} measured{which}: "
            "give --data as in that run, or run it again"
        )


def load_answers(digests: Collection[str], whose: str, store: Store) -> dict[str, Answer]:
    """Answers by digest. whose: the runs that named them, in words.

    Raises StoreError where the store lacks some.
    """
    stored = get_answers(store, digests)
    if missing := set(digests) - stored.keys():
        raise StoreError(
            f"{len(missing)} of {len(digests)} answers of {whose} are not in the store "
            f"{store.root}: use the store of {whose} (--store), or bring them with "
            "`cepbench store import`"
        )
    return stored


def answers_of(run: RatedRun) -> Mapping[str, str]:
    """Sample -> digest of its answer, empty for none. Raises DatasetError for a run without any."""
    if not run.record.answers:
        raise DatasetError(
            f"the run of {run.name!r} names no answers: a run of a suite with a win rate against "
            "accepted answers is needed"
        )
    return run.record.answers


# -- what runs made of the samples of a suite of chains -------------------------------------------

_DECISIVE = ("suite", "samples", "chain", "describe prompt", "generate prompt", "descriptions")
"""Fields of an identity that decide the artifacts of chains, beside the models."""

_Outputs = dict[str, list[tuple[RatedRun, Chain]]]


def chain_grades(
    made: RatedItems, run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], store: Store
) -> None:
    """Make items of the kind `grades`: for each start of the suite, what all runs made of a sample.

    Captions of an image are graded as understanding, images of a text as generation (SDP, 3.3). The
    draw is of samples, so that both sections of a sample are there.
    Only what the models under test have made is graded.
    run: of the suite; its own models are neither loaded nor asked. cases: of the suite.
    Raises DatasetError where the suite is not as it was measured, where fewer than two runs are
    given and where nothing is left to rate; what reading chains raises.
    """
    require_runs(runs, 2)
    if any(plan.makes != "image" for plan in run.suite.plans.values()):
        raise DatasetError(
            f"people rate texts and images: the chains of suite {run.suite.name!r} are of sounds"
        )
    starts = [start for start in run.suite.plans if _made_by_all(runs, start)]
    if not starts:
        raise DatasetError(
            f"the runs test {' and '.join(sorted({rated.tested for rated in runs}))}: outputs of "
            "describers, or of generators, are graded beside one another"
        )
    by_start = {start: _first_outputs(run, cases, runs, start) for start in starts}
    able = {name for outputs in by_start.values() for name, own in outputs.items() if _differ(own)}
    every = {name for outputs in by_start.values() for name in outputs}
    left_out = {"have fewer than two different outputs": len(every) - len(able)}
    for name in made.choose(able, left_out):
        for outputs in by_start.values():
            if _differ(own := outputs.get(name, [])):
                _add(made, name, own, store)


def caption_pairs(
    made: RatedItems, run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], store: Store
) -> None:
    """Make items of the kind `caption`: an image with the captions of two runs.

    Of more than two runs each image gets two, by digest. Equal captions are comparable without a
    vote and left out. Source: MMGenBench, C.4. Raises as `chain_grades`.
    """
    require_runs(runs, 2)
    if "image" not in run.suite.plans:
        raise DatasetError(
            f"suite {run.suite.name!r} has no chains that begin with an image: none has captions"
        )
    if not _made_by_all(runs, "image"):
        raise DatasetError(
            "captions are compared of runs that test a describer, and one of these tests none"
        )
    outputs = _first_outputs(run, cases, runs, "image")
    pairs = {}
    for name, own in outputs.items():
        if len(own) > 1:
            two = list(combinations(own, 2))
            pairs[name] = two[int(digest_text(f"captions {made.seed} {name}")[:12], 16) % len(two)]
    able = [name for name, own in pairs.items() if _differ(own)]
    left_out = {
        "lack a caption": len(outputs) - len(pairs),
        "have equal captions": len(pairs) - len(able),
    }
    for name in made.choose(able, left_out):
        _add(made, name, pairs[name], store)


def _made_by_all(runs: Sequence[RatedRun], start: Modality) -> bool:
    """Whether the first hop from a start is by the model under test in every run."""
    maker = "describer" if start == "image" else "generator"
    return all(maker in rated.tested.split("+") for rated in runs)


def _first_outputs(
    run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], start: Modality
) -> _Outputs:
    """The chains of all samples that reach generation 1, by sample and run.

    Raises DatasetError where the suite asks for something else than a run measured, NotInStoreError
    where a run has no chain at all.
    """
    samples = {sample.id: sample for sample in run.dataset.samples}
    outputs: _Outputs = {}
    for rated in runs:
        step, ids = rated.record.model.get("step", ""), rated.sample_ids
        if not step:
            raise DatasetError(
                f"the run of {rated.name!r} read chains that were made elsewhere: no store has "
                "them, and a run that makes its chains is needed"
            )
        case = next((case for case in cases if str(case.key) == rated.record.case), None)
        known = [sample for name, sample in samples.items() if name in set(ids)]
        if case is None or len(known) < len(ids):
            raise DatasetError(
                f"suite {run.suite.name!r} has other cases or samples than the run of "
                f"{rated.name!r}"
            )
        identity, measured = run.identity(case, known), rated.record.identity
        changed = [n for n in identity if n in _DECISIVE and measured.get(n) != identity[n]]
        if changed:
            raise DatasetError(
                f"suite {run.suite.name!r} is not as the run of {rated.name!r} measured it: "
                f"{', '.join(changed)} changed since"
            )
        chains = stored_chains(run, step).chains(start, ids)
        whole = {name: chain for name, chain in chains.items() if chain.has(1)}
        if not whole:
            raise NotInStoreError(
                f"no {start}-first chain of {rated.name!r} is in the store: use the store of that "
                "run (--store)"
            )
        for name, chain in whole.items():
            outputs.setdefault(name, []).append((rated, chain))
    return outputs


def _differ(own: Sequence[tuple[RatedRun, Chain]]) -> bool:
    return len({chain.links[1].digest for _, chain in own}) > 1


def _add(made: RatedItems, name: str, own: Sequence[tuple[RatedRun, Chain]], store: Store) -> None:
    def part(chain: Chain, index: int) -> Part:
        link = chain.links[index]
        if link.text is not None:
            return Part(text=link.text)
        return made.take_image(link.digest, link.source, store)

    made.add(name, [part(own[0][1], 0)], [(rated, (part(chain, 1),)) for rated, chain in own])
