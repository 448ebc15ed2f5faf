"""From `serve:CHECKPOINT?...` to a bound role, without starting a server."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import RoleError, SpecError, unknown_name
from pytest_cepbench.models.api import provider as api
from pytest_cepbench.models.api.client import ApiClient
from pytest_cepbench.models.api.endpoint import refuse_secrets, without_secrets
from pytest_cepbench.models.api.roles import ApiModel
from pytest_cepbench.models.binding import (
    BindContext,
    BoundRole,
    CoveredFiles,
    DetectedModel,
    HashFile,
)
from pytest_cepbench.models.checkpoints.binding import check_role
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, fingerprint
from pytest_cepbench.models.checkpoints.checkpoint_files import list_files
from pytest_cepbench.models.checkpoints.inspection import complete_checkpoint, inspect_checkpoint
from pytest_cepbench.models.checkpoints.parameters import OF_CHECKPOINTS
from pytest_cepbench.models.protocols import Model, RoleName
from pytest_cepbench.models.serving.engines import ENGINES, ServeParams, ServerPlan, find_program
from pytest_cepbench.models.serving.run_servers import own_servers
from pytest_cepbench.models.spec import SCHEMES, ModelSpec, parse_parts
from pytest_cepbench.models.text_model.parameters import day_settings

ADAPTER = f"serve/1+{api.ADAPTER}"

_ROLES = SCHEMES["serve"].roles

_DATED = (
    "its chat template asks for today, and the engine tells: texts of other days answer other "
    "prompts (a checkpoint that the run loads itself is told one day)"
)


def _engine(spec: ModelSpec) -> str:
    """Raises SpecError for an engine that is not known."""
    name = spec.params.get("engine", ServeParams.engine)
    if name not in ENGINES:
        raise spec.error(unknown_name("engine", name, ENGINES))
    return name


def _inspect(spec: ModelSpec) -> Checkpoint:
    """The checkpoint, with the roles that it can play behind a server.

    Raises SpecError where none is named, and where the spec holds a key.
    """
    refuse_secrets(spec)
    if not spec.target.strip():
        raise spec.error(
            f"no checkpoint is named; write serve:FOLDER?engine=NAME, with one of "
            f"{', '.join(ENGINES)}"
        )
    known = (*OF_CHECKPOINTS, "trust_remote_code")
    params = {name: value for name, value in spec.params.items() if name in known}
    checkpoint = inspect_checkpoint(ModelSpec(spec.text, "", spec.target, params))
    # The judge of a run is always named as such, as it is of a checkpoint that is loaded here.
    roles = tuple(role for role in checkpoint.roles if role in _ROLES)
    because = checkpoint.because
    if "image" not in checkpoint.reads:
        roles, because = (), f"{because}, and a served checkpoint is sent no sounds"
    elif checkpoint.roles and not roles:
        because += ", and a served checkpoint can only describe, write, judge or answer"
    return replace(checkpoint, roles=roles, because=because, unified=False)


def detect(spec: ModelSpec) -> DetectedModel:
    """What the served checkpoint is; raises as `models.binding.detect`."""
    title = ENGINES[_engine(spec)].title
    checkpoint = _inspect(spec)
    return DetectedModel(f"{checkpoint.what} on {title}", checkpoint.roles, checkpoint.because)


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Raises as `models.binding.bind`; MissingDependencyError where the engine is not installed."""
    engine = ENGINES[_engine(spec)]
    checkpoint = _inspect(spec)
    if role not in _ROLES:
        raise RoleError(
            f"serve:{spec.target}: a served checkpoint can be the {' or '.join(_ROLES)}, not the "
            f"{role}. Without serve: the checkpoint is loaded by the run itself"
        )
    if not context.force:
        check_role(spec, role, checkpoint)
    api.check_installed(spec)
    serve: ServeParams
    what = f"the {role} served by {engine.title}"
    serve, request = parse_parts(spec, what, ServeParams, api.ROLES[role])
    if serve.engine == "transformers" and "@" in str(checkpoint.path):
        raise SpecError(
            f"{checkpoint.path}: transformers serve takes what follows @ for a revision: rename it"
        )
    program = find_program(serve.engine, serve.python)
    complete_checkpoint(checkpoint)

    def identify(hash_file: HashFile) -> str:
        whole = fingerprint(checkpoint, hash_file)
        # Mistral's own format, which engines may prefer and this package never loads.
        own_format = [
            [name, hash_file(checkpoint.path / name)]
            for name in sorted(list_files(checkpoint.path))
            if PurePosixPath(name).match("consolidated*.safetensors")
            and (checkpoint.path / name).exists()  # links to nothing are listed, too
        ]
        others = {"checkpoint": whole, "consolidated": own_format}
        return digest_json(others) if own_format else whole

    files = CoveredFiles(checkpoint.path, context.hash_file, identify)
    flags = [
        word for name, value in serve.given.items() for word in (engine.flags[name], str(value))
    ]
    plan = ServerPlan(
        label=f"serve:{without_secrets(spec.target)}",
        program=program,
        folder=checkpoint.path,
        # The same in every run.
        served_name=f"cepbench-{files.fingerprint[:16]}"
        if engine.lists_model
        else str(checkpoint.path),
        arguments=(
            *(["--dtype", request.dtype] if request.dtype else []),
            *(["--trust-remote-code"] if serve.trust_remote_code else []),
            *flags,
            *serve.further_arguments,
        ),
        serve=serve,
        files=files,
    )
    if context.servers is not None:
        context.servers().join(plan)

    def load() -> Model:
        """Have the server started, or find the one that another process has started."""
        endpoint = (context.servers or own_servers)().running(plan, role)
        return ApiModel(ApiClient(endpoint, serve), request)

    return api.bound_server(
        spec,
        role,
        request,
        serve.concurrency,
        what=f"{checkpoint.what} on {engine.title}",
        adapter=ADAPTER,
        load=load,
        params={**serve.decisive, **request.decisive},
        server=engine.title,
        warn=partial(api.provenance_warnings, f"{role} {plan.label}", None),
        files=files,
        remarks=(_DATED,) if day_settings(checkpoint, role, request.system_prompt) else (),
    )


def check_installed(spec: ModelSpec) -> None:
    """Raise MissingDependencyError without the client or the engine's program."""
    api.check_installed(spec)
    find_program(_engine(spec), spec.params.get("python") or None)
