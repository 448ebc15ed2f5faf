"""From `serve:CHECKPOINT?...` to a bound role, without starting a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import RoleError, SpecError, unknown_name
from pytest_cepbench.models.api import provider as api
from pytest_cepbench.models.api.client import ApiClient
from pytest_cepbench.models.api.endpoint import (
    Endpoint,
    OwnServer,
    Secret,
    refuse_secrets,
    without_secrets,
)
from pytest_cepbench.models.api.parameters import parse_parts
from pytest_cepbench.models.api.provider import ADAPTER as API_ADAPTER
from pytest_cepbench.models.api.provider import (
    CHATS,
    decisive_params,
    ignored_warnings,
)
from pytest_cepbench.models.binding import (
    BindContext,
    BoundRole,
    CoveredFiles,
    DetectedModel,
    HashFile,
    Resources,
)
from pytest_cepbench.models.checkpoints import (
    Checkpoint,
    complete_checkpoint,
    fingerprint,
    inspect_checkpoint,
    list_files,
)
from pytest_cepbench.models.checkpoints.parameters import OF_CHECKPOINTS
from pytest_cepbench.models.checkpoints.peft_adapters import (
    adapter_weights,
    check_adapter,
    read_adapter,
)
from pytest_cepbench.models.protocols import Model, RoleName
from pytest_cepbench.models.serving.engines import ENGINES, Engine, ServerPlan, find_program
from pytest_cepbench.models.serving.parameters import EngineParams, ServeParams
from pytest_cepbench.models.serving.run_servers import own_servers
from pytest_cepbench.models.spec import SCHEMES, ModelSpec

_READ = (".json", ".safetensors", ".txt", ".model", ".jinja")


def _adapter_files(folder: Path, *, allow_pickle: bool) -> list[str]:
    """The files of a PEFT adapter that an engine can read.

    Raises as `read_adapter` and `check_adapter`.
    """
    read_adapter(folder)
    check_adapter(folder, allow_pickle=allow_pickle)
    inner = [name for name in list_files(folder) if "/" not in name and name.endswith(_READ)]
    return sorted({*inner, adapter_weights(folder).name})


def _hashed(folder: Path, names: list[str], hash_file: HashFile) -> list[list[str]]:
    return [[name, hash_file(folder / name)] for name in sorted(names)]


ADAPTER = f"serve/1+{API_ADAPTER}"

_ROLES = SCHEMES["serve"].roles


def _engine(spec: ModelSpec) -> Engine:
    """Raises SpecError for an engine that is not known."""
    name = spec.params.get("engine", ServeParams.engine)
    if name not in ENGINES:
        raise SpecError(f"model spec {spec.text!r}: {unknown_name('engine', name, ENGINES)}")
    return ENGINES[name]


def _checkpoint_spec(spec: ModelSpec) -> ModelSpec:
    """The spec of the checkpoint alone.

    Raises SpecError where none is named, and where the spec holds a key.
    """
    refuse_secrets(spec)
    if not spec.target.strip():
        raise SpecError(
            f"model spec {spec.text!r}: no checkpoint is named; write serve:FOLDER?engine=NAME, "
            f"with one of {', '.join(ENGINES)}"
        )
    known = (*OF_CHECKPOINTS, "trust_remote_code")
    params = {name: value for name, value in spec.params.items() if name in known}
    return ModelSpec(spec.text, "", spec.target, params)


def detect(spec: ModelSpec) -> DetectedModel:
    """What the served checkpoint is; raises as `models.binding.detect`."""
    checkpoint_spec, engine = _checkpoint_spec(spec), _engine(spec)
    checkpoint = inspect_checkpoint(checkpoint_spec)
    roles, because = _roles(checkpoint)
    return DetectedModel(f"{checkpoint.what} on {engine.title}", roles, because)


def _roles(checkpoint: Checkpoint) -> tuple[tuple[RoleName, ...], str]:
    """The roles that a checkpoint can play behind a server, and why, completing "it ..."."""
    # The judge of a run is always named as such, as it is of a checkpoint that is loaded here.
    roles = tuple(role for role in checkpoint.roles if role in _ROLES)
    if "image" not in checkpoint.reads:
        return (), f"{checkpoint.because}, and a served checkpoint is sent no sounds"
    if roles or not checkpoint.roles:
        return roles, checkpoint.because
    only = "and a served checkpoint can only describe, write, judge or answer"
    return roles, f"{checkpoint.because}, {only}"


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Raises as `models.binding.bind`; MissingDependencyError where the engine is not installed."""
    own_spec, engine = _checkpoint_spec(spec), _engine(spec)
    checkpoint = inspect_checkpoint(own_spec)
    if role not in _ROLES:
        raise RoleError(
            f"serve:{spec.target}: a served checkpoint can be the {' or '.join(_ROLES)}, not the "
            f"{role}. Without serve: the checkpoint is loaded by the run itself"
        )
    needed = "describer" if role in ("judge", "vqa") else role
    roles, because = _roles(checkpoint)
    if needed not in roles and not context.force:
        raise RoleError(
            f"{spec.text!r} is a {checkpoint.what}: it {because}, so it cannot be the "
            f"{role}. To try it all the same, name the role: --{role}, or --model with "
            f"--cep-role={role}"
        )
    api.check_installed(spec)
    what = f"the {role} served by {engine.title}"
    serve: ServeParams
    params: EngineParams
    kinds = (ServeParams, EngineParams, CHATS[role][0])
    serve, params, request = parse_parts(spec, what, *kinds)
    further = serve.further_arguments
    try:
        engine.check(params)
        engine.check_further(further)
    except ValueError as error:
        raise SpecError(f"model spec {spec.text!r}: {error}") from error
    if engine.name == "transformers" and "@" in str(checkpoint.path):
        raise SpecError(
            f"{checkpoint.path}: transformers serve takes what follows @ for a revision: rename it"
        )
    program = find_program(engine, serve.python)
    complete_checkpoint(checkpoint)

    def identify(hash_file: HashFile) -> str:
        whole = fingerprint(checkpoint, hash_file)
        others: dict[str, Any] = {}
        # Mistral's own format, which engines may prefer and this package never loads.
        own_format = [
            name
            for name in list_files(checkpoint.path)
            if PurePosixPath(name).match("consolidated*.safetensors")
        ]
        if own_format:
            others["consolidated"] = _hashed(checkpoint.path, own_format, hash_file)
        if params.adapters:
            allow = checkpoint.options.allow_pickle
            others["adapters"] = {
                name: _hashed(folder, _adapter_files(folder, allow_pickle=allow), hash_file)
                for name, folder in params.adapters.items()
            }
            others["answers"] = params.adapter
        if params.chat_template is not None:
            others["chat_template"] = hash_file(Path(params.chat_template).expanduser().absolute())
        return digest_json({"checkpoint": whole, **others}) if others else whole

    files = CoveredFiles(checkpoint.path, context.hash_file, identify)
    own = files.fingerprint
    ranks = []  # of adapters, the largest of each
    for folder in params.adapters.values():
        config = read_adapter(folder)
        pattern = config.get("rank_pattern")
        values = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
        ranks.append(max((rank for rank in values if isinstance(rank, int)), default=0))
    plan = ServerPlan(
        label=f"serve:{without_secrets(spec.target)}",
        engine=engine,
        program=program,
        folder=checkpoint.path,
        # The same in every run.
        served_name=f"cepbench-{own[:16]}" if engine.lists_model else str(checkpoint.path),
        arguments=(
            *(["--dtype", request.dtype] if request.dtype else []),
            *(["--trust-remote-code"] if serve.trust_remote_code else []),
            *engine.arguments(params, ranks),
            *further,
        ),
        device_count=params.device_count,
        serve=serve,
        files=files,
    )
    if context.servers is not None:
        context.servers().join(plan)

    def load() -> Model:
        """Have the server started, or find the one that another process has started."""
        server: OwnServer = (context.servers or own_servers)().running(plan)
        model = engine.model_name(plan.served_name, params.adapter)
        key = None if server.key is None else Secret(server.key)
        endpoint = Endpoint(model, role, server.url, Secret(server.url), key, own=server)
        return CHATS[role][1](ApiClient(endpoint, serve), model, request)

    adapter = f" with {params.adapter}" if params.adapter else ""
    decisive = {"engine": engine.name, **engine.decisive(params), **decisive_params(role, request)}
    return BoundRole(
        role=role,
        spec=spec.text,
        what=f"{checkpoint.what}{adapter} on {engine.title}",
        fingerprint=own,
        adapter=ADAPTER,
        load=load,
        params=decisive | ({"engine_args": serve.engine_args} if further else {}),
        seeded=request.sampled,
        resources=Resources(serve.batch, lasting=True),
        # Not a device of this process: with --cep-residency=swap no model has to leave it.
        provenance={"device": "server", "server": engine.title},
        warn=partial(ignored_warnings, f"{role} {plan.label}"),
        files=files,
        probabilities=request.logprobs if role == "judge" else None,
        scores_answers=role == "judge",
    )


def check_installed(spec: ModelSpec) -> None:
    """Raise MissingDependencyError without the client or the engine's program."""
    api.check_installed(spec)
    find_program(_engine(spec), spec.params.get("python") or None)
