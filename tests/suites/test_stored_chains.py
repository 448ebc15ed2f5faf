"""Chains by a recorded model, and where a case lost its score: told hop by hop, or why not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.chains.steps import remember
from pytest_cepbench.datasets.shapes import (
    Degradation,
    caption,
    degrade_scene,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.errors import BaselineError
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.stored_chains import (
    Attribution,
    Hop,
    _describe_hops,
    attribute,
    stored_chains,
)
from tests.datasets.files import put_table
from tests.suites.world import SUITE, TASKS, Staged, overlapping, stage, uneven_tasks

LONG = SUITE.replace("iterations = 2", "iterations = 3")

BOTH = SUITE.replace('start = "image"\niterations = 2', 'start = "both"\ngenerations = 4')

Setter = Callable[..., Staged]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """What one test has made is read by the others; what must not be there is of its own model.

    One that spoils generations beyond its chains spoils none, by another name.
    """
    with Store(tmp_path_factory.mktemp("module") / "store") as opened:
        yield opened


@pytest.fixture
def stage_model(tmp_path: Path, store: Store) -> Setter:
    """Stages a suite with models of given roles that spoil given generations."""

    def staged(text: str, role: RoleName, at: str, mute: str = "", **roles: str) -> Staged:
        model = f"python:{__name__}:{role.title()}?at={at}" + (f"&mute={mute}" if mute else "")
        # roles: the keys are names of roles
        choices = RoleChoices(model=model, role=role, roles=roles)  # type: ignore[arg-type]
        return stage(tmp_path / "suite", text, store, choices)

    return staged


def _step(staged: Staged) -> str:
    """What a baseline remembers of the model under test."""
    return remember(staged.run.data.runner(staged.run.assignments.under_test).bound)


def _attribute(
    candidate: Staged, baseline: Staged, case: str, ids: Sequence[str] = ()
) -> Attribution:
    return attribute(candidate.run, candidate.cases[case], _step(baseline), ids)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["1", "3", "5", "1-5", "1-3-5"])
@pytest.mark.parametrize("case", ["overall-gc", "a-gc", "overall-gc_fid"])
def test_costs_of_a_describer_are_those_of_models_that_spoil_less(
    stage_model: Setter, at: str, case: str
) -> None:
    """The hybrid with the first k hops put back scores as a model that never spoiled these."""
    _check_truth(stage_model, LONG + "[metrics.gc]\n[metrics.gc_fid]\n", "describer", at, case)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["1", "3-5", "1-3-5"])
@pytest.mark.parametrize("case", ["overall-mgg", "overall-mgg-colors", "overall-s", "overall-mcd"])
def test_costs_of_a_generator_in_text_first_chains(stage_model: Setter, at: str, case: str) -> None:
    """The same for the other role, the other start, and a describer with losses of its own."""
    mgg = 'kind = "mgg"\ncolors = "detector"\n'
    text = f'{TASKS}[metrics.mgg]\n{mgg}[metrics.mgg-colors]\n{mgg}pool = "samples"\n'
    _check_truth(stage_model, f"{text}[metrics.s]\n[metrics.mcd]\n", "generator", at, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["overall-mcd", "image-to-image-mcd", "text-to-text-mcd"])
def test_costs_where_both_chains_are_played(stage_model: Setter, case: str) -> None:
    """Hops of both starts have costs of their own; a case of one mapping names its chains only."""
    attribution = _check_truth(
        stage_model, f'{BOTH}[metrics.mcd]\nparts = "all"\n', "describer", "2-3", case
    )
    starts = {"overall-mcd": {"text", "image"}, "image-to-image-mcd": {"image"}}
    assert {hop.start for hop in attribution.hops} == starts.get(case, {"text"})
    assert ("of the" in attribution.said) == (case == "overall-mcd")


def _check_truth(stage_model: Setter, text: str, role: RoleName, at: str, case: str) -> Attribution:
    baseline = stage_model(text, role, "")
    candidate = stage_model(text, role, at)
    before = baseline.measure(case)
    after = candidate.measure(case)
    attribution = _attribute(candidate, baseline, case)
    sign = 1 if before.higher_is_better else -1
    left = set(at.split("-"))
    values = [after.value]
    for hop in attribution.hops:
        left -= {str(hop.generation)}
        values.append(stage_model(text, role, "-".join(sorted(left))).measure(case).value)
        assert hop.cost == pytest.approx(sign * (values[-1] - values[-2]), abs=2e-6)
        assert (hop.cost != 0) == (str(hop.generation) in at)
    drop = sign * (before.value - after.value)
    # The last pictures of spoiled chains happen to be nearer to their starts.
    assert drop < 0 if (case, at) == ("overall-s", "1-3-5") else drop > 0
    assert sum(hop.cost for hop in attribution.hops) == pytest.approx(drop, abs=2e-6)
    return attribution


def test_the_hop_is_named(stage_model: Setter) -> None:
    """A describer that only spoils its second description is found out, in words."""
    text = LONG + "[metrics.gc]\n"
    baseline = stage_model(text, "describer", "")
    baseline.measure("overall-gc")
    attribution = _attribute(stage_model(text, "describer", "3"), baseline, "overall-gc")
    assert [(hop.generation, hop.cost > 0) for hop in attribution.hops] == [
        (1, False), (3, True), (5, False),
    ]  # fmt: skip
    drop = attribution.hops[1].cost
    assert attribution.said == (
        f"Lost {drop:.4f} over 12 samples: {drop:.4f} (100%) by the describer at generation 3."
    )


def test_a_gain_is_never_the_worst_hop() -> None:
    """However large it is; of many small costs the largest are said."""
    costs = [0.3, -0.4, 0.25, -0.1, 0.05]
    hops = [Hop("image", "describer", 2 * at + 1, cost) for at, cost in enumerate(costs)]
    assert _describe_hops(hops, sum(costs), 1, both=False) == (
        "Lost 0.1000 over 1 sample: 0.3000 (300%) by the describer at generation 1, -0.4000 at "
        "generation 3, 0.2500 at generation 5, -0.1000 at generation 7, less elsewhere."
    )


def test_some_samples_count_once_each(stage_model: Setter) -> None:
    """Over given samples, in any order, the drop is the mean of their differences."""
    text = LONG + "[metrics.gc]\n[metrics.mcd]\n[metrics.failures]\n"
    baseline = stage_model(text, "describer", "")
    candidate = stage_model(text, "describer", "1-5")
    for case in ("overall-gc", "overall-mcd", "overall-failures"):
        scores = [
            {
                name: score
                for part in model.measure(case).scores.values()
                for name, score in part.items()
            }
            for model in (baseline, candidate)
        ]
        ids = sorted(scores[0])[1::3]
        lost = [scores[0][name] - scores[1][name] for name in ids]
        attribution = _attribute(candidate, baseline, case, [*reversed(ids), ids[0]])
        assert attribution.samples == len(ids)
        drop = sum(hop.cost for hop in attribution.hops)
        assert drop == pytest.approx(sum(lost) / len(ids), abs=1e-6)


def test_no_model_is_asked_twice_and_the_baseline_s_never(stage_model: Setter) -> None:
    """The candidate plays on once; a second attribution comes from the store."""
    text = LONG + "[metrics.gc]\n"
    baseline = stage_model(text, "describer", "")
    baseline.measure("overall-gc")
    candidate = stage_model(text, "describer", "1-3")
    candidate.measure("overall-gc")
    before = ASKED.copy()
    ids = [sample.id for sample in candidate.run.dataset.samples[:4]]
    first = _attribute(candidate, baseline, "overall-gc", ids)
    spent = ASKED - before
    assert spent == {"describer 1-3": 3 * 4}  # two hops of hybrid 1 and one of hybrid 2, of each
    assert _attribute(candidate, baseline, "overall-gc", ids) == first
    assert ASKED - before == spent


def test_chains_that_stop_are_a_hop_s_cost(stage_model: Setter) -> None:
    """A describer that says nothing at its second hop costs similarities and whole chains there.
    Where it is the baseline's, hybrids end as it did; what the candidate gained is no loss.
    """
    text = LONG + "[metrics.gc]\n[metrics.failures]\n"
    baseline = stage_model(text, "describer", "")
    baseline.measure("overall-gc")
    mute = stage_model(text, "describer", "3", mute="yes")
    for case, lost in (("overall-gc", 5 / 6), ("overall-failures", 1.0)):
        mute.measure(case)
        attribution = _attribute(mute, baseline, case)
        assert [hop.cost for hop in attribution.hops] == pytest.approx([0, lost, 0], abs=1e-6)
        assert "by the describer at generation 3." in attribution.said
    attribution = _attribute(baseline, mute, "overall-gc")
    assert [hop.cost for hop in attribution.hops] == pytest.approx([0, -5 / 6, 0], abs=1e-6)
    assert attribution.said.startswith(
        "Nothing was lost over 12 samples, the value is 0.8333 better than the baseline's."
    )


def test_two_roles_that_differ_are_told_apart(stage_model: Setter) -> None:
    """As a unified model's: hops of both in the order they are played in, and sums by role."""
    text = LONG + "[metrics.gc]\n"
    factory = f"python:{__name__}:Generator?at="
    baseline = stage_model(text, "describer", "", generator=factory)
    baseline.measure("overall-gc")
    candidate = stage_model(text, "describer", "3", generator=f"{factory}6")
    runner = baseline.run.data.runner
    steps = [json.loads(remember(runner(role).bound)) for role in ("describer", "generator")]
    attribution = attribute(candidate.run, candidate.cases["overall-gc"], json.dumps(steps), ())
    assert [(hop.role[0], hop.generation, hop.cost > 0) for hop in attribution.hops] == [
        ("d", 1, False), ("g", 2, False), ("d", 3, True),
        ("g", 4, False), ("d", 5, False), ("g", 6, True),
    ]  # fmt: skip
    costs = {
        role: sum(h.cost for h in attribution.hops if h.role == role)
        for role in ("describer", "generator")
    }
    words = ", ".join(f"{role} {cost:.4f}" for role, cost in costs.items())
    assert attribution.said.endswith(f"By role: {words}.")


