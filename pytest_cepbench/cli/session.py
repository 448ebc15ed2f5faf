"""A command that measures: its options are read, a store is opened, the models run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.cli.output import HOME, INTERRUPTED
from pytest_cepbench.errors import CepError, EndedError
from pytest_cepbench.evaluation.python_api import importable
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.models import ROLE_NAMES, RoleName
from pytest_cepbench.models.serving.run_servers import RunServers
from pytest_cepbench.option_values import named_specs
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.report.totals import usage_line
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import PreparedCalibration, prepare_calibration
from pytest_cepbench.studies.study import StudyUsage
from pytest_cepbench.suites import ModelPool, RoleChoices


@contextmanager
def measuring(store: Path, suite: Path) -> Iterator[tuple[ModelPool, Callable[[], None]]]:
    """The models of a command that measures, and what says that it begins to.

    What raises before is a mistake in what was asked, what raises after could not be measured.
    store: folder of the store. suite: modules of `python:` models may lie beside this file.
    Raises StoreError, and EndedError with the exit code.
    """
    begun = False

    def begin() -> None:
        nonlocal begun
        begun = True

    with open_store(store) as opened, importable([suite]), run_servers() as servers:
        try:
            yield ModelPool(opened, servers=lambda: servers), begin
        except CepError as error:
            if not begun:
                raise
            raise EndedError(str(error)) from error
        except KeyboardInterrupt:
            remedy = "; what was computed is in the store: the same command goes on from there"
            raise EndedError(
                f"interrupted{remedy if begun else ' before anything was measured'}", INTERRUPTED
            ) from None


@contextmanager
def run_servers() -> Iterator[RunServers]:
    """The servers that this command starts, if any; they end with it."""
    with TemporaryDirectory(prefix="cepbench-") as folder:
        servers = RunServers(Path(folder), HOME.absolute() / "servers")
        try:
            yield servers
        finally:
            servers.close()


def open_store(folder: Path) -> Store:
    """The store in a folder. Raises StoreError."""
    store = Store(folder.absolute())
    keep_out_of_git(HOME, folder)
    return store


def pool_line(pool: ModelPool) -> str:
    """What the models of a command took, in one line."""
    return spent_line(StudyUsage.of(runner.tally for runner in pool.runners.values()))


def verdicts_line(judge: RoleRunner) -> str:
    """What the verdicts of a judge took, in one line."""
    tally = judge.tally
    usage = f"; {usage_line(tally.usage)}" if tally.usage.requests else ""
    return f"{tally.inputs} verdicts by the judge, {tally.hits} from the store{usage}"


def spent_line(spent: StudyUsage) -> str:
    """What measuring took, in one line."""
    line = (
        f"{counted(spent.loads, 'model load')}, {counted(spent.inputs, 'model input')} "
        f"({spent.model_seconds:.1f} s in models), {counted(spent.hits, 'result')} from the store"
    )
    return f"{line}; {usage_line(spent.usage)}" if spent.usage.requests else line


def prepared_trial(arguments: Namespace, pool: ModelPool) -> PreparedCalibration:
    """The suite under the seeds that options name; raises as `prepare_calibration`."""
    choices = RoleChoices(arguments.model, arguments.role, *fixed_roles(arguments))
    data, samples = dict(arguments.data), arguments.samples
    return prepare_calibration(arguments.suite, choices, arguments.seeds, pool, data, samples)


def fixed_roles(
    arguments: Namespace, exchanged: str | None = None
) -> tuple[dict[RoleName, str], dict[str, str]]:
    """Specs of the roles that are the same for all, and of the suite's further encoders."""
    kept = [r for r in ROLE_NAMES if r in arguments and r not in (exchanged, "encoder")]
    roles = {r: getattr(arguments, r) for r in kept}
    if isinstance(roles.get("generator"), list):  # of a study, which may compare several
        roles["generator"] = next(iter(arguments.generator), None)
    encoders: dict[str, str] = {}
    if exchanged != "encoder":
        roles["encoder"], encoders = named_specs(arguments.encoder)
    return {role: spec for role, spec in roles.items() if spec is not None}, encoders
