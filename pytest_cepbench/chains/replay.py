"""Chains that another tool has generated, read instead of grown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.outcome import FailureKind
from pytest_cepbench.chains.chain import Chain, Link
from pytest_cepbench.chains.chain_plan import ChainPlan
from pytest_cepbench.chains.growth import cached_look, start_chains
from pytest_cepbench.chains.validation import admit_image, admit_text
from pytest_cepbench.datasets.replay import Replay
from pytest_cepbench.datasets.sample import Sample, SeedImage
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store import Store

_UNRECORDED = ""

_FAILED = ": "  # between kind and detail of a failure that is kept of a file; in no digest


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
            link = _link(plan, chain.sample, generation, replay, store)
            if isinstance(link, Failure):
                chain.failure, chain.failed_at = link, generation
                break
            chain.links.append(link)
    return chains


def _link(
    plan: ChainPlan, sample: Sample, generation: int, replay: Replay, store: Store
) -> Link | Failure:
    modality = plan.modality(generation)
    if not replay.records(plan.start, generation):
        return Link(modality, _UNRECORDED)
    artifact = replay.artifact(sample, plan.start, generation)
    if artifact is None:
        return Failure("missing", f"{replay.path} holds no {modality} of it")
    if isinstance(artifact, str):
        text = admit_text(artifact)
        return text if isinstance(text, Failure) else Link("text", digest_text(text), text=text)
    return _image_link(artifact, store)


def _image_link(image: SeedImage, store: Store) -> Link | Failure:
    def check() -> str:
        admitted = admit_image(image.load().to_pil())
        if isinstance(admitted, Failure):
            return f"{admitted.kind}{_FAILED}{admitted.detail}"
        return admitted.digest

    try:
        outcome = cached_look(image, "replayed", check, store)
    except ImageError as error:
        return Failure("bad-image", str(error))
    kind, failed, detail = outcome.partition(_FAILED)
    if failed:
        return Failure(cast("FailureKind", kind), detail)
    return Link("image", outcome, source=image)
