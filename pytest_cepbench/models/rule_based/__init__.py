"""The embedded worlds' own models: `shapes:` and `tones:`, perfect, or worse by a known amount.

`shapes:` is exact in every role but the editor, `tones:` as describer, generator and encoder of
sounds; `shapes:?miss=0.1&recolor=0.05` has its knobs turned.
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


def _played(world: str, role: RoleName) -> _WorldRole:
    """How a world's model plays a role; other worlds are not imported."""
    if world == "tones":
        from pytest_cepbench.datasets.tones import ToneKnobs
        from pytest_cepbench.models.rule_based import tone_models as tones

        if role == "describer":
            return _WorldRole(ToneKnobs, tones.TonesDescriber, reads=_HEARS)
        if role == "encoder":
            return _WorldRole(Knobs, lambda _: tones.TonesEncoder(), reads=_HEARS)
        return _WorldRole(ToneKnobs, tones.TonesGenerator, always_seeded=True, makes="sound")
    of_chains: dict[RoleName, _WorldRole] = {
        "describer": _WorldRole(DescriberKnobs, ShapesDescriber),
        "generator": _WorldRole(Degradation, ShapesGenerator, always_seeded=True),
        "encoder": _WorldRole(Knobs, lambda _: ShapesEncoder()),
        "detector": _WorldRole(Knobs, lambda _: ShapesDetector(), params={"queries": "classes"}),
        "vqa": _WorldRole(VqaKnobs, ShapesVqa, {"questions": QUESTIONS_VERSION}, never_seeded=True),
    }
    if role in of_chains:
        return of_chains[role]
    from pytest_cepbench.datasets.shapes import arena
    from pytest_cepbench.models.rule_based import arena_models as models

    versions = {"arena": arena.ARENA_VERSION}
    if role == "judge":
        versions |= {"truth": arena.TRUTH_VERSION, "margin": str(models.MARGIN)}
        return _WorldRole(models.JudgeKnobs, models.ShapesJudge, versions)
    if role == "writer":
        return _WorldRole(arena.WriterDegradation, models.ShapesWriter, versions)
    knobs = arena.AnswerDegradation
    return _WorldRole(knobs, models.ShapesInterleaver, versions, always_seeded=True)


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
    played, version = _played(world, role), WORLD_VERSION
    if world == "tones":
        from pytest_cepbench.datasets.tones import TONES_VERSION as version  # noqa: N811
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
