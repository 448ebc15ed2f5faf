"""From a model spec to the roles it can play, and to one role bound and ready to load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    complete_checkpoint,
    inspect_checkpoint,
)
from pytest_cepbench.models.protocols import (
    UNIFIED_ROLES,
    BindContext,
    BoundRole,
    Model,
    RoleName,
)
from pytest_cepbench.models.spec import API, ENCODER_SCHEMES, ModelSpec
from pytest_cepbench.models.torch_runtime import require


@dataclass(frozen=True)
class DetectedModel:
    """What a model spec was taken for.

    what: architecture, pipeline class or factory, for people.
    roles: the roles it can play; empty where that could not be told.
    because: why these roles or why none, completing the sentence "it ..."; may be empty.
    unified: whether it is one model that describes and generates, so that both are under test.
    """

    what: str
    roles: tuple[RoleName, ...]
    because: str = ""
    unified: bool = False


def detect(spec: ModelSpec) -> DetectedModel:
    """Find out what a spec names and which roles it can play, without loading a model.

    Raises CheckpointError when there is nothing to detect, SpecError for a `python:` model that
    cannot be imported.
    """
    if spec.scheme == "shapes":
        from pytest_cepbench.models.rule_based import SHAPES_ROLES

        return DetectedModel("the built-in world of shapes", SHAPES_ROLES)
    if spec.scheme == API:
        from pytest_cepbench.models.api import API_ROLES, detect_api

        # A name tells no role: which one is under test, the user says or the other options leave.
        return DetectedModel(detect_api(spec), API_ROLES)
    if spec.scheme == "python":
        from pytest_cepbench.models.python_model import make_model, roles_of

        model = make_model(spec)
        roles = roles_of(model)
        return DetectedModel(spec.target, roles, unified=_does_both(roles))
    if spec.scheme in ENCODER_SCHEMES:
        from pytest_cepbench.models.encoders import describe_encoder_scheme

        return DetectedModel(describe_encoder_scheme(spec), ("encoder",), "embeds images")
    checkpoint = inspect_checkpoint(spec)
    roles = checkpoint.roles
    return DetectedModel(checkpoint.what, roles, checkpoint.because, unified=_does_both(roles))


def _does_both(roles: tuple[RoleName, ...]) -> bool:
    return set(UNIFIED_ROLES) <= set(roles)


def bind(
    spec: ModelSpec, role: RoleName, context: BindContext, *, force: bool = False
) -> BoundRole:
    """Resolve a spec for one role: identity and parameters now, the model when it is needed.

    force: try a checkpoint in a role that detection does not give it, because the user said so.
    Raises RoleError when the model cannot play the role, CheckpointError for damaged or missing
    files, SpecError for parameters that are unknown or wrong.
    """
    bound = _resolve(spec, role, context, force=force)
    files, load = bound.files, bound.load
    if files is None:
        return bound

    def load_unchanged() -> Model:
        with files.unchanged():
            return load()

    return replace(bound, load=load_unchanged)


def _resolve(spec: ModelSpec, role: RoleName, context: BindContext, *, force: bool) -> BoundRole:
    """As `bind`; what the adapter gives loads whatever lies there by then."""
    if spec.scheme == "shapes":
        from pytest_cepbench.models.rule_based import bind_shapes

        return bind_shapes(spec, role)
    if spec.scheme == API:
        from pytest_cepbench.models.api import bind_api

        return bind_api(spec, role, context)
    if spec.scheme == "python":
        from pytest_cepbench.models.python_model import bind_python

        return bind_python(spec, role, context)
    if spec.scheme in ENCODER_SCHEMES:
        from pytest_cepbench.models.encoders import bind_encoder_scheme

        return bind_encoder_scheme(spec, role, context)
    if role == "judge":
        msg = (
            f"{spec.text!r} cannot be the judge: a judge is a model behind a server, which can serve a "
            "checkpoint too (openai:MODEL?base_url=URL&weights=FOLDER), or of your own (python:)"
        )
        raise RoleError(msg)
    checkpoint = inspect_checkpoint(spec)
    if role not in checkpoint.roles and not force:
        raise RoleError(_wrong_role(spec, role, checkpoint))
    complete_checkpoint(spec, checkpoint)
    return _adapter(role, checkpoint)(spec, checkpoint, context)


def require_libraries(spec: ModelSpec) -> None:
    """Raise MissingDependencyError where a spec names a checkpoint and torch is not installed.

    What else its library needs is known only when it is bound, for which its weights are read. A
    served model needs the client alone.
    """
    if spec.scheme == API:
        from pytest_cepbench.models.api import require_client

        require_client(spec)
    elif spec.scheme not in ("shapes", "python"):
        require("torch")


def _adapter(
    role: RoleName, checkpoint: Checkpoint
) -> Callable[[ModelSpec, Checkpoint, BindContext], BoundRole]:
    # Each role's libraries are its own: a describer must bind where diffusers is not installed.
    if role in UNIFIED_ROLES and (
        _does_both(checkpoint.roles) or (role == "generator" and "describer" in checkpoint.roles)
    ):
        from pytest_cepbench.models.unified import bind_unified

        return partial(bind_unified, role)
    if role == "describer":
        from pytest_cepbench.models.describers import bind_describer

        return bind_describer
    if role == "generator":
        from pytest_cepbench.models.generators import bind_generator

        return bind_generator
    if role == "detector":
        from pytest_cepbench.models.detectors import bind_detector

        return bind_detector
    from pytest_cepbench.models.encoders import bind_encoder

    return bind_encoder


def _wrong_role(spec: ModelSpec, role: RoleName, checkpoint: Checkpoint) -> str:
    found = f"{spec.text!r} is a {checkpoint.what}: it {checkpoint.because}"
    if checkpoint.roles:
        able = " and ".join(checkpoint.roles)
        return (
            f"{found}, so it can be the {able}, not the {role}. Give it as --{checkpoint.roles[0]}"
        )
    return (
        f"{found}, so no role could be told from its configuration, and not that of the {role}. "
        f"To try it all the same, name the role: --{role}, or --model with --cep-role={role}"
    )
