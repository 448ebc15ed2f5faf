"""The embedded worlds' own models: `shapes:` and `tones:`, perfect, or worse by a known amount.

`shapes:` is exact in every role but the editor, `tones:` as describer, generator and encoder of
sounds; `shapes:?miss=0.1&recolor=0.05` has its knobs turned. The models of tones are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import Modality, Sound, digest_json
from pytest_cepbench.datasets import tones
from pytest_cepbench.datasets.shapes import WORLD_VERSION, Degradation, arena
from pytest_cepbench.datasets.shapes.degrade import Knobs
from pytest_cepbench.datasets.shapes.questions import VERSION as QUESTIONS_VERSION
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.binding import BindContext, BoundRole, DetectedModel, Resources
from pytest_cepbench.models.protocols import READS, FloatArray, Model, RoleName
from pytest_cepbench.models.rule_based import arena_models, scene_models
from pytest_cepbench.models.spec import SCHEMES, ModelSpec, parse_params


@dataclass(frozen=True)
class TonesDescriber:
    """Describes the tune that it hears, degraded by its parameters."""

    knobs: tones.ToneKnobs

    def describe(
        self,
        images: Sequence[Sound],
        prompt: str,  # noqa: ARG002 - the Protocol's; there is one way to describe a tune
        seeds: Sequence[int],
    ) -> list[str]:
        """The text of each sound; the empty text where the answer is blank."""
        tunes = (
            tones.degrade_tune(tones.parse_sound(sound), self.knobs, seed)
            for sound, seed in zip(images, seeds, strict=True)
        )
        return ["" if tune is None else tones.tune_text(tune) for tune in tunes]


@dataclass(frozen=True)
class TonesGenerator:
    """Plays the tune of a text, degraded by its parameters; the seed also decides the jitter."""

    knobs: tones.ToneKnobs

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Sound]:
        """A sound of each text; all zeros where the answer is blank."""
        return [
            tones.render(tones.degrade_tune(tones.parse_text(text), self.knobs, seed) or (), seed)
            for text, seed in zip(texts, seeds, strict=True)
        ]


@dataclass(frozen=True)
class TonesEncoder:
    """Features of the tune that a sound plays or a text tells of, in one space."""

    def encode_sounds(self, sounds: Sequence[Sound]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([tones.features(tones.parse_sound(sound)) for sound in sounds])

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([tones.features(tones.parse_text(text)) for text in texts])

    def encode_images(self, _: Sequence[object]) -> FloatArray:
        """Raises RoleError."""
        raise RoleError("tones: hears sounds and reads texts; it sees no images")


# -- binding ---------------------------------------------------------------------------------------

_BATCH = 64

_HEARS: frozenset[Modality] = frozenset(("text", "sound"))
"""What models of tones can be given."""

_ALWAYS_SEEDED = ("generator", "interleaver")
"""Roles whose answers depend on the seed with all knobs at zero, too."""

_NEVER_SEEDED = ("vqa",)
"""Roles that have no knob which draws at random."""

_ARENA = {"arena": arena.ARENA_VERSION}

_MODELS: Mapping[
    str, Mapping[RoleName, tuple[type[Knobs], Callable[[Any], Model], Mapping[str, str]]]
] = {
    "shapes": {
        "describer": (scene_models.DescriberKnobs, scene_models.ShapesDescriber, {}),
        "generator": (Degradation, scene_models.ShapesGenerator, {}),
        "encoder": (Knobs, lambda _: scene_models.ShapesEncoder(), {}),
        "detector": (Knobs, lambda _: scene_models.ShapesDetector(), {}),
        "vqa": (scene_models.VqaKnobs, scene_models.ShapesVqa, {"questions": QUESTIONS_VERSION}),
        "judge": (
            arena_models.JudgeKnobs,
            arena_models.ShapesJudge,
            {**_ARENA, "truth": arena.TRUTH_VERSION, "margin": str(arena_models.MARGIN)},
        ),
        "writer": (arena.WriterDegradation, arena_models.ShapesWriter, _ARENA),
        "interleaver": (arena.AnswerDegradation, arena_models.ShapesInterleaver, _ARENA),
    },
    "tones": {
        "describer": (tones.ToneKnobs, TonesDescriber, {}),
        "generator": (tones.ToneKnobs, TonesGenerator, {}),
        "encoder": (Knobs, lambda _: TonesEncoder(), {}),
    },
}
"""By world and role: the class of the parameters (the base itself, which has none, for encoder and
detector), what makes the model of them, and what else than the world's version decides answers."""


def detect(spec: ModelSpec) -> DetectedModel:
    """What `shapes:` or `tones:` is."""
    roles = SCHEMES[spec.scheme].roles
    if spec.scheme == "shapes":
        return DetectedModel("the built-in world of shapes", roles)
    return DetectedModel("the built-in world of tones", roles, reads=_HEARS, makes="sound")


def bind(spec: ModelSpec, role: RoleName, _: BindContext) -> BoundRole:
    """`shapes:` or `tones:` in one role.

    Raises SpecError when something follows the colon but knobs, or a knob is unknown, not a
    number, out of [0, 1], or given to a role that has none; RoleError for a role that the world
    does not have.
    """
    world = spec.scheme
    if role not in SCHEMES[world].roles:
        known = ", ".join(SCHEMES[world].roles)
        raise RoleError(f"{spec.text!r}: the {world} world has no {role}; it has {known}")
    if spec.target:
        raise spec.error(
            f"nothing but knobs can follow '{world}:', got {spec.target!r}; write {world}: or "
            f"{world}:?miss=0.1"
        )
    kind, make, versions = _MODELS[world][role]
    version = WORLD_VERSION if world == "shapes" else tones.TONES_VERSION
    knobs = parse_params(spec, kind, f"the {world} {role}")
    plays = world == "tones" and role == "generator"
    return BoundRole(
        role=role,
        spec=spec.text,
        what=f"the {world} world's own {role}",
        fingerprint=digest_json({"world": version, "role": role, **versions}),
        adapter=f"{world}/1",
        load=lambda: make(knobs),
        params={**({"queries": "classes"} if role == "detector" else {}), **knobs.turned},
        seeded=role in _ALWAYS_SEEDED or (bool(knobs.turned) and role not in _NEVER_SEEDED),
        resources=Resources(_BATCH),
        scores_answers=role == "judge",
        reads=READS if world == "shapes" or plays else _HEARS,
        makes="sound" if plays else "image",
    )
