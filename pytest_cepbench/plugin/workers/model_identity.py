"""One identity per role in a run: the first process that binds a model says which one it is.

The controller binds what was named on the command line before any worker starts, and tells workers; of
the models of suites, the worker that binds one first leaves word in the folder of the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pytest_cepbench.errors import IdentityError, WriteError
from pytest_cepbench.plugin.workers.run_dir import make_folder

if TYPE_CHECKING:
    from pytest_cepbench.models.protocols import BoundRole

_FOLDER = "models"

_CONTROLLER = "the controller"


def identities_of(bound: Iterable[BoundRole]) -> dict[str, str]:
    """What a controller tells its workers: role and spec -> adapter and fingerprint, of each model."""
    return {_place(one): _identity(one) for one in bound}


class IdentityAgreement:
    """What the processes of a run have to agree on, as a worker sees it.

    home, folder: of everything that runs leave behind, and of this run. worker: its name. told:
    what `identities_of` gave the controller.
    """

    def __init__(self, home: Path, folder: Path, worker: str, told: Mapping[str, str]) -> None:
        self._home = home
        self._folder = folder
        self._worker = worker
        self._told = told

    def check(self, bound: BoundRole) -> None:
        """Raise IdentityError where another process of the run has bound another model by this name.

        Devices and precisions may differ between processes; files may not.
        """
        place, own = _place(bound), _identity(bound)
        if place in self._told:
            first, who = self._told[place], _CONTROLLER
        else:
            try:
                first, who = self._first(place, own)
            except OSError as error:
                msg = f"the folder of the run, {self._folder}, cannot be written: {error}"
                raise WriteError(msg) from error
        if first != own:
            msg = (
                f"the {bound.role} {bound.spec} is {own} for worker {self._worker}, and was {first} when "
                f"{who} bound it: it changed while the run started, and cases of two models must not meet "
                "in one report. Copy the checkpoint to a folder of its own and gate the copy, or gate "
                "it when the trainer has finished; then run again"
            )
            raise IdentityError(msg)

    def _first(self, place: str, own: str) -> tuple[str, str]:
        """The identity by which a model was bound first, and by whom; this one, if nobody has yet."""
        from pytest_cepbench.artifacts import digest_text

        folder = make_folder(self._home, self._folder) / _FOLDER
        folder.mkdir(exist_ok=True)
        word = folder / digest_text(place)
        fresh = folder / f".{uuid4().hex}"
        fresh.write_text(json.dumps([own, f"worker {self._worker}"]), encoding="utf-8")
        try:
            os.link(fresh, word)  # whole, and by one process only
        except FileExistsError:
            pass
        except (
            OSError
        ):  # a file system without links: two at once may both be first, for the ledger
            if not word.exists():
                fresh.replace(word)
        fresh.unlink(missing_ok=True)
        first, who = json.loads(word.read_text(encoding="utf-8"))
        return first, who


def _place(bound: BoundRole) -> str:
    return f"{bound.role} {bound.spec}"


def _identity(bound: BoundRole) -> str:
    return f"{bound.adapter} {bound.fingerprint}"
