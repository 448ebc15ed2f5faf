"""Growth of the chains of many samples: a generation of all of them, then the next.

Chains that another tool has generated are read from its files instead. Groups of chains are grown
when they are first needed and repaired where images were lost; `look_ahead` says without a model
which steps a group still needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary

from pytest_cepbench.artifacts import MODALITIES, Artifact, Failure, Modality, digest_text
from pytest_cepbench.artifacts.answer import read_answer
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.artifacts.outcome import FailureKind
from pytest_cepbench.chains.batching import read_all
from pytest_cepbench.chains.chain import (
    Chain,
    ChainPlan,
    Link,
    derive_seed,
    load_link,
    naming_damage,
)
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.datasets.sample import (
    DrawnImage,
    DrawnSound,
    EmbeddedImage,
    Sample,
    Seed,
    SeedImage,
    load_seed,
)
from pytest_cepbench.datasets.sources.table import CellImage
from pytest_cepbench.errors import DamagedChainsError, DatasetError, ImageError, StoreError
from pytest_cepbench.models.roles import ROLES, check_text
from pytest_cepbench.store import ArtifactRef, Result, Store

if TYPE_CHECKING:
    from pytest_cepbench.datasets.replay import Replay

_DRAWN: WeakKeyDictionary[DrawnImage | DrawnSound, str] = WeakKeyDictionary()
"""Digests of seeds that are computed: every case of a suite asks for them, and each takes 1 ms."""


@dataclass(frozen=True)
class ChainModels:
    """The models that grow chains, all on one store; None for a role that no chain needs.

    stand_ins: by start of the chain and generation, the runner of that generation in place of the
        role's.
    """

    describer: RoleRunner | None
    generator: RoleRunner | None
    store: Store
    stand_ins: Mapping[tuple[Modality, int], RoleRunner] = field(default_factory=dict)

    def runner(self, plan: ChainPlan, generation: int) -> RoleRunner:
        """The runner of the model that makes a generation of the plan's chains."""
        own = self.describer if plan.describes(generation) else self.generator
        runner = self.stand_ins.get((plan.start, generation), own)
        assert runner is not None  # the caller fills the roles that the plan needs
        return runner


def start_chains(
    plan: ChainPlan,
    samples: Sequence[Sample],
    store: Store,
    starts: Mapping[str, str] = MappingProxyType({}),
) -> list[Chain]:
    """A chain of one link for every sample. Raises DatasetError naming all that cannot be used.

    starts: digests of images or sounds that are known, by sample id.
    """
    chains, broken = [], []
    content, known = MODALITIES[plan.start].content, dict(starts)
    if plan.start != "text":
        unknown = [sample for sample in samples if sample.id not in known]
        files = {
            sample.id: file
            for sample in unknown
            if (file := _file_of(sample.seed(plan.start), content, plan.start)) is not None
        }
        remembered = store.known_digests(files.values()) if files else {}  # one query, not one each
        known |= {name: remembered[file] for name, file in files.items() if file in remembered}

    def link_of(sample: Sample) -> Link:
        if plan.start != "text":
            seed = sample.seed(plan.start)
            digest = known.get(sample.id) or _content_digest(
                seed, plan.start, partial(load_seed, sample, plan.start), store
            )
            return Link(plan.start, digest, source=seed)
        if not isinstance(sample.text, str) or not sample.text.strip():
            raise DatasetError(f"{sample.id}: has no text: a text-first chain cannot start from it")
        return Link("text", digest_text(sample.text), text=sample.text)

    links = read_all(samples, link_of)
    for sample, link in zip(samples, links, strict=True):
        if isinstance(link, DatasetError):
            broken.append(str(link))
        elif isinstance(link, Exception):
            raise link
        else:
            chains.append(Chain(sample, [link]))
    if broken:
        shown = "\n  ".join(broken[:20]) + ("\n  ..." if len(broken) > 20 else "")
        raise DatasetError(f"{len(broken)} of {len(samples)} samples cannot be used:\n  {shown}")
    return chains


