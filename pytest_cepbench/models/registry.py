"""The schemes of model specs, and the provider that answers for each.

`SCHEMES` is the one table: parsing, binding, `--help`, docs and tests read it. A provider's module
is imported when a spec of its scheme is first used. To add a provider, write a module that ends in
`PROVIDER = Provider(...)` and enter it here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_cepbench.errors import CepError, SpecError
from pytest_cepbench.models import ROLE_NAMES

if TYPE_CHECKING:
    from pytest_cepbench.models.model_spec import ModelSpec
    from pytest_cepbench.models.protocols import BindContext, BoundRole, Model, RoleName

HUMAN, PRESET, REPLAY = "human", "preset", "replay"


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


@dataclass(frozen=True)
class Scheme:
    """A scheme of model specs, as far as it is known without importing its provider.

    name: what a spec begins with, before the colon; empty for folders and hub ids.
    example: a spec, for `--help` and docs.
    summary: what such a spec names, for people.
    roles: that its models can play, all together.
    module: defines PROVIDER; empty where a suite replaces the spec before any model is bound.
    served: whether its models work on a server: they need no device, and their key is here.
    """

    name: str
    example: str
    summary: str
    roles: tuple[RoleName, ...]
    module: str = ""
    served: bool = False

    @cached_property
    def provider(self) -> Provider:
        """The provider; imports its module. Raises SpecError where there is none."""
        if not self.module:
            raise SpecError(
                f"{self.name}: names {self.summary}, which no model can be bound to by itself"
            )
        provider: Provider = importlib.import_module(self.module).PROVIDER
        return provider


_HERE = "pytest_cepbench.models"

SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "",
            "checkpoints/step-8000",
            "a checkpoint: a folder, or the id of one on the Hugging Face hub",
            (
                "describer",
                "generator",
                "encoder",
                "detector",
                "judge",
                "writer",
                "editor",
                "interleaver",
                "vqa",
            ),
            f"{_HERE}.checkpoint_provider",
        ),
        Scheme(
            "shapes",
            "shapes:?miss=0.1",
            "the built-in rule-based models of the shapes world, exact or degraded by known "
            "amounts",
            (
                "describer",
                "generator",
                "encoder",
                "detector",
                "judge",
                "writer",
                "interleaver",
                "vqa",
            ),
            f"{_HERE}.rule_based",
        ),
        Scheme(
            "python",
            "python:package.module:factory",
            "a model of your own: an object that satisfies a role's Protocol",
            ROLE_NAMES,
            f"{_HERE}.python_model",
        ),
        Scheme(
            "openai",
            "openai:MODEL?base_url=URL&weights=FOLDER",
            "a model behind an OpenAI-compatible server",
            ("describer", "generator", "judge", "writer", "interleaver", "vqa"),
            f"{_HERE}.api.provider",
            served=True,
        ),
        Scheme(
            "serve",
            "serve:checkpoints/step-8000?engine=vllm",
            "a checkpoint behind a server that the run starts: vllm, sglang or transformers",
            ("describer", "judge", "writer", "vqa"),
            f"{_HERE}.serving.provider",
            served=True,
        ),
        Scheme(
            "unicom",
            "unicom:FP16-ViT-L-14-336px.pt?allow_pickle=true",
            "Unicom's released weights, one file without a configuration",
            ("encoder",),
            f"{_HERE}.encoders.unicom_encoder",
        ),
        Scheme(
            "cleanfid",
            "cleanfid:?weights=PATH",
            "clean-fid's Inception, one file without a configuration",
            ("encoder",),
            f"{_HERE}.encoders.inception_encoder",
        ),
        Scheme(
            HUMAN,
            "human:ratings/NAME",
            "people, whose votes or descriptions are in a ratings folder",
            ("judge", "describer"),
            f"{_HERE}.people",
        ),
        Scheme(PRESET, "preset:sd3-5", "settings of a suite for a generator", ("generator",)),
        Scheme(
            REPLAY,
            "replay:FOLDER",
            "chains that were made elsewhere, in the place of describer and generator",
            (),
        ),
    )
}


def list_schemes() -> Iterator[str]:
    """One line for each scheme: an example, what it names and its roles; for `--help` and docs."""
    width = max(len(scheme.example) for scheme in SCHEMES.values())
    for scheme in SCHEMES.values():
        roles = f" ({', '.join(scheme.roles)})" if scheme.roles else ""
        yield f"{scheme.example:{width}}  {scheme.summary}{roles}"


def detect(spec: ModelSpec) -> DetectedModel:
    """Find out what a spec names and which roles it can play, without loading a model.

    Raises CheckpointError when there is nothing to detect, SpecError for a `python:` model that
    cannot be imported and for a scheme that names no model.
    """
    return SCHEMES[spec.scheme].provider.detect(spec)


def bind(
    spec: ModelSpec, role: RoleName, context: BindContext, *, force: bool = False
) -> BoundRole:
    """Resolve a spec for one role: identity and parameters now, the model when it is needed.

    force: try a checkpoint in a role that detection does not give it, because the user said so.
    Raises RoleError when the model cannot play the role, CheckpointError for damaged or missing
    files, SpecError for parameters that are unknown or wrong.
    """
    context = replace(context, force=force)
    bound = SCHEMES[spec.scheme].provider.bind(spec, role, context)
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
    SCHEMES[spec.scheme].provider.check_installed(spec)


def weights_bytes(spec: ModelSpec, device: str | None = None) -> int | None:
    """Bytes that a model's weights take once they are loaded in the precision of its spec.

    device: where it will run (cpu or cuda), instead of the one that follows from the spec.
    None where they are unknown: for `python:` models, built-in and served ones, for weights that
    are not here yet, and for a spec that is wrong, which binding explains.
    """
    try:
        return SCHEMES[spec.scheme].provider.weights_bytes(spec, device)
    except (CepError, OSError, ValueError):
        return None


def features_name(spec: ModelSpec) -> str:
    """A short name of an encoder's features, for labels: "Inception", "clip-vit-base-patch32"."""
    return SCHEMES[spec.scheme].provider.features_name(spec)


def weights_present(spec: ModelSpec) -> bool:
    """True where an encoder can be used without a step that only its user can take.

    False only for clean-fid's Inception without its weights, which a site of their own gives out;
    what libraries fetch or a folder lacks shows at binding. Raises SpecError.
    """
    return SCHEMES[spec.scheme].provider.weights_present(spec)