GC = SUITE + "[metrics.gc]\n"

BASELINE = f"python:{__name__}:Describer"

CANDIDATE = f"{BASELINE}?at=1"


@pytest.fixture
def candidate(tmp_path: Path, store: Store) -> Staged:
    """A describer that spoils its first hop, measured."""
    staged = stage(tmp_path / "suite", GC, store, RoleChoices(model=CANDIDATE))
    staged.measure("overall-gc")
    return staged


def _measured(folder: Path, store: Store, model: str, role: RoleName, most: int | None) -> str:
    """Measure a baseline's model; what the baseline remembers of it."""
    choices = RoleChoices(model=model, role=role)
    staged = stage(folder / "suite", GC, store, choices, most=most)
    staged.measure("overall-gc")
    return remember(staged.run.data.runner(role).bound)


def _silent(attribution: Attribution) -> str:
    assert (attribution.samples, attribution.hops) == (0, ())
    return attribution.said


def test_chains_that_the_store_lacks(tmp_path: Path, store: Store, candidate: Staged) -> None:
    """No model is asked for those of another store, and the sentence says which store would do. Of
    samples that are missing the others are looked at, and how many are missing is said.
    """
    with Store(tmp_path / "elsewhere") as elsewhere:
        step = _measured(tmp_path, elsewhere, f"{BASELINE}?at=8", "describer", None)
    calls = ASKED.copy()
    sentence = _silent(attribute(candidate.run, candidate.cases["overall-gc"], step, ()))
    assert sentence.startswith("The baseline's chains are not in this run's store, so")
    assert "--cep-store" in sentence
    assert calls == ASKED
    step = _measured(tmp_path, store, f"{BASELINE}?at=9", "describer", 2)
    attribution = attribute(candidate.run, candidate.cases["overall-gc"], step, ())
    assert 0 < attribution.samples < 5
    assert attribution.said.endswith(
        f"Left out: {12 - attribution.samples} whose chains by the baseline are not in the store."
    )
    assert sum(hop.cost for hop in attribution.hops) > 0


