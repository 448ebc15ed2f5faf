"""Chains: the plan of a suite's chains, the artifacts of one sample in order, how to load them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from pytest_cepbench.artifacts import MODALITIES, Failure, Modality
from pytest_cepbench.artifacts.modality import as_given, modality_of
from pytest_cepbench.datasets.sample import Sample, Seed
from pytest_cepbench.errors import ArtifactError, DamagedChainsError, DamagedInputsError
from pytest_cepbench.store import Store

PLACEHOLDER = "{description}"

_SEEDS = 2**32  # NumPy and many servers take no larger seed

_CLEANED = "cleaned as by MMGenBench's code"
"""Names the cleaning in baselines; another text makes them incomparable. It was "cleaned" when
curly and single quotes and other tokens were taken off as well."""


@dataclass(frozen=True)
class CaptionRules:
    """How a suite shortens and cleans a description before it is drawn.

    clean: take off what MMGenBench's released code takes off, in its order and each once: a final
        `</s>`; every `<|im_end|>` of a text that ends with one; straight double quotes at both
        ends; line ends at the end; spaces at both ends. Single and curly quotes stay, and tokens
        of other chat models, which their tokenizers leave out. A text that ends with a quotation
        (`a sign reading "STOP"`) loses its last quote there as well.
    max_words: keep this many words, as separated by spaces; None keeps all.
    Source: MMGenBench's released code does both (70 words); its paper mentions neither.
    """

    clean: bool = False
    max_words: int | None = None

    def apply(self, text: str) -> str:
        """The text as the generator gets it; empty where there was nothing but quotes."""
        if self.clean:
            text = text.removesuffix("</s>")
            if text.endswith("<|im_end|>"):
                text = text.replace("<|im_end|>", "")
            text = text.strip('"').rstrip("\n").strip(" ")
        if self.max_words is not None:
            text = " ".join(text.split(" ")[: self.max_words])
        return text

    def __str__(self) -> str:
        parts = [_CLEANED] if self.clean else []
        if self.max_words is not None:
            parts.append(f"at most {self.max_words} words")
        return ", ".join(parts) or "as they are"


AS_THEY_ARE = CaptionRules()


@dataclass(frozen=True)
class ChainPlan:
    """How the chains of a suite are grown.

    start: "image" grows I0 T1 I2 T3 ..., "text" grows T0 I1 T2 I3 ...; "sound" as "image".
    generations: transformations of a whole chain; one iteration is two of them.
    describe: the describer's prompt.
    generate: the generator's prompt, holding `{description}`.
    seed: the run's seed, from which every step's seed is derived.
    caption_rules: rules for a description before it is drawn.
    makes: what its generator makes: images or sounds.
    """

    start: Modality
    generations: int
    describe: str
    generate: str
    seed: int = 0
    caption_rules: CaptionRules = AS_THEY_ARE
    makes: Modality = "image"

    @property
    def iterations(self) -> int:
        """T: how often a chain comes back to the modality of its start."""
        return self.generations // 2

    def describes(self, generation: int) -> bool:
        """Whether this generation (counted from 1) is a description rather than a drawing."""
        return (generation % 2 == 1) == (self.start != "text")

    def role(self, generation: int) -> Literal["describer", "generator"]:
        """The role whose step a generation is."""
        return "describer" if self.describes(generation) else "generator"

    def drawing_prompt(self, description: str) -> str:
        """The generator's prompt for a description."""
        return self.generate.replace(PLACEHOLDER, self.caption_rules.apply(description))

    def modality(self, generation: int) -> Modality:
        """Of the artifact at a generation, 0 being the start."""
        if generation == 0:
            return self.start
        return "text" if self.describes(generation) else self.makes


def derive_seed(run_seed: int, sample_id: str, generation: int) -> int:
    """Seed of one step, in [0, 2**32): the same in any shard and on any worker."""
    name = f"{run_seed}\0{sample_id}\0{generation}".encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(name).digest()[:8], "big") % _SEEDS


@dataclass(slots=True)
class Link:
    """One artifact of a chain.

    kind: its modality.
    digest: of its content; empty where it was not recorded.
    text: the text itself, None for what is kept as a file.
    key: of the step that made it, None for the start and for what another tool made.
    source: of an artifact that lies outside the store.
    """

    kind: Modality
    digest: str
    text: str | None = None
    key: str | None = None
    source: Seed | None = None

    @property
    def recorded(self) -> bool:
        """Whether the artifact is known; some layouts of other tools leave out the texts."""
        return bool(self.digest)


@dataclass(slots=True)
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
    """The artifact as a role takes it: a text, a Pillow image, a sound; None when it is damaged.

    Raises ArtifactError as `load_artifact`.
    """
    link = chain.links[index]
    if link.text is not None:
        return link.text
    name = f"{chain.sample.id}, generation {index}"
    return load_artifact(link.digest, link.source, name, store, link.kind)


def load_artifact(
    digest: str, source: Seed | None, name: str, store: Store, kind: Modality = "image"
) -> Any:
    """An artifact as a role takes it, a Pillow image or a sound; None when it is damaged.

    source: where it lies outside the store; None where it is in the store.
    name: of what it is, for errors.
    kind: of it, as far as is known.
    Raises ArtifactError for one outside the store that is gone or changed since it was read.
    """
    artifact = store.artifact_cache.get(digest)
    if artifact is None and source is None:
        artifact = store.get_artifact(digest, kind)
    elif artifact is None and source is not None:
        try:
            artifact = source.load()
        except ArtifactError as error:
            raise type(error)(f"{name}: {error}") from error
        if artifact.digest != digest:
            kind = modality_of(artifact)
            raise MODALITIES[kind].refusal(
                f"{name}: the {kind} changed after the run had read it, and answers to it would be "
                "stored as answers to the one before: run again"
            )
    if artifact is None:
        return None
    store.artifact_cache.add(artifact)
    return as_given(artifact)


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
