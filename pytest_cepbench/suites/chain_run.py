"""The measuring of a suite of chains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import ChainModels, Modality, RoleRunner
from pytest_cepbench.chains.growth import PendingChain
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import RoleError, SuiteError
from pytest_cepbench.measures.base import (
    ChainExcerpt,
    Measure,
    Measured,
    RequiredFeatures,
    plans_of,
    readers_of,
)
from pytest_cepbench.measures.blindness import same_answers
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.models import ROLE_NAMES
from pytest_cepbench.suites.definition import GROWERS, Suite
from pytest_cepbench.suites.suite_run import ModelSteps, SuiteRun, short_prompt

_READ = 500  # results looked at together; vectors are large


class ChainRun(SuiteRun):
    """A suite of chains that is measured; what was read of its chains is kept."""

    growers = GROWERS
    measures: Mapping[str, Measure]

    @cached_property
    def data(self) -> ChainData:
        """The chains that the metrics read; models are bound when the first case needs them."""
        describer, generator = (
            self.runner(role) if role in self.assignments.roles else None for role in GROWERS
        )
        models = ChainModels(describer, generator, self._model_pool.store)
        replay = self.assignments.replay
        if replay is not None:
            from pytest_cepbench.datasets.replay import Replay

            assert isinstance(replay, Replay)  # answers are refused as they are opened
            replay.check((self.dataset.whole or self.dataset).samples)
        return ChainData(
            self.dataset, self.suite.plans, models, self.runner, replay, self.assignments.gated
        )

    def runner(self, role: str) -> RoleRunner:
        """As of every suite. Raises RoleError where the model cannot read or make what it must."""
        runner = super().runner(role)
        bound, plans = runner.bound, self.suite.plans.values()
        made = {plan.makes for plan in plans}
        if role == "generator" and bound.makes not in made:
            raise RoleError(
                f"{bound.spec} makes {bound.makes}s, and the chains of suite {self.suite.name!r} "
                f"need {' and '.join(made)}s: give another --generator"
            )
        needed: set[Modality] = set(made)
        if role != "describer":
            needed = {
                required.plan.modality(generation)
                for measure in self.measures.values()
                for required in measure.required_features(None)
                if required.reader == role
                for generation in required.generations
            }
        if bound.role in ("describer", "encoder") and needed - bound.reads:
            kinds = " and ".join(f"{kind}s" for kind in sorted(needed - bound.reads))
            option = f"--{role}" if role in ROLE_NAMES else f"--encoder {role}=SPEC"
            raise RoleError(
                f"{bound.spec} reads no {kinds}, which the {role} of suite {self.suite.name!r} is "
                f"given: give another {option}"
            )
        return runner

    def _required(self, case: Case) -> tuple[RequiredFeatures, ...]:
        return self.measures[case.key.metric].required_features(case)

    def reads(self, case: Case) -> list[list[object]]:
        """The features that a case reads of each sample's chains, as built-in types."""
        return [
            [required.plan.start, list(required.generations), required.reader]
            for required in self._required(case)
        ]

    def _by_start(
        self, wanted: Iterable[tuple[Case, Sequence[Sample]]]
    ) -> dict[Modality, list[Sample]]:
        """The samples whose chains cases read, each once, by the start of the chains."""
        by_start: dict[Modality, dict[str, Sample]] = {}
        for case, samples in wanted:
            for plan in plans_of(self._required(case)):
                by_start.setdefault(plan.start, {}).update((own.id, own) for own in samples)
        return {start: list(own.values()) for start, own in by_start.items()}

    def steps(self, case: Case) -> int:
        """How many results a case needs of each sample: of growing its chains, and reading them."""
        required = self._required(case)
        read = [len(features.generations) for features in required if features.reader is not None]
        grown = {plan.start: plan.generations for plan in plans_of(required)}
        return sum(read) + sum(grown.values())

    def read(self, case: Case, samples: Sequence[Sample]) -> None:
        """Compute what a case needs of the samples and the store lacks.

        Raises what growing and reading chains raise.
        """
        self.measures[case.key.metric].read(case, samples, self.data)

    def grow(self, wanted: Sequence[tuple[Case, Sequence[Sample]]]) -> None:
        """Grow the chains that cases read, a generation of all of them before the next."""
        for start, samples in self._by_start(wanted).items():
            self.data.grow(start, samples)

    def show(self, case: Case, sample_id: str) -> ChainExcerpt | None:
        """A sample of a measured case for the reader; None where no single chain has its score."""
        if not self.data.named(sample_id):
            return None
        return self.measures[case.key.metric].show(case, sample_id, self.data)

    def _count_steps(
        self, cases: Sequence[tuple[Case, Sequence[Sample]]]
    ) -> tuple[int, Sequence[ModelSteps]]:
        """Steps whose inputs are yet to be made are taken to succeed, and to give artifacts that
        differ; what is detected in images, to be cut out and read, is not foreseen.
        """
        data = self.data
        readings = [(required, own) for case, own in cases for required in self._required(case)]
        by_runner: dict[int, ModelSteps] = {}

        def steps_of(runner: RoleRunner) -> ModelSteps:
            return by_runner.setdefault(id(runner), ModelSteps(runner))

        chains: dict[tuple[Modality, str], PendingChain] = {}
        for start, played in self._by_start(cases).items():
            for pending in data.look_ahead(start, played):
                chains[start, pending.chain.sample.id] = pending
                for runner, key in pending.stored:
                    steps_of(runner).stored.add(key)
                for runner, key in pending.missing:
                    steps_of(runner).missing.add(key)
        for required, samples in readings:
            if required.reader is None:
                continue
            steps = steps_of(data.runner(required.reader))
            if required.cutouts:  # what detectors find in images that they have not read yet
                steps.incomplete |= any(
                    other.missing
                    for other in by_runner.values()
                    if other.runner.bound.role == "detector"
                )
                continue
            together = _READ // len(required.generations) + 1
            for low in range(0, len(samples), together):
                keys: list[list[str]] = []  # of the steps that read each chain, as far as it goes
                for sample in samples[low : low + together]:
                    digests = chains[required.plan.start, sample.id].digests
                    query = required.query(sample, steps.runner.bound)
                    keys.append(
                        [
                            steps.runner.key(query, 0, required.plan.modality(at), digest)
                            for at in required.generations
                            if at < len(digests) and (digest := digests[at]) is not None
                        ]
                    )
                stored = steps.runner.store.get(key for own in keys for key in own)
                for read in keys:
                    for key in read:
                        (steps.stored if key in stored else steps.missing).add(key)
                        if required.stops_chain and isinstance(stored.get(key), Failure):
                            break
        return len(chains), list(by_runner.values())

    def _measured(self, case: Case, most: int | None) -> Measured:
        measure = self.measures[case.key.metric]
        measured = measure.measure(case, self.data.narrowed(most))
        cut: dict[str, None] = {}
        same: dict[str, None] = {}
        keys: list[str] = []
        for plan in plans_of(measure.required_features(case)):
            chains = self.data.chains(plan.start, measured.samples).values()
            if "generator" in self.assignments.roles:
                drawn = range(plan.generations)
                if note := self.data.cut_texts(plan, "generator", drawn, measured.samples):
                    cut[note] = None
            same |= dict.fromkeys(same_answers(plan, chains))
            links = (link for chain in chains for link in chain.links[: plan.generations + 1])
            keys += [key for link in links if link.text is not None and (key := link.key)]
        notes, warnings = list(cut), list(same)
        if keys:
            describer = self.runner("describer")
            told = describer.text_notes(keys, "descriptions")
            notes += told[0]
            warnings += told[1]
        return replace(
            measured,
            notes=(*measured.notes, *notes),
            warnings=(*measured.warnings, *warnings),
        )

    def identity(self, case: Case, samples: Sequence[Sample]) -> dict[str, str]:
        """As of every suite, with the chains, their prompts and the models that read them."""
        measure = self.measures[case.key.metric]
        required = measure.required_features(case)
        plans, readers = plans_of(required), readers_of(required)
        starts = [self.data.starts(plan.start, samples) for plan in plans]
        chains = []
        for plan in plans:
            of = " of sounds" if plan.start == "text" and plan.makes == "sound" else ""
            length = f"{plan.generations} generations, seed {plan.seed}"
            chains.append(f"{plan.start}-first{of}, {length}")
        return {
            **self._shared_identity(measure.identity, samples, starts),
            "chain": "; ".join(chains),
            "describe prompt": short_prompt(plans[0].describe),
            "generate prompt": short_prompt(plans[0].generate),
            "descriptions": str(plans[0].caption_rules),
            "under test": self.assignments.under_test,
            **self._fixed_roles(readers),
        }


def require_chains(run: SuiteRun, what: str) -> ChainRun:
    """The run of a suite of chains. Raises SuiteError as `refuse_answers`."""
    refuse_answers(run.suite, what)
    assert isinstance(run, ChainRun)
    return run


def refuse_answers(suite: Suite, what: str) -> None:
    """Raise SuiteError for a suite that asks for interleaved answers. what: needs chains."""
    if suite.answer_plan is not None:
        raise SuiteError(
            f"suite {suite.name!r} asks for interleaved answers: {what} can measure chains alone"
        )
