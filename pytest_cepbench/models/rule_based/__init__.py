"""The embedded worlds' own models: `shapes:` and `tones:`, perfect, or worse by a known amount.

shapes:                                  an exact describer, generator, encoder, detector,
                                         interleaver, writer, judge and VQA model
shapes:?miss=0.1&recolor=0.05&swap=0.1   a describer or generator with its knobs turned
shapes:?mislabel=0.1                     a describer that names wrong patterns, where it is asked
                                         for them
shapes:?miss=0.1&drift=1&stop=0.05       an interleaver with its knobs turned
shapes:?flip=0.1&first=0.2               a judge with its knobs turned
shapes:?yes=0.5&doubt=0.1                a VQA model with its knobs turned
tones:                                   an exact describer, generator and encoder of sounds
tones:?miss=0.1&shift=0.1&swap=0.1       a describer or generator with its knobs turned
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench.artifacts import Modality, digest_json
from pytest_cepbench.datasets.shapes import WORLD_VERSION, Degradation
from pytest_cepbench.datasets.shapes.degrade import Knobs
from pytest_cepbench.datasets.shapes.questions import VERSION as QUESTIONS_VERSION
from pytest_cepbench.errors import RoleError, SpecError
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


@dataclass(frozen=True)
class _WorldRole:
    """How a world's model plays a role.

    knobs: class of its parameters; the base itself, which has none, for encoder and detector.
    load: makes the model from them.
    versions: what else than the world's version decides its answers.
    params: parameters that are no knobs.
    always_seeded: whether an answer depends on the seed with all knobs at zero, too.
    never_seeded: whether no knob draws at random.
    reads, makes: as of `BoundRole`.
    """

    knobs: type[Knobs]
    load: Callable[[Any], Model]
    versions: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    always_seeded: bool = False
    never_seeded: bool = False
    reads: frozenset[Modality] = READS
    makes: Modality = "image"


_ROLES: dict[RoleName, _WorldRole] = {
    "describer": _WorldRole(DescriberKnobs, ShapesDescriber),
    "generator": _WorldRole(Degradation, ShapesGenerator, always_seeded=True),
    "encoder": _WorldRole(Knobs, lambda _: ShapesEncoder()),
    "detector": _WorldRole(Knobs, lambda _: ShapesDetector(), params={"queries": "classes"}),
    "vqa": _WorldRole(VqaKnobs, ShapesVqa, {"questions": QUESTIONS_VERSION}, never_seeded=True),
}
"""Those of chains; `_arena_roles` has those of interleaved answers, whose world is another."""


def _arena_roles() -> dict[RoleName, _WorldRole]:
    from pytest_cepbench.datasets.shapes import arena
    from pytest_cepbench.models.rule_based import arena_models as models

    world = {"arena": arena.ARENA_VERSION}
    truth = world | {"truth": arena.TRUTH_VERSION, "margin": str(models.MARGIN)}
    return {
        "judge": _WorldRole(models.JudgeKnobs, models.ShapesJudge, truth),
        "writer": _WorldRole(arena.WriterDegradation, models.ShapesWriter, world),
        "interleaver": _WorldRole(
            arena.AnswerDegradation, models.ShapesInterleaver, world, always_seeded=True
        ),
    }


def _tones_roles() -> dict[RoleName, _WorldRole]:
    from pytest_cepbench.datasets.tones import ToneKnobs
    from pytest_cepbench.models.rule_based import tone_models as models

    return {
        "describer": _WorldRole(ToneKnobs, models.TonesDescriber, reads=_HEARS),
        "generator": _WorldRole(
            ToneKnobs, models.TonesGenerator, always_seeded=True, makes="sound"
        ),
        "encoder": _WorldRole(Knobs, lambda _: models.TonesEncoder(), reads=_HEARS),
    }


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
        raise SpecError(
            f"model spec {spec.text!r}: nothing but knobs can follow '{world}:', "
            f"got {spec.target!r}; write {world}: or {world}:?miss=0.1"
        )
    version = WORLD_VERSION
    if world == "tones":
        from pytest_cepbench.datasets.tones import TONES_VERSION

        version, played = TONES_VERSION, _tones_roles()[role]
    else:
        played = _ROLES.get(role) or _arena_roles()[role]
    knobs = parse_params(spec, played.knobs, f"the {world} {role}")
    return BoundRole(
        role=role,
        spec=spec.text,
        what=f"the {world} world's own {role}",
        fingerprint=digest_json({"world": version, "role": role, **played.versions}),
        adapter=f"{world}/1",
        load=lambda: played.load(knobs),
        params={**played.params, **knobs.turned},
        seeded=played.always_seeded or (bool(knobs.turned) and not played.never_seeded),
        resources=Resources(_BATCH),
        scores_answers=role == "judge",
        reads=played.reads,
        makes=played.makes,
    )
