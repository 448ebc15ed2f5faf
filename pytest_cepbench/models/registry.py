"""The provider that answers for the specs of a scheme, and what is asked of it.

A provider's module, which `schemes.SCHEMES` names, is imported when a spec of its scheme is first
used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_cepbench.errors import CepError, SpecError
from pytest_cepbench.models.schemes import SCHEMES, Scheme

if TYPE_CHECKING:
    from pytest_cepbench.models.model_spec import ModelSpec
    from pytest_cepbench.models.protocols import BindContext, BoundRole, Model, RoleName


@dataclass(frozen=True)
class DetectedModel:
    """A model as its spec or its configuration tells, before it is bound.

    what: architecture, pipeline class or factory, for people.
    roles: the roles it can play; empty where its configuration tells none.
    because: why these roles or why none, completing the sentence "it ..."; may be empty.
    unified: whether it is one model that describes and generates, so that both are under test.
    """

    what: str
    roles: tuple[RoleName, ...]
    because: str = ""
    unified: bool = False


def _target_name(spec: ModelSpec) -> str:
    return spec.target.rstrip("/").rpartition("/")[2].rpartition(":")[2] or spec.scheme


@dataclass(frozen=True)
class Provider:
    """The functions that answer for the specs of one scheme, none of which loads a model.

    detect: names the model and its roles; raises as `detect`.
    bind: resolves a spec for a role; raises as `bind`.
    check_installed: raises MissingDependencyError where a library is missing that every model
        needs.
    weights_bytes: bytes of the loaded weights on a device (cpu, cuda; None: the spec's own); None
        where they are unknown. May raise CepError, OSError and ValueError for a spec that is wrong.
    features_name: a short name of an encoder's features, for labels.
    weights_present: whether an encoder can be used without a step that only its user can take.
    """

    detect: Callable[[ModelSpec], DetectedModel]
    bind: Callable[[ModelSpec, RoleName, BindContext], BoundRole]
    check_installed: Callable[[ModelSpec], None] = lambda _: None
    weights_bytes: Callable[[ModelSpec, str | None], int | None] = lambda _spec, _device: None
    features_name: Callable[[ModelSpec], str] = _target_name
    weights_present: Callable[[ModelSpec], bool] = lambda _: True


def provider_of(scheme: Scheme) -> Provider:
    """The provider of a scheme; imports its module. Raises SpecError where there is none."""
    if not scheme.module:
        raise SpecError(
            f"{scheme.name}: names {scheme.summary}, which no model can be bound to by itself"
        )
    provider: Provider = importlib.import_module(scheme.module).PROVIDER
    return provider


def detect(spec: ModelSpec) -> DetectedModel:
    """Find out what a spec names and which roles it can play, without loading a model.

    Raises CheckpointError when there is nothing to detect, SpecError for a `python:` model that
    cannot be imported and for a scheme that names no model.
    """
    return provider_of(SCHEMES[spec.scheme]).detect(spec)


def bind(
    spec: ModelSpec, role: RoleName, context: BindContext, *, force: bool = False
) -> BoundRole:
    """Resolve a spec for one role: identity and parameters now, the model when it is needed.

    force: try a checkpoint in a role that detection does not give it, because the user said so.
    Raises RoleError when the model cannot play the role, CheckpointError for damaged or missing
    files, SpecError for parameters that are unknown or wrong.
    """
    context = replace(context, force=force)
    bound = provider_of(SCHEMES[spec.scheme]).bind(spec, role, context)
    files, load = bound.files, bound.load
    if files is None:
        return bound

    def load_unchanged() -> Model:
        with files.unchanged():
            return load()

    return replace(bound, load=load_unchanged)


def check_installed(spec: ModelSpec) -> None:
    """Raise MissingDependencyError where a library is missing that every model of the scheme needs.

    The other libraries of a checkpoint are known only when it is bound, for which its weights are
    read. A served model needs the client alone.
    """
    provider_of(SCHEMES[spec.scheme]).check_installed(spec)


def weights_bytes(spec: ModelSpec, device: str | None = None) -> int | None:
    """Bytes that a model's weights take once they are loaded in the precision of its spec.

    device: where it will run (cpu or cuda), instead of the one that follows from the spec.
    None where they are unknown: for `python:` models, built-in and served ones, for weights that
    are not here yet, and for a spec that is wrong, which binding explains.
    """
    try:
        return provider_of(SCHEMES[spec.scheme]).weights_bytes(spec, device)
    except (CepError, OSError, ValueError):
        return None


def features_name(spec: ModelSpec) -> str:
    """A short name of an encoder's features, for labels: "Inception", "clip-vit-base-patch32"."""
    return provider_of(SCHEMES[spec.scheme]).features_name(spec)


def weights_present(spec: ModelSpec) -> bool:
    """True where an encoder can be used without a step that only its user can take.

    False only for clean-fid's Inception without its weights, which a site of their own gives out;
    what libraries fetch or a folder lacks shows at binding. Raises SpecError.
    """
    return provider_of(SCHEMES[spec.scheme]).weights_present(spec)