def test_a_model_that_is_not_put_back(tmp_path: Path, store: Store, candidate: Staged) -> None:
    """What differs is not the model; or it is an encoder, which plays no hop, and the loss is in
    the reading.
    """
    step = _measured(tmp_path, store, CANDIDATE, "describer", None)
    sentence = _silent(attribute(candidate.run, candidate.cases["overall-gc"], step, ()))
    assert sentence == "The describer is the baseline's own: there is no model to exchange."
    step = _measured(tmp_path, store, "python:tests.suites.world:Namer", "encoder", None)
    staged = stage(tmp_path / "suite", GC, store, RoleChoices(model="shapes:", role="encoder"))
    staged.measure("overall-gc")
    sentence = _silent(attribute(staged.run, staged.cases["overall-gc"], step, ()))
    assert sentence.startswith("The encoder under test only reads")


def test_chains_made_elsewhere(tmp_path: Path, store: Store, candidate: Staged) -> None:
    """Replayed chains have no model that could play on."""
    samples = candidate.run.dataset.samples
    folder = tmp_path / "made" / "image-first"
    rows = [["filename", "caption"], *([f"{sample.id}.png", "a red circle"] for sample in samples)]
    put_table(folder / "gen-1.csv", rows)
    choices = RoleChoices(model=f"replay:{tmp_path / 'made'}?layout=sdp")
    staged = stage(tmp_path / "suite", GC, store, choices)
    step = _measured(tmp_path, store, BASELINE, "describer", None)
    sentence = _silent(attribute(staged.run, staged.cases["overall-gc"], step, ()))
    assert sentence.startswith("The chains were made elsewhere")


