"""The embedded worlds' own models: `shapes:` and `tones:`, perfect, or worse by a known amount.

`shapes:` is exact in every role but the editor, `tones:` as describer, generator and encoder of
sounds; `shapes:?miss=0.1&recolor=0.05` has its knobs turned.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import get_type_hints

from pytest_cepbench.artifacts import Modality, digest_json
from pytest_cepbench.datasets.shapes import WORLD_VERSION
from pytest_cepbench.datasets.shapes.degrade import Knobs
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.binding import BindContext, BoundRole, DetectedModel, Resources
from pytest_cepbench.models.protocols import READS, RoleName
from pytest_cepbench.models.spec import SCHEMES, ModelSpec, parse_params

_BATCH = 64

_HEARS: frozenset[Modality] = frozenset(("text", "sound"))
"""What models of tones can be given."""


_ALWAYS_SEEDED = ("generator", "interleaver")
"""Roles whose answers depend on the seed with all knobs at zero, too."""

_NEVER_SEEDED = ("vqa",)
"""Roles that have no knob which draws at random."""

_MODELS: dict[tuple[str, RoleName], str] = {
    ("shapes", "describer"): "scene_models:ShapesDescriber",
    ("shapes", "generator"): "scene_models:ShapesGenerator",
    ("shapes", "encoder"): "scene_models:ShapesEncoder",
    ("shapes", "detector"): "scene_models:ShapesDetector",
    ("shapes", "vqa"): "scene_models:ShapesVqa",
    ("shapes", "interleaver"): "arena_models:ShapesInterleaver",
    ("shapes", "writer"): "arena_models:ShapesWriter",
    ("shapes", "judge"): "arena_models:ShapesJudge",
    ("tones", "describer"): "tone_models:TonesDescriber",
    ("tones", "generator"): "tone_models:TonesGenerator",
    ("tones", "encoder"): "tone_models:TonesEncoder",
}
"""The model of a world in a role; worlds that are not asked for are not imported. Its `knobs` say
the class of its parameters, and its `versions` what else than the world's decides its answers."""


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
    if (world, role) not in _MODELS:
        known = ", ".join(SCHEMES[world].roles)
        raise RoleError(f"{spec.text!r}: the {world} world has no {role}; it has {known}")
    if spec.target:
        raise spec.error(
            f"nothing but knobs can follow '{world}:', got {spec.target!r}; write {world}: or "
            f"{world}:?miss=0.1"
        )
    model = resolve_name(f"{__name__}.{_MODELS[world, role]}")
    kind: type[Knobs] | None = get_type_hints(model).get("knobs")
    knobs = parse_params(spec, kind or Knobs, f"the {world} {role}")
    versions = {"world": WORLD_VERSION, **getattr(model, "versions", {})}
    plays = world == "tones" and role == "generator"
    return BoundRole(
        role=role,
        spec=spec.text,
        what=f"the {world} world's own {role}",
        fingerprint=digest_json({"role": role, **versions}),
        adapter=f"{world}/1",
        load=lambda: model(knobs) if kind else model(),
        params={**({"queries": "classes"} if role == "detector" else {}), **knobs.turned},
        seeded=role in _ALWAYS_SEEDED or (bool(knobs.turned) and role not in _NEVER_SEEDED),
        resources=Resources(_BATCH),
        scores_answers=role == "judge",
        reads=READS if world == "shapes" or plays else _HEARS,
        makes="sound" if plays else "image",
    )
