"""Telling colors of detected objects by a dual encoder: GenEval's zero-shot rule on cut-outs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from pytest_cepbench.artifacts import Detection, Failure, digest_json, digest_text
from pytest_cepbench.chains import Chain, RoleRunner, Step, load_link, naming_damage
from pytest_cepbench.errors import MeasurementError, ModelError
from pytest_cepbench.metrics.constancy import SAME_VECTORS, spread_of_directions
from pytest_cepbench.metrics.geneval import (
    Prompt,
    SelectionSettings,
    ToColor,
    color_prompts,
    crop_object,
    objects_to_color,
    zero_shot_color,
)
from pytest_cepbench.store import Store, Vector
from pytest_cepbench.suites.measures.sanity_checks import one_vector

CROP_VERSION = 1
"""Enters the keys of cut-outs; raised when they are cut in another way."""

_FEWEST_CUTS = 8
"""Of which one vector is too much: a few objects may all have the same color."""


@dataclass(frozen=True)
class JudgedImage:
    """One image of a chain, the prompt it is judged by, and the objects found in it by class."""

    chain: Chain
    prompt: Prompt
    objects: Mapping[str, Sequence[Detection]]


def tell_colors(
    images: Sequence[JudgedImage],
    generation: int,
    settings: SelectionSettings,
    encoder: RoleRunner,
    store: Store,
) -> list[dict[ToColor, str] | Failure]:
    """For each image the color of every object whose color its prompt asks for.

    A failure where the encoder gave no usable vector of one of them.
    generation: at which the images stand in their chains. Raises MeasurementError where the encoder
    gives no vectors for the names of colors, ModelError and the others of the encoder,
    DamagedChainsError where a stored image is damaged.
    """
    wanted = [
        (number, target)
        for number, image in enumerate(images)
        for target in objects_to_color(image.prompt, image.objects, settings)
    ]
    chains = [images[number].chain for number, _ in wanted]
    steps = [
        _crop_step(chain, generation, target.detection, encoder, store)
        for chain, (_, target) in zip(chains, wanted, strict=True)
    ]
    with naming_damage(chains, generation):
        vectors = encoder.ask("encode_images", steps)
    _refuse_one_vector(steps, vectors, encoder)
    names = {target.name: _name_vectors(target.name, encoder) for _, target in wanted}
    colors: list[dict[ToColor, str]] = [{} for _ in images]
    failed: dict[int, Failure] = {}
    for (number, target), vector in zip(wanted, vectors, strict=True):
        if isinstance(vector, Failure):
            failed[number] = vector
        else:
            assert isinstance(vector, np.ndarray)
            colors[number][target] = zero_shot_color(vector[None], names[target.name])[0]
    return [failed.get(number, own) for number, own in enumerate(colors)]


def _refuse_one_vector(
    steps: Sequence[Step], vectors: Sequence[object], encoder: RoleRunner
) -> None:
    """Raise MeasurementError where many different cut-outs have one vector, and so one color."""
    different = {
        step.key: vector
        for step, vector in zip(steps, vectors, strict=True)
        if isinstance(vector, np.ndarray)
    }
    if len(different) < _FEWEST_CUTS:
        return
    if spread_of_directions(np.stack(list(different.values()))) <= SAME_VECTORS:
        raise MeasurementError(one_vector(encoder.bound.spec, len(different), "cut-out"))


def _crop_step(
    chain: Chain, generation: int, detection: Detection, encoder: RoleRunner, store: Store
) -> Step:
    link = chain.links[generation]
    # Named by the image and the place, so that what is known needs no decoding.
    place = {"crop": CROP_VERSION, "image": link.digest, "box": list(detection.box)}
    if detection.mask is not None:
        place["mask"] = asdict(detection.mask)

    def load() -> object:
        image = load_link(chain, generation, store)
        try:
            return None if image is None else crop_object(image, detection)
        except ValueError as error:
            raise ModelError(
                f"what the detector found in {chain.sample.id!r} cannot be cut out: {error}"
            ) from error

    return Step(encoder.key("", 0, "crop", digest_json(place)), 0, load)


def _name_vectors(name: str, encoder: RoleRunner) -> Vector:
    """(colors, templates, D) vectors of the texts that name a class in each color."""
    texts = color_prompts(name)
    steps = [
        Step(encoder.key("", 0, "text", digest_text(text)), 0, partial(str, text))
        for row in texts
        for text in row
    ]
    vectors = encoder.ask("encode_texts", steps)
    if any(isinstance(vector, Failure) for vector in vectors):
        raise MeasurementError(
            f"{encoder.bound.spec} gives no usable vectors for the colors of {name!r}"
        )
    rows: Vector = np.stack(vectors)  # type: ignore[arg-type] # no failure is left
    if spread_of_directions(rows) <= SAME_VECTORS:
        raise MeasurementError(one_vector(encoder.bound.spec, len(rows), "text"))
    return rows.reshape(len(texts), len(texts[0]), -1)