def _cached_look(
    seed: Seed, name: str, modality: Modality, look: Callable[[], str], store: Store
) -> str:
    """`look()` at an artifact outside the store, kept while the file it lies in stays the same.

    name: of the kind of look. Raises what `look` raises; that is not kept.
    """
    file = _file_of(seed, name, modality)
    if file is None or not file[0].exists():
        return look()
    return store.file_digest(*file, lambda _: look())


def _file_of(seed: Seed | None, name: str, modality: Modality) -> tuple[Path, str] | None:
    """The file that a seed lies in, and the kind of look at it; None of one that is drawn."""
    path = None if seed is None or isinstance(seed, DrawnImage | DrawnSound) else seed.path
    if path is None:
        return None
    part = f" {seed.part}" if isinstance(seed, EmbeddedImage | CellImage) else ""
    return path, f"{name} {MODALITIES[modality].decoder()}{part}"


def digest_of_image(image: SeedImage, store: Store) -> str:
    """Digest of the pixels of an image outside the store. Raises ImageError where it is none."""
    return _content_digest(image, "image", image.load, store)


def _content_digest(
    seed: Seed | None, modality: Modality, load: Callable[[], Artifact], store: Store
) -> str:
    def content() -> str:
        loaded = load()
        store.artifact_cache.add(loaded)
        return loaded.digest

    if isinstance(seed, DrawnImage | DrawnSound):
        if (known := _DRAWN.get(seed)) is None:
            known = _DRAWN[seed] = content()
        return known
    if seed is None:
        return content()
    return _cached_look(seed, MODALITIES[modality].content, modality, content, store)


def grow_generation(
    plan: ChainPlan, generation: int, chains: Sequence[Chain], models: ChainModels
) -> None:
    """Make the next artifact of all chains that did not fail; generation counts from 1.

    Raises DamagedChainsError when a stored image that a step starts from is damaged; ModelError,
    CheckpointError, StoreError.
    """
    runner = models.runner(plan, generation)
    alive = [chain for chain in chains if chain.failure is None]
    able, steps = _steps(plan, generation, alive, models)
    if runner.progress is not None:
        of_all = f"generation {generation} of {plan.generations}"
        runner.progress.step = f"{of_all}, {plan.role(generation)}"
    with naming_damage(able, generation - 1):
        if plan.describes(generation):
            results = runner.ask("describe", steps, plan.describe)
        else:
            results = runner.ask("generate", steps)
    for chain, step, result in zip(able, steps, results, strict=True):
        _append(chain, generation, step.key, result)


def _steps(
    plan: ChainPlan, generation: int, chains: Sequence[Chain], models: ChainModels
) -> tuple[Sequence[Chain], list[Step]]:
    """The chains that have such a step, and the step of each."""
    before = generation - 1
    runner = models.runner(plan, generation)
    able, steps = [], []
    for chain in chains:
        link = chain.links[before]
        if link.text is None:
            load = partial(load_link, chain, before, models.store)
        elif plan.caption_rules.apply(link.text).strip():
            load = partial(plan.drawing_prompt, link.text)
        else:
            chain.failure = Failure("empty-text", f"nothing is left of {link.text[:80]!r}")
            chain.failed_at = generation
            continue
        key, seed = _key_and_seed(plan, chain, generation, runner, input_digest(plan, link))
        able.append(chain)
        steps.append(Step(key, seed, load))
    return able, steps


def _key_and_seed(
    plan: ChainPlan, chain: Chain, generation: int, runner: RoleRunner, before: str
) -> tuple[str, int]:
    """Of the step that makes a generation. before: digest of its input, or a name for it."""
    prompt = plan.describe if plan.describes(generation) else plan.generate
    seed = derive_seed(plan.seed, chain.sample.id, generation)
    return runner.key(prompt, seed, plan.modality(generation - 1), before), seed