def test_a_baseline_that_does_not_tell(candidate: Staged) -> None:
    """An older or an edited baseline is named as the reason. A sample of another case is the
    caller's mistake: an error that names the sample.
    """
    lost = "Where the score was lost cannot be said: the baseline's model.step "
    for step, says in (
        ("", "The baseline does not say whose steps it was measured with"),
        ("{}", f"{lost}cannot be read"),
        ("[]", f"{lost}names no role"),
    ):
        attribution = attribute(candidate.run, candidate.cases["overall-gc"], step, ())
        assert _silent(attribution).startswith(says)
    only_a = next(s.id for s in candidate.run.dataset.samples if s.categories == ("a",))
    with pytest.raises(ValueError, match=f"world/b/gc has no sample '{only_a}'"):
        attribute(candidate.run, candidate.cases["b-gc"], "{}", [only_a])


def test_sets_of_other_sizes_are_not_compared(tmp_path: Path, store: Store) -> None:
    """A candidate whose chains stop has smaller sets than its hybrids, as in the gate."""
    text = SUITE + "[metrics.gc_fid]\n"
    baseline = stage(tmp_path / "suite", text, store, RoleChoices(model=BASELINE))
    baseline.measure("overall-gc_fid")
    step = remember(baseline.run.data.runner("describer").bound)
    blank = RoleChoices(model="shapes:?blank=0.2", role="describer")
    staged = stage(tmp_path / "suite", text, store, blank)
    assert staged.measure("overall-gc_fid").failures["empty-text"] > 0
    sentence = _silent(attribute(staged.run, staged.cases["overall-gc_fid"], step, ()))
    assert "sets of other sizes are not compared" in sentence


# -- chains by a recorded model: read from the store, without asking any model

STORED = SUITE + "[metrics.gc]\n[metrics.sim]\n[metrics.failures]\n"


def _ids(staged: Staged) -> list[str]:
    return [sample.id for sample in staged.run.dataset.samples]


def test_chains_are_those_that_were_measured(stage_model: Setter) -> None:
    """Link by link and with their similarities, and no model is asked for them. SIM reads the first
    iteration; what is stored beyond it is shown as well. Of a model that never ran there are no
    chains; a step that is none, of a baseline that was edited, is an error.
    """
    before, now = stage_model(STORED, "describer", "1"), stage_model(STORED, "describer", "3")
    before.measure("overall-gc")
    asked = ASKED.copy()
    case = now.cases["overall-gc"]
    stored = stored_chains(now.run, _step(before))
    assert stored.known(now.cases["overall-gc"], _ids(now)) == _ids(now)
    for name in _ids(now):
        known = before.run.show(case, name)
        excerpt = stored.excerpt(case, name, "image")
        assert known is not None
        assert excerpt is not None
        digests = [link.digest for link in excerpt.chain.links]
        assert digests == [link.digest for link in known.chain.links]
        assert excerpt.marks == known.marks
    excerpt = stored.excerpt(now.cases["overall-sim"], _ids(now)[0], "image")
    assert excerpt is not None
    assert (len(excerpt.chain.links), sorted(excerpt.marks)) == (5, [2])
    other = _step(stage_model(STORED, "describer", "7"))
    stored = stored_chains(now.run, other)
    assert stored.known(case, _ids(now)) == []
    assert stored.excerpt(case, _ids(now)[0], "image") is None
    assert ASKED.copy() == asked
    with pytest.raises(BaselineError, match="cannot be read"):
        stored_chains(now.run, "{}")


