"""The embedded worlds' own models: `shapes:` and `tones:`, perfect, or worse by a known amount.

`shapes:` is exact in every role but the editor, `tones:` as describer, generator and encoder of
sounds; `shapes:?miss=0.1&recolor=0.05` has its knobs turned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_cepbench.artifacts import Modality, digest_json
from pytest_cepbench.datasets.shapes import WORLD_VERSION, Degradation
from pytest_cepbench.datasets.shapes.degrade import Knobs
from pytest_cepbench.datasets.shapes.questions import VERSION as QUESTIONS_VERSION
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.binding import BindContext, BoundRole, DetectedModel, Resources
from pytest_cepbench.models.protocols import READS, Model, RoleName
from pytest_cepbench.models.rule_based.scene_models import (
    DescriberKnobs,
    ShapesDescriber,
    ShapesDetector,
    ShapesEncoder,
    ShapesGenerator,
    ShapesVqa,
    VqaKnobs,
)
from pytest_cepbench.models.spec import SCHEMES, ModelSpec, parse_params

_BATCH = 64

_HEARS: frozenset[Modality] = frozenset(("text", "sound"))
"""What models of tones can be given."""


_ALWAYS_SEEDED = ("generator", "interleaver")
"""Roles whose answers depend on the seed with all knobs at zero, too."""

_NEVER_SEEDED = ("vqa",)
"""Roles that have no knob which draws at random."""


def _played(
    world: str, role: RoleName
) -> tuple[type[Knobs], Callable[[Any], Model], dict[str, str]]:
    """How a world's model plays a role; other worlds are not imported.

    Returns the class of its parameters (the base itself, which has none, for encoder and detector),
    what makes the model of them, and what else than the world's version decides its answers.
    """
    if world == "tones":
        from pytest_cepbench.datasets.tones import ToneKnobs
        from pytest_cepbench.models.rule_based import tone_models as tones

        if role == "encoder":
            return Knobs, lambda _: tones.TonesEncoder(), {}
        return ToneKnobs, tones.TonesDescriber if role == "describer" else tones.TonesGenerator, {}
    of_chains: dict[RoleName, tuple[type[Knobs], Callable[[Any], Model]]] = {
        "describer": (DescriberKnobs, ShapesDescriber),
        "generator": (Degradation, ShapesGenerator),
        "encoder": (Knobs, lambda _: ShapesEncoder()),
        "detector": (Knobs, lambda _: ShapesDetector()),
        "vqa": (VqaKnobs, ShapesVqa),
    }
    if role in of_chains:
        return *of_chains[role], {"questions": QUESTIONS_VERSION} if role == "vqa" else {}
    from pytest_cepbench.datasets.shapes import arena
    from pytest_cepbench.models.rule_based import arena_models as models

    versions = {"arena": arena.ARENA_VERSION}
    if role == "judge":
        versions |= {"truth": arena.TRUTH_VERSION, "margin": str(models.MARGIN)}
        return models.JudgeKnobs, models.ShapesJudge, versions
    if role == "writer":
        return arena.WriterDegradation, models.ShapesWriter, versions
    return arena.AnswerDegradation, models.ShapesInterleaver, versions


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
    (kind, make, versions), version = _played(world, role), WORLD_VERSION
    if world == "tones":
        from pytest_cepbench.datasets.tones import TONES_VERSION as version  # noqa: N811
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
