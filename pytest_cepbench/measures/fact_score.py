"""facts: whether what is true of a generated scene is still told and shown along its chain.

Texts are read by the grammar of the embedded world, pictures by its rules of sight: both list all
that an artifact claims, so there is precision beside recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import ImageArtifact, digest_json
from pytest_cepbench.chains import Chain, Modality, load_link
from pytest_cepbench.chains.chain import naming_damage
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import (
    WORLD_VERSION,
    Scene,
    caption,
    known_scene,
    parse_caption,
    parse_image,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.questions import SCENE_FACTS, scene_facts
from pytest_cepbench.errors import DamagedInputsError, MeasurementError, StoreError
from pytest_cepbench.measures.base import (
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    by_part,
    outcome_of_chain,
    parts_of,
)
from pytest_cepbench.measures.blindness import NO_FLOOR, floor_by_exchange
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import last_iteration
from pytest_cepbench.metrics.facts import Fact, FactAnswers, chance_f1, fact_f1, summarize_facts
from pytest_cepbench.store import Store, StoredResult

_READER = f"{WORLD_VERSION} {SCENE_FACTS}"

_NAMED = 4  # lost facts of a sample, in its remark


class FactsTable(MetricTable, frozen=True, kw_only=True):
    """facts: F1 of a generated scene's atomic facts over the texts and pictures of its chain.

    at: the last iteration that counts; the chain's when left out.
    start: which chains, where the suite plays both.
    """

    at: int | None = None
    start: Modality | None = None


def facts_of_scene(sample: Sample) -> tuple[Fact, ...]:
    """The facts of the generated scene that a sample was drawn from.

    Raises MeasurementError for a sample without one.
    """
    try:
        return scene_facts(sample_scene(sample))
    except (KeyError, TypeError, ValueError) as error:
        raise MeasurementError(
            f"sample {sample.id!r} has no facts: its metadata holds no generated scene, as the "
            "loaders shapes and shapes-tasks give one; leave [metrics.facts] out"
        ) from error


@lru_cache(4096)
def _claims(scene: Scene) -> frozenset[Fact]:
    return frozenset(scene_facts(scene))


@dataclass(frozen=True)
class CheckedChain:
    """The facts of one sample, and what was found of them in its chain.

    facts: of its scene.
    answers: on them, at each generation.
    claims: what each artifact claims; empty for one that is not there.
    f1: the score of each artifact.
    outcome: what stopped the chain, if anything did.
    """

    facts: tuple[Fact, ...]
    answers: FactAnswers
    claims: tuple[frozenset[Fact], ...]
    f1: npt.NDArray[np.float64]
    outcome: CaseScores


class FactsMeasure(Measure):
    """The mean macro-F1 of a sample's facts over the artifacts of its chain, all counted alike."""

    def __init__(self, kind: str, name: str, table: FactsTable, context: SuiteContext) -> None:
        """Raises SuiteError for iterations beyond the chains."""
        super().__init__(kind, name, table, context)
        self.plan = context.plan(name, table.start)
        last = self.plan.generations
        if table.at is not None:
            last = 2 * last_iteration(kind, name, table.at, self.plan, context)
        self.generations = tuple(range(1, last + 1))
        self.label = f"{name} F1"
        self.identity = (
            f"facts/1 of {SCENE_FACTS}, texts by {_READER}, pictures by {_READER}, all kinds, "
            f"to generation {last}, over {self.pool}"
        )

    def check_data(self, samples: Sequence[Sample]) -> None:
        """Raise MeasurementError where the first sample has none."""
        for sample in samples[:1]:
            facts_of_scene(sample)

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The artifacts of the chains; no model reads them."""
        return (RequiredFeatures(self.plan, self.generations, None),)

    def read(
        self, case: Case, samples: Sequence[Sample], data: ChainData
    ) -> dict[str, CheckedChain]:
        """The facts of the samples, checked."""
        data.require_recorded(self.plan.start, self.generations)
        start = self.plan.start
        return data.per_chain(self, start, samples, lambda chains: self._check(chains, data.store))

    def measure(self, case: Case, data: ChainData) -> Measured:
        """One score per chain, and what became of the facts.

        Raises MeasurementError for a sample without facts.
        """
        parts, samples = parts_of(case, data.dataset)
        checked = self.read(case, samples, data)
        own = [checked[sample.id] for sample in samples]
        floor = floor_by_exchange(
            case,
            parts,
            checked.keys(),
            lambda ids, homes: chance_f1(
                [checked[name].facts for name in ids], [checked[name].claims for name in ids], homes
            ),
        )
        facts = [[s.id, *map(str, facts_of_scene(s))] for s in parts_of(case, data.population)[1]]
        return Measured(
            scores=by_part(parts, {name: float(c.f1.mean()) for name, c in checked.items()}),
            samples=samples,
            outcomes=[chain.outcome for chain in own],
            curve=tuple(np.array([chain.f1 for chain in own]).mean(axis=0).tolist()),
            notes=(NO_FLOOR,) if floor is None else (),
            identity={"facts": digest_json(facts)[:16]},
            floor=floor,
            facts=summarize_facts(
                [chain.answers for chain in own],
                [sample.unit for sample in samples],
                self.generations,
                [self.plan.role(generation) for generation in self.generations],
            ),
        )

    def show(self, case: Case, sample_id: str, data: ChainData) -> ChainExcerpt:
        """The chain with the F1 of its artifacts, and the facts that it lost first."""
        samples = data.named(sample_id)
        checked = self.read(case, samples, data)[sample_id]
        chain = data.chains(self.plan.start, samples)[sample_id]
        marks = dict(zip(self.generations, checked.f1.tolist(), strict=True))
        remark = ""
        for generation, column in zip(self.generations, checked.answers.answers.T, strict=True):
            lost = [f for f, answer in zip(checked.facts, column, strict=True) if not answer]
            if lost:  # at the first generation that loses any
                named = ", ".join(f"{fact.kind} {str(fact)!r}" for fact in lost[:_NAMED])
                more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
                role = "description" if self.plan.describes(generation) else "drawing"
                remark = f"generation {generation}, a {role}, lacks {named}{more}"
                break
        return ChainExcerpt(chain, marks, checked.outcome.failure, chain.failed_at, remark)

    def _check(self, chains: Sequence[Chain], store: Store) -> dict[str, CheckedChain]:
        """The answers on each chain: 0 where it stopped."""
        claims: dict[str, list[frozenset[Fact]]] = {chain.sample.id: [] for chain in chains}
        for generation in self.generations:
            able = [chain for chain in chains if chain.has(generation)]
            with naming_damage(able, generation):
                scenes = _scenes(able, generation, store)
            claimed = {c.sample.id: _claims(s) for c, s in zip(able, scenes, strict=True)}
            for name, own in claims.items():
                own.append(claimed.get(name, frozenset()))
        checked = {}
        for chain in chains:
            facts, own = facts_of_scene(chain.sample), claims[chain.sample.id]
            added = [claimed.difference(facts) for claimed in own]
            answers = FactAnswers(
                tuple(fact.kind for fact in facts),
                np.array([[float(fact in claimed) for claimed in own] for fact in facts]),
                {
                    kind: np.array([float(sum(f.kind == kind for f in new)) for new in added])
                    for kind in {fact.kind for new in added for fact in new}
                },
            )
            outcome = outcome_of_chain(chain, self.plan)
            f1 = fact_f1(answers)
            checked[chain.sample.id] = CheckedChain(facts, answers, tuple(own), f1, outcome)
        return checked


def _scenes(chains: Sequence[Chain], generation: int, store: Store) -> list[Scene]:
    """Of the chains' artifacts. Raises DamagedInputsError for pictures that are damaged.

    What is seen in a picture is stored as the scene's caption, under the picture's digest and the
    world's version: a rerun would decode and parse every picture again, half of its time.
    """
    links = [chain.links[generation] for chain in chains]
    keys = {
        link.digest: digest_json({"scene": WORLD_VERSION, "image": link.digest})
        for link in links
        if link.text is None
    }
    captions = store.get(keys.values())
    scenes: list[Scene] = []
    damaged: list[int] = []
    entries: list[StoredResult] = []
    for place, (chain, link) in enumerate(zip(chains, links, strict=True)):
        text = link.text if link.text is not None else captions.get(keys[link.digest])
        if isinstance(text, str):
            scenes.append(parse_caption(text))
            continue
        # A model of the world may have parsed it in this process: then no file is read.
        scene = known_scene(link.digest)
        if scene is None:
            picture = load_link(chain, generation, store)
            if picture is None:
                damaged.append(place)
                continue
            scene = parse_image(ImageArtifact.from_pil(picture))
        entries.append(StoredResult(keys[link.digest], caption(scene)))
        scenes.append(scene)
    with suppress(StoreError):  # all is seen: a full disk is no error of the case any more
        store.put(entries)
    if damaged:
        raise DamagedInputsError(damaged)
    return scenes