def test_chains_without_vectors_have_no_similarities(tmp_path: Path) -> None:
    """Chains that were grown and not compared are shown as they are; the encoder is not loaded."""
    with Store(tmp_path / "store") as apart:
        before, now = (
            stage(tmp_path / "suite", STORED, apart, RoleChoices(f"{BASELINE}?at={at}"))
            for at in (1, 3)
        )
        case = now.cases["overall-gc"]
        before.run.grow([(case, before.run.dataset.samples)])
        before.run.data.chains("image", before.run.dataset.samples)  # until all are stored
        stored = stored_chains(now.run, _step(before))
        excerpt = stored.excerpt(case, _ids(now)[0], "image")
        assert excerpt is not None
        assert (len(excerpt.chain.links), excerpt.marks) == (5, {})
        assert stored.scored(case, _ids(now)) == {}


def test_chains_that_stopped_are_complete(stage_model: Setter) -> None:
    """A model that says nothing has chains too, with the failure that ended them."""
    before, now = (
        stage_model(STORED, "describer", "3", mute="1"),
        stage_model(STORED, "describer", "1"),
    )
    before.measure("overall-gc")
    stored = stored_chains(now.run, _step(before))
    assert stored.known(now.cases["overall-gc"], _ids(now)) == _ids(now)
    excerpt = stored.excerpt(now.cases["overall-gc"], _ids(now)[0], "image")
    assert excerpt is not None
    assert excerpt.failure is not None
    assert (excerpt.failure.kind, excerpt.failed_at) == ("empty-text", 3)


# -- models whose losses are known hop by hop: perfect but for the generations they spoil ----------
# Who knows the seeds of a step's generation needs no memory to spoil only that one.

ASKED: Counter[str] = Counter()
"""Inputs by who was asked, such as "describer 3-5"."""

_LOSS = Degradation(recolor=1.0, miss=0.3)


class Spoiler:
    """at: the generations that it spoils, such as "3-5". mute: not empty if by saying nothing."""

    def __init__(self, at: str = "", mute: str = "") -> None:
        self.name = f"{type(self).__name__.lower()} {at}".strip()
        self.at = tuple(int(generation) for generation in at.split("-") if generation)
        self.mute = bool(mute)
        self.fingerprint = f"spoiler/1 {self.name} {self.mute}"

    def _spoils(self, seed: int) -> bool:
        return seed in _seeds(self.at)

    def _lose(self, scene: Any, seed: int) -> Any:
        return degrade_scene(scene, _LOSS, seed) if self._spoils(seed) else scene


class Describer(Spoiler):
    """Says what it sees."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One caption per image."""
        ASKED[self.name] += len(images)
        return [
            ""
            if self.mute and self._spoils(seed)
            else caption(self._lose(parse_image(ImageArtifact.from_pil(image)), seed))
            for image, seed in zip(images, seeds, strict=True)
        ]


class Generator(Spoiler):
    """Draws what it reads."""

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        """One picture per text."""
        ASKED[self.name] += len(texts)
        return [
            render(self._lose(parse_caption(text), seed), seed).pixels
            for text, seed in zip(texts, seeds, strict=True)
        ]


@cache
def _seeds(generations: tuple[int, ...]) -> frozenset[int]:
    """The seeds of these generations, of every sample of the tests' data sets."""
    names = [sample.id for data in (overlapping(), uneven_tasks()) for sample in data.samples]
    return frozenset(derive_seed(0, name, at) for name in names for at in generations)
