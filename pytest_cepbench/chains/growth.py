"""Growing the chains of many samples together: one step of all of them, then the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pytest_cepbench.artifacts import DECODER, Failure, digest_text
from pytest_cepbench.chains.chain import Chain, Link, load_link, naming_damage
from pytest_cepbench.chains.chain_plan import ChainPlan, Modality, derive_seed
from pytest_cepbench.chains.pipeline import read_all
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.datasets.sample import (
    EmbeddedImage,
    FileImage,
    Sample,
    SeedImage,
    load_seed_image,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.store import ImageRef, Result, Store


@dataclass(frozen=True)
class ChainModels:
    """Who plays: one runner per role, all on one store; None for a role that no chain needs.

    stand_ins: by start of the chain and generation, who plays that one hop in place of the role's
    runner.
    """

    describer: RoleRunner | None
    generator: RoleRunner | None
    store: Store
    stand_ins: Mapping[tuple[Modality, int], RoleRunner] = field(default_factory=dict)

    @property
    def largest_batch(self) -> int:
        """Most inputs that any of its models was asked to take in one call."""
        every = (self.describer, self.generator, *self.stand_ins.values())
        return max((one.bound.batch_size for one in every if one is not None), default=0)

    @property
    def small(self) -> bool:
        """Whether all of its models are small ones on the CPU."""
        every = (self.describer, self.generator, *self.stand_ins.values())
        bound = [one.bound for one in every if one is not None]
        return bool(bound) and all(one.small for one in bound)

    def player(self, plan: ChainPlan, generation: int) -> RoleRunner:
        """Who plays a generation of the plan's chains."""
        own = self.describer if plan.describes(generation) else self.generator
        found = self.stand_ins.get((plan.start, generation), own)
        assert found is not None  # whoever makes a crew fills the roles that the plan needs
        return found


def peek(plan: ChainPlan, samples: Sequence[Sample], crew: ChainModels) -> list[Chain]:
    """The chains as far as the store has them; no model is loaded.

    A chain that is short and has no failure goes on with a step that is not in the store. Raises as
    `start_chains`.
    """
    chains = start_chains(plan, samples, crew.store)
    for generation in range(1, plan.generations + 1):
        alive = [one for one in chains if one.failure is None and len(one.links) == generation]
        able, steps = _steps(plan, generation, alive, crew)
        for chain, step, result in zip(
            able, steps, crew.player(plan, generation).look(steps), strict=True
        ):
            if result is not None:
                _append(chain, generation, step.key, result)
    return chains


def start_chains(plan: ChainPlan, samples: Sequence[Sample], store: Store) -> list[Chain]:
    """A chain of one link for every sample. Raises DatasetError naming all that cannot be used."""
    chains, broken = [], []
    links = read_all(samples, lambda sample: _seed_link(plan, sample, store))
    for sample, link in zip(samples, links, strict=True):
        if isinstance(link, DatasetError):
            broken.append(str(link))
        elif isinstance(link, Exception):
            raise link
        else:
            chains.append(Chain(sample, [link]))
    if broken:
        shown = "\n  ".join(broken[:20]) + ("\n  ..." if len(broken) > 20 else "")
        msg = f"{len(broken)} of {len(samples)} samples cannot be used:\n  {shown}"
        raise DatasetError(msg)
    return chains


def look_at(image: SeedImage, what: str, look: Callable[[], str], store: Store) -> str:
    """`look()` for an image outside the store, remembered while the file it lies in stays the same.

    what: names the kind of look. Raises what `look` raises; that is not remembered.
    """
    if isinstance(image, FileImage) and image.path.exists():
        return store.file_digest(image.path, f"{what} {DECODER}", lambda _: look())
    if isinstance(image, EmbeddedImage) and image.path.exists():
        place = f"{what} {DECODER} {image.offset}+{image.length}"
        return store.file_digest(image.path, place, lambda _: look())
    return look()


def _seed_link(plan: ChainPlan, sample: Sample, store: Store) -> Link:
    if plan.start == "text":
        if sample.text is None or not sample.text.strip():
            msg = f"{sample.id}: has no text: a text-first chain cannot start from it"
            raise DatasetError(msg)
        return Link("text", digest_text(sample.text), text=sample.text)

    def pixels() -> str:
        loaded = load_seed_image(sample)
        store.image_cache.add(loaded)
        return loaded.digest

    image = sample.image
    digest = pixels() if image is None else look_at(image, "pixels", pixels, store)
    return Link("image", digest, source=image)


def ask(
    plan: ChainPlan, generation: int, chains: Sequence[Chain], crew: ChainModels
) -> Callable[[], None]:
    """Ask for the next artifact of all chains that did not fail; generation counts from 1.

    Returns what gives it to the chains, once it is stored. Raises DamagedChainsError when a stored
    image that a step starts from is damaged; ModelError, CheckpointError and StoreError as they come.
    """
    runner = crew.player(plan, generation)
    alive = [chain for chain in chains if chain.failure is None]
    able, steps = _steps(plan, generation, alive, crew)
    if runner.progress is not None:
        who = "describer" if plan.describes(generation) else "generator"
        runner.progress.step = f"generation {generation} of {plan.generations}, {who}"
    with naming_damage(able, generation - 1):
        if plan.describes(generation):
            results = runner.describe(plan.describe, steps)
        else:
            results = runner.generate(steps)

    def give() -> None:
        for chain, step, result in zip(able, steps, results(), strict=True):
            _append(chain, generation, step.key, result)

    return give


def _steps(
    plan: ChainPlan, generation: int, chains: Sequence[Chain], crew: ChainModels
) -> tuple[Sequence[Chain], list[Step]]:
    """The chains that have such a step, and the step of each."""
    before = generation - 1
    describes = plan.describes(generation)
    runner = crew.player(plan, generation)
    prompt = plan.describe if describes else plan.generate
    if not describes:
        chains = _worded(plan, generation, chains)
    steps = []
    for chain in chains:
        link = chain.links[before]
        digest = link.digest if link.text is None else digest_text(plan.wording.apply(link.text))
        seed = derive_seed(plan.seed, chain.sample.id, generation)
        key = runner.key(prompt, seed, link.kind, digest)
        steps.append(Step(key, seed, _loader(plan, chain, before, crew.store)))
    return chains, steps


def _worded(plan: ChainPlan, generation: int, chains: Sequence[Chain]) -> list[Chain]:
    """The chains whose text leaves something to draw; the others fail here."""
    drawable = []
    for chain in chains:
        text = chain.links[generation - 1].text
        assert text is not None
        if plan.wording.apply(text).strip():
            drawable.append(chain)
        else:
            chain.failure = Failure("empty-text", f"nothing is left of {text[:80]!r}")
            chain.failed_at = generation
    return drawable


def _loader(plan: ChainPlan, chain: Chain, index: int, store: Store) -> Callable[[], object]:
    text = chain.links[index].text
    if text is None:
        return partial(load_link, chain, index, store)
    return partial(plan.drawing_prompt, text)


def _append(chain: Chain, generation: int, key: str, result: Result) -> None:
    if isinstance(result, Failure):
        chain.failure, chain.failed_at = result, generation
    elif isinstance(result, ImageRef):
        chain.links.append(Link("image", result.digest, key=key))
    else:
        assert isinstance(result, str)
        chain.links.append(Link("text", digest_text(result), text=result, key=key))
