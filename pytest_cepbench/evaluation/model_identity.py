"""One identity per role in a run: the first process that binds a model sets it.

The controller binds the models that were named on the command line before any worker starts, and
sends their identities to the workers; of the models of suites, the worker that binds one first leaves
its identity in the folder of the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from pytest_cepbench.errors import IdentityError, WriteError
from pytest_cepbench.evaluation.run_context import RunContext

if TYPE_CHECKING:
    from pytest_cepbench.models.protocols import BoundRole

_FOLDER = "models"

_CONTROLLER = "the controller"


def identities_of(bound_roles: Iterable[BoundRole]) -> dict[str, str]:
    """Role and spec -> adapter and fingerprint, of each model."""
    return {_name(bound): _identity(bound) for bound in bound_roles}


class IdentityAgreement:
    """The identities on which the processes of a run have to agree, as a worker sees them.

    context: the run, as the worker knows it.
    known: `identities_of` the controller's models.
    """

    def __init__(self, context: RunContext, known: Mapping[str, str]) -> None:
        self._context = context
        self._known = known

    def check(self, bound: BoundRole) -> None:
        """Raise IdentityError where another process of the run has bound another model by this name.

        Devices and precisions may differ between processes; files may not.
        """
        name, own = _name(bound), _identity(bound)
        if name in self._known:
            first, process = self._known[name], _CONTROLLER
        else:
            try:
                first, process = self._first(name, own)
            except OSError as error:
                folder = self._context.folder
                msg = f"the folder of the run, {folder}, cannot be written: {error}"
                raise WriteError(msg) from error
        if first != own:
            msg = (
                f"the {bound.role} {bound.spec} is {own} for worker {self._context.worker}, and was "
                f"{first} when {process} bound it: it changed while the run started, and cases of two "
                "models must not meet in one report. Copy the checkpoint to a folder of its own and "
                "gate the copy, or gate it when the trainer has finished; then run again"
            )
            raise IdentityError(msg)

    def _first(self, name: str, own: str) -> tuple[str, str]:
        """The identity by which a model was bound first, and by which process; this one's, if new."""
        from pytest_cepbench.artifacts import digest_text

        folder = self._context.make_folder() / _FOLDER
        folder.mkdir(exist_ok=True)
        path = folder / digest_text(name)
        fresh = folder / f".{uuid4().hex}"
        fresh.write_text(json.dumps([own, f"worker {self._context.worker}"]), encoding="utf-8")
        try:
            os.link(fresh, path)  # whole, and by one process only
        except FileExistsError:
            pass
        except OSError:  # no links here: two at once may both be first, which the ledger finds
            if not path.exists():
                fresh.replace(path)
        fresh.unlink(missing_ok=True)
        first, process = json.loads(path.read_text(encoding="utf-8"))
        return first, process


def _name(bound: BoundRole) -> str:
    return f"{bound.role} {bound.spec}"


def _identity(bound: BoundRole) -> str:
    return f"{bound.adapter} {bound.fingerprint}"