def input_digest(plan: ChainPlan, link: Link) -> str:
    """Digest of an artifact as the next step takes it: a text by the plan's caption rules."""
    return link.digest if link.text is None else digest_text(plan.caption_rules.apply(link.text))


def _append(chain: Chain, generation: int, key: str, result: Result) -> None:
    if isinstance(result, Failure):
        chain.failure, chain.failed_at = result, generation
    elif isinstance(result, ArtifactRef):
        chain.links.append(Link(result.kind, result.digest, key=key))
    else:
        assert isinstance(result, str)
        chain.links.append(Link("text", digest_text(result), text=result, key=key))


# -- chains of another tool ----------------------------------------------------------------------


def replay_chains(
    plan: ChainPlan, samples: Sequence[Sample], replay: Replay, store: Store
) -> list[Chain]:
    """The chain of every sample as far as the other tool's files hold it.

    A missing, empty or unreadable artifact is the failure of its chain; what a layout never holds
    (the texts of GenCeption's folders) is a link that is not recorded. Raises DatasetError for
    seeds that cannot be used.
    """
    chains = start_chains(plan, samples, store)
    for chain in chains:
        for generation in range(1, plan.generations + 1):
            link = _recorded_link(plan, chain.sample, generation, replay, store)
            if isinstance(link, Failure):
                chain.failure, chain.failed_at = link, generation
                break
            chain.links.append(link)
    return chains


def _recorded_link(
    plan: ChainPlan, sample: Sample, generation: int, replay: Replay, store: Store
) -> Link | Failure:
    modality = plan.modality(generation)
    if not replay.records(plan.start, generation):
        return Link(modality, digest="")
    artifact = replay.artifact(sample, plan.start, generation)
    if artifact is None:
        return Failure("missing", f"{replay.path} holds no {modality} of it")
    if isinstance(artifact, str):
        text = check_text(artifact)
        text = text if isinstance(text, Failure) else read_answer(text)
        if isinstance(text, Failure):
            return text
        text = ROLES["describer"].beginning(text)
        return Link("text", digest_text(text), text=text)
    image = artifact

    def check() -> str:
        checked = check_image(image.load().to_pil())
        if isinstance(checked, Failure):
            return f"{checked.kind}: {checked.detail}"  # a digest has no colon
        return checked.digest

    try:
        outcome = _cached_look(image, "replayed", "image", check, store)
    except ImageError as error:
        return Failure("bad-image", str(error))
    kind, failed, detail = outcome.partition(": ")
    if failed:
        return Failure(cast("FailureKind", kind), detail)
    return Link("image", outcome, source=image)


_NOT_BEGUN = -1

_SPARE_REPAIRS = 4  # each repair restores a generation's images; more means a dying disk

T = TypeVar("T")


class ChainGroup:
    """The chains of one shard of samples.

    models: that grow them.
    replay: chains of another tool, which are read instead of grown.
    """

    def __init__(
        self,
        plan: ChainPlan,
        samples: Sequence[Sample],
        models: ChainModels,
        replay: Replay | None = None,
    ) -> None:
        self.plan = plan
        self.samples = tuple(samples)
        self._models = models
        self._replay = replay
        self._chains: list[Chain] = []
        self._reached = _NOT_BEGUN

    @property
    def begun(self) -> Sequence[Chain]:
        """The chains as far as they are, without growing them; none before they were begun."""
        return self._chains if self._reached != _NOT_BEGUN else ()

    @property
    def chains(self) -> list[Chain]:
        """The chains, one per sample, grown now if they have not been."""
        return self.read(list)

    def read(self, use: Callable[[Sequence[Chain]], T], generation: int | None = None) -> T:
        """Call `use` with the chains; where it meets damaged images they are made again.

        generation: to which they are grown; the last one where left out.
        Raises DatasetError, ModelError, CheckpointError, and StoreError when images keep getting
        lost.
        """
        generation = self.plan.generations if generation is None else generation
        store = self._models.store
        for _ in range(self.plan.generations + _SPARE_REPAIRS):
            try:
                if self._reached == _NOT_BEGUN and self._replay is not None:
                    self._chains = replay_chains(self.plan, self.samples, self._replay, store)
                    self._reached = self.plan.generations
                elif self._reached == _NOT_BEGUN:
                    self._chains = start_chains(self.plan, self.samples, store)
                    self._reached = 0
                while self._reached < generation:
                    grow_generation(self.plan, self._reached + 1, self._chains, self._models)
                    self._reached += 1
                return use(self._chains)
            except DamagedChainsError as damage:
                self._reached = _NOT_BEGUN  # it begins anew, from what the store has
                store.forget(damage.keys, why="the file it made is damaged or gone")
            except BaseException:
                self._reached = _NOT_BEGUN
                raise
            finally:
                store.artifact_cache.clear()
        raise StoreError(f"files of the store {store.root} keep getting lost: is the disk failing?")


