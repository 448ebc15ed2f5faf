"""Encoders that are one file of weights with no configuration beside it, named by a scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.fingerprint_check import CoveredFiles
from pytest_cepbench.models.load_plan import LoadPlan, Placement, bind_plan
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import BindContext, BoundRole, Encoder, RoleName
from pytest_cepbench.models.registry import DetectedModel, Provider
from pytest_cepbench.models.torch_runtime import require, resolve_device, resolve_dtype

_VERSION = 1


def file_provider(
    what: str,
    bind: Callable[[ModelSpec, BindContext], BoundRole],
    *,
    find: Callable[[ModelSpec], Path | None],
    features_name: Callable[[ModelSpec], str],
    weights_present: Callable[[ModelSpec], bool] = lambda _: True,
) -> Provider:
    """The provider of a scheme whose specs name one file, an encoder of images.

    what: the model, for people. bind: resolves a spec. find: the file of a spec, None where it is
        not
    there. features_name, weights_present: as in `Provider`.
    """

    def bind_role(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
        if role != "encoder":
            msg = (
                f"{spec.text!r} is {what}: it embeds images, so it can be the encoder, "
                f"not the {role}"
            )
            raise RoleError(msg)
        return bind(spec, context)

    def weights_bytes(spec: ModelSpec, _device: str | None) -> int | None:
        file = find(spec)
        return None if file is None else file.stat().st_size

    return Provider(
        detect=lambda _: DetectedModel(what, ("encoder",), "embeds images"),
        bind=bind_role,
        check_installed=lambda _: require("torch"),
        weights_bytes=weights_bytes,
        features_name=features_name,
        weights_present=weights_present,
    )


def find_file(path: Path, what: str) -> Path:
    """The absolute path of a weights file. Raises CheckpointError where there is no such file."""
    path = path.expanduser()
    if path.is_file():
        # Links stay: in a hub's cache the name of what they lead to says nothing of the format.
        return path.absolute()
    problem = "is a folder" if path.is_dir() else "is not there"
    msg = f"{path}: the weights file of {what} {problem}. Give the path of the file itself"
    raise CheckpointError(msg)


def plan_file(
    spec: ModelSpec,
    file: Path,
    what: str,
    params: Placement,
    context: BindContext,
    config: Mapping[str, Any],
) -> LoadPlan[Any]:
    """The plan of loading one file, in the terms that adapters of checkpoints share.

    what: the model, for people. params: read from the spec. config: the precision in which the
    model runs on an accelerator where the spec leaves it open ({"dtype": "float16"}), or nothing.
    """
    checkpoint = Checkpoint(file, "weights_file", what, ("encoder",), config)
    device = resolve_device(params.device)
    dtype = resolve_dtype(params.dtype, device, config)
    files = CoveredFiles(file, context.hash_file, lambda hash_file: hash_file(file))
    return LoadPlan("encoder", spec, checkpoint, context, params, device, dtype, files)


def bind_file(
    plan: LoadPlan[Any],
    *,
    adapter: str,
    load: Callable[[], Encoder],
    params: Mapping[str, Any],
    code: Mapping[str, str],
) -> BoundRole:
    """The bound encoder of a plan: identified by the file's bytes and by the code that runs them.

    adapter, load, params: as in `BoundRole`. code: versions of code that takes part in the answers
    and has no place in the file.
    """
    weights = plan.files.fingerprint
    identified = digest_json({"version": _VERSION, "weights": weights, "code": dict(code)})
    return bind_plan(plan, adapter=adapter, load=load, params=params, identified=identified)
