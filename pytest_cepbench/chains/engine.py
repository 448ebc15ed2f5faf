"""Growing the chains of many samples together: one step of all of them, then the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import DECODER, Failure, digest_text
from pytest_cepbench.chains.plan import PLACEHOLDER, ChainPlan, derive_seed
from pytest_cepbench.chains.runner import DamagedInputsError, RoleRunner, Step
from pytest_cepbench.datasets.sample import FileImage, Sample, load_seed_image
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.store import ImageRef, Result, Store


@dataclass(frozen=True)
class Crew:
    """Who plays: one runner per role, all on one store."""

    describer: RoleRunner
    generator: RoleRunner
    encoder: RoleRunner
    store: Store


@dataclass(frozen=True)
class Link:
    """One artifact of a chain.

    kind: "image" or "text". digest: of its content. text: the text itself, None for images.
    key: of the step that made it, None for the start.
    """

    kind: str
    digest: str
    text: str | None = None
    key: str | None = None


@dataclass
class Chain:
    """The telephone game of one sample, as far as it went.

    links: the start and one artifact per generation. failure, failed_at: what stopped it, and at
    which generation; None while nothing did.
    """

    sample: Sample
    links: list[Link] = field(default_factory=list)
    failure: Failure | None = None
    failed_at: int | None = None


def grow(plan: ChainPlan, samples: Sequence[Sample], crew: Crew) -> list[Chain]:
    """Grow the chain of every sample to its full length or its failure.

    Raises DatasetError naming every sample whose seed cannot be used, before any model is asked;
    DamagedChainsError when a stored image that a step starts from is damaged; ModelError,
    CheckpointError and StoreError as they come.
    """
    chains = _start(plan, samples, crew.store)
    for generation in range(1, plan.generations + 1):
        alive = [chain for chain in chains if chain.failure is None]
        _advance(plan, generation, alive, crew)
    return chains


class DamagedChainsError(Exception):
    """Images that chains need are damaged; keys: of the steps that made them."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"{len(keys)} images are damaged")
        self.keys = tuple(keys)


def load_link(chain: Chain, index: int, store: Store) -> Any:
    """The artifact as a role takes it: a text, a Pillow image, or None when it is damaged."""
    link = chain.links[index]
    if link.text is not None:
        return link.text
    if link.key is None:
        return load_seed_image(chain.sample).to_pil()
    image = store.get_image(link.digest)
    return None if image is None else image.to_pil()


def damaged_keys(chains: Sequence[Chain], index: int, damage: DamagedInputsError) -> list[str]:
    """Keys of the steps that made the damaged inputs; seeds are read from the data set anew."""
    keys = [chains[i].links[index].key for i in damage.indices]
    return [key for key in keys if key is not None]


def _start(plan: ChainPlan, samples: Sequence[Sample], store: Store) -> list[Chain]:
    chains, broken = [], []
    for sample in samples:
        try:
            chains.append(Chain(sample, [_seed_link(plan, sample, store)]))
        except DatasetError as error:
            broken.append(str(error))
    if broken:
        shown = "\n  ".join(broken[:20]) + ("\n  ..." if len(broken) > 20 else "")
        msg = f"{len(broken)} of {len(samples)} samples cannot be used:\n  {shown}"
        raise DatasetError(msg)
    return chains


def _seed_link(plan: ChainPlan, sample: Sample, store: Store) -> Link:
    if plan.start == "text":
        if sample.text is None or not sample.text.strip():
            msg = f"{sample.id}: has no text: a text-first chain cannot start from it"
            raise DatasetError(msg)
        return Link("text", digest_text(sample.text), text=sample.text)

    def pixels(_: Path) -> str:
        return load_seed_image(sample).digest

    if isinstance(sample.image, FileImage) and sample.image.path.exists():
        return Link("image", store.file_digest(sample.image.path, f"pixels {DECODER}", pixels))
    return Link("image", load_seed_image(sample).digest)


def _advance(plan: ChainPlan, generation: int, chains: Sequence[Chain], crew: Crew) -> None:
    before = generation - 1
    describes = plan.describes(generation)
    runner = crew.describer if describes else crew.generator
    prompt = plan.describe if describes else plan.generate
    steps = []
    for chain in chains:
        link = chain.links[before]
        seed = derive_seed(plan.seed, chain.sample.id, generation)
        key = runner.key(prompt, seed, link.kind, link.digest)
        steps.append(Step(key, seed, _loader(plan, chain, before, crew.store)))
    try:
        results = runner.describe(prompt, steps) if describes else runner.generate(steps)
    except DamagedInputsError as damage:
        raise DamagedChainsError(damaged_keys(chains, before, damage)) from damage
    for chain, step, result in zip(chains, steps, results, strict=True):
        _append(chain, generation, step.key, result)


def _loader(plan: ChainPlan, chain: Chain, index: int, store: Store) -> Any:
    text = chain.links[index].text
    if text is not None:
        prompt = plan.generate.replace(PLACEHOLDER, text)
        return lambda: prompt
    return lambda: load_link(chain, index, store)


def _append(chain: Chain, generation: int, key: str, result: Result) -> None:
    if isinstance(result, Failure):
        chain.failure, chain.failed_at = result, generation
    elif isinstance(result, ImageRef):
        chain.links.append(Link("image", result.digest, key=key))
    else:
        assert isinstance(result, str)
        chain.links.append(Link("text", digest_text(result), text=result, key=key))