def grow_together(groups: Sequence[ChainGroup]) -> None:
    """Grow the chains of groups of one plan: a generation of all of them, then the next.

    So each model is loaded once per generation, however many groups there are. Raises as
    `ChainGroup.read`.
    """
    for generation in range(1, max((group.plan.generations for group in groups), default=0) + 1):
        for group in groups:
            group.read(len, generation)


# -- steps that are pending ----------------------------------------------------------------------


@dataclass(frozen=True)
class PendingChain:
    """A chain as far as the store has it, and the steps that it needs where none fails.

    digests: of its artifacts, by generation; None for one that is not recorded. What is yet to be
        made has a name in place of a digest, the same for steps that are sure to make the same.
    stored: runner and key of the steps whose results are in the store.
    missing: runner and key of the others.
    """

    chain: Chain
    digests: tuple[str | None, ...]
    stored: tuple[tuple[RoleRunner, str], ...]
    missing: tuple[tuple[RoleRunner, str], ...]


def look_ahead(
    plan: ChainPlan,
    samples: Sequence[Sample],
    models: ChainModels,
    replay: Replay | None,
    starts: Mapping[str, str] = MappingProxyType({}),
) -> list[PendingChain]:
    """The pending chain of every sample, as far as the store has it; no model is loaded.

    A chain that is short without a failure goes on with a step that is not in the store. Takes
    starts as `start_chains`, and raises as that and as `replay_chains`.
    """
    if replay is not None:
        chains = replay_chains(plan, samples, replay, models.store)
        return [PendingChain(chain, _digests(chain), (), ()) for chain in chains]
    chains = start_chains(plan, samples, models.store, starts)
    for generation in range(1, plan.generations + 1):
        alive = [
            chain for chain in chains if chain.failure is None and len(chain.links) == generation
        ]
        able, steps = _steps(plan, generation, alive, models)
        results = models.runner(plan, generation).stored(steps)
        for chain, step, result in zip(able, steps, results, strict=True):
            if result is not None:
                _append(chain, generation, step.key, result)
    pending = []
    for chain in chains:
        digests = list(_digests(chain))
        stored = [
            (models.runner(plan, generation), link.key)
            for generation, link in enumerate(chain.links[1:], start=1)
            if link.key is not None
        ]
        missing = []
        last = 0 if chain.failure is not None else plan.generations
        for generation in range(len(chain.links), last + 1):
            runner = models.runner(plan, generation)
            made_before = generation == len(chain.links)
            before = input_digest(plan, chain.links[-1]) if made_before else digests[-1] or ""
            key, _ = _key_and_seed(plan, chain, generation, runner, before)
            missing.append((runner, key))
            digests.append(f"made by {key}")
        pending.append(PendingChain(chain, tuple(digests), tuple(stored), tuple(missing)))
    return pending


def _digests(chain: Chain) -> tuple[str | None, ...]:
    return tuple(link.digest if link.recorded else None for link in chain.links)
