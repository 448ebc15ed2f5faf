"""From `openai:MODEL?...` to a bound role, without the server, its key or the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import util
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import CheckpointError, MissingDependencyError, RoleError
from pytest_cepbench.files import expand_user
from pytest_cepbench.models.api.client import IGNORED, LONGEST_NAME, ApiClient
from pytest_cepbench.models.api.endpoint import (
    find_endpoint,
    public_url,
    refuse_secrets,
    server_address,
    without_secrets,
)
from pytest_cepbench.models.api.parameters import (
    ChatParams,
    ImageParams,
    JudgeParams,
    ServerParams,
    VqaParams,
    WriterParams,
)
from pytest_cepbench.models.api.responses import SERVED
from pytest_cepbench.models.api.roles import ApiModel
from pytest_cepbench.models.binding import (
    BindContext,
    BoundRole,
    CoveredFiles,
    DetectedModel,
    HashFile,
    Resources,
)
from pytest_cepbench.models.checkpoints.checkpoint import fingerprint
from pytest_cepbench.models.checkpoints.inspection import complete_checkpoint, inspect_checkpoint
from pytest_cepbench.models.protocols import Model, RoleName
from pytest_cepbench.models.spec import ModelSpec, parse_parts

ADAPTER = "openai-api/1"

ROLES: Mapping[RoleName, type[ChatParams | ImageParams]] = {
    "describer": ChatParams,
    "generator": ImageParams,
    "judge": JudgeParams,
    "writer": WriterParams,
    "vqa": VqaParams,
}
"""The parameters of a request."""

_SHOWN_NAMES = 3


def check_installed(spec: ModelSpec) -> None:
    """Raise MissingDependencyError where the HTTP client is missing; it is not imported."""
    if util.find_spec("httpx2") is None:
        raise MissingDependencyError(
            f'{spec.scheme}:{spec.target} needs httpx2: pip install "pytest-cepbench[openai]"'
        )


def detect(spec: ModelSpec) -> DetectedModel:
    """What a served model can play: all roles, since a name tells none.

    The option, or the roles that others leave, says which is under test. Raises SpecError where the
    spec names no model, or holds a key.
    """
    refuse_secrets(spec)
    if not spec.target.strip():
        raise spec.error(
            "no model is named; write openai:MODEL?base_url=URL&revision=NAME, MODEL as the server "
            "calls it"
        )
    return DetectedModel(f"{spec.target} behind an OpenAI-compatible server", tuple(ROLES))


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Bind a served model.

    Raises SpecError for parameters that are unknown, wrong or keys, RoleError for a role that no
    API plays, CheckpointError for `weights` that are no checkpoint.
    """
    what = detect(spec).what
    if role not in ROLES:
        raise RoleError(
            f"openai:{spec.target}: the API has no {role}; it can be the {' or '.join(ROLES)}"
        )
    check_installed(spec)
    server: ServerParams
    server, request = parse_parts(spec, f"the {role} over the API", ServerParams, ROLES[role])

    def identify(hash_file: HashFile) -> str:
        """The weights, or the revision that the user names; a server elsewhere is the same."""
        identity = {"model": spec.target}
        if server.weights is None:
            return digest_json({**identity, "revision": server.revision})
        if not expand_user(server.weights).is_dir():
            raise CheckpointError(
                f"openai:{spec.target}: weights={server.weights}: no such folder. Give that of "
                "the checkpoint which the server serves; where it is not on this machine, "
                "revision=NAME"
            )
        checkpoint = inspect_checkpoint(ModelSpec(server.weights, "", server.weights, {}))
        complete_checkpoint(checkpoint)
        return digest_json({**identity, "weights": fingerprint(checkpoint, hash_file)})

    def load() -> Model:
        """Reach the server. Raises ModelError where that cannot work."""
        endpoint = find_endpoint(spec.target, role, server)
        prices = (server.price_in, server.price_out, server.price_image)
        client = ApiClient(endpoint, server, prices)
        client.check(listed=server.weights is not None)
        return ApiModel(client, request)

    files = CoveredFiles(server.weights or what, context.hash_file, identify)
    return bound_server(
        spec,
        role,
        request,
        server.concurrency,
        what=what,
        adapter=ADAPTER,
        load=load,
        params=request.decisive,
        server=public_url(server_address(server)),
        warn=partial(
            provenance_warnings, f"{role} openai:{without_secrets(spec.target)}", spec.target
        ),
        files=files,
    )


def bound_server(
    spec: ModelSpec,
    role: RoleName,
    request: Any,
    concurrency: int,
    *,
    server: str,
    files: CoveredFiles,
    **parts: Any,
) -> BoundRole:
    """A role that is played behind a server, of any scheme.

    request: the parameters of a request.
    server: for people.
    parts: other fields of the bound role.
    """
    return BoundRole(
        role=role,
        spec=spec.text,
        fingerprint=files.fingerprint,
        seeded=request.sampled,
        # Several rounds of requests in one call, so that slow ones are overtaken.
        resources=Resources(4 * concurrency, lasting=True),
        # Not a device of this machine: with --cep-residency=swap no model has to leave it.
        provenance={"device": "server", "server": server},
        files=files,
        scores_answers=role == "judge",
        **parts,
    )


def provenance_warnings(
    name: str, model: str | None, provenances: Sequence[Mapping[str, str]]
) -> list[str]:
    """Warnings of every report on a server's results, whether they are new or from the store.

    name: of the model, for people.
    model: the requested name; None where the run has started the server. A name that only adds a
        date is another name too: the weights behind an alias change.
    provenances: of results.
    """
    requested, warnings = without_secrets(model or ""), []
    served = _other_values(provenances, SERVED, requested[:LONGEST_NAME])
    if served and model is not None:
        warnings.append(
            f"{name}: the server answered as {served}, and {requested!r} was asked for: "
            "see that it is the model that is meant, and name it as the server does"
        )
    if ignored := _other_values(provenances, IGNORED, ""):
        warnings.append(f"{name}: answers were made without what was asked for: {ignored}")
    return warnings


def _other_values(provenances: Sequence[Mapping[str, str]], field: str, usual: str) -> str:
    """Unusual values of a field, each once, without secrets: others may have written the store."""
    values = [each[field] for each in provenances if each.get(field, usual) != usual]
    names = list(dict.fromkeys(map(without_secrets, values)))
    more = f" and {len(names) - _SHOWN_NAMES} others" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(repr, names[:_SHOWN_NAMES])) + more
