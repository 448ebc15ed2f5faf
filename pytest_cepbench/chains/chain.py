"""Chains: the artifacts of one sample in order, and how to load them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains.chain_plan import Modality
from pytest_cepbench.datasets.sample import Sample, SeedImage
from pytest_cepbench.errors import DamagedChainsError, DamagedInputsError, ImageError
from pytest_cepbench.store import Store


@dataclass(frozen=True)
class Link:
    """One artifact of a chain.

    kind: its modality.
    digest: of its content; empty where it was not recorded.
    text: the text itself, None for images.
    key: of the step that made it, None for the start and for what another tool made.
    source: of an image that lies outside the store.
    """

    kind: Modality
    digest: str
    text: str | None = None
    key: str | None = None
    source: SeedImage | None = None

    @property
    def recorded(self) -> bool:
        """Whether the artifact is known; some layouts of other tools leave out the texts."""
        return bool(self.digest)


@dataclass
class Chain:
    """The chain of one sample, as far as it is grown.

    links: the start and one artifact per generation.
    failure: what stopped it; None while nothing did.
    failed_at: the generation that failed.
    """

    sample: Sample
    links: list[Link] = field(default_factory=list)
    failure: Failure | None = None
    failed_at: int | None = None

    def has(self, generation: int) -> bool:
        """Whether the artifact of a generation is there."""
        return generation < len(self.links) and self.links[generation].recorded


def load_link(chain: Chain, index: int, store: Store) -> Any:
    """The artifact as a role takes it: a text, a Pillow image, or None when it is damaged.

    Raises ImageError as `load_image`.
    """
    link = chain.links[index]
    if link.text is not None:
        return link.text
    return load_image(link.digest, link.source, f"{chain.sample.id}, generation {index}", store)


def load_image(digest: str, source: SeedImage | None, name: str, store: Store) -> Any:
    """An image as a role takes it, a Pillow image; None when it is damaged.

    source: where it lies outside the store; None where it is in the store.
    name: of what it is, for errors.
    Raises ImageError for an image outside the store that is gone or changed since it was read.
    """
    image = store.image_cache.get(digest)
    if image is None and source is None:
        image = store.get_image(digest)
    elif image is None and source is not None:
        try:
            image = source.load()
        except ImageError as error:
            raise ImageError(f"{name}: {error}") from error
        if image.digest != digest:
            raise ImageError(
                f"{name}: the image changed after the run had read it, and answers to it would be "
                "stored as answers to the one before: run again"
            )
    if image is None:
        return None
    store.image_cache.add(image)
    return image.to_pil()


@contextmanager
def naming_damage(chains: Sequence[Chain], index: int) -> Iterator[None]:
    """Turn damaged inputs of steps into the keys of the steps that made them.

    chains: one for each step.
    index: of the link that the steps start from. Seeds have no key: they are read from the data
        set anew.
    Raises DamagedChainsError.
    """
    try:
        yield
    except DamagedInputsError as damage:
        keys = [chains[i].links[index].key for i in damage.indices]
        raise DamagedChainsError([key for key in keys if key is not None]) from damage
