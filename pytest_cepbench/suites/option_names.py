"""Names in options that a suite has to know: of data sets and presets.

A name that one suite of a run does not know may be meant for another; one that none of them knows
is a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_cepbench.errors import SpecError, did_you_mean, unknown_name
from pytest_cepbench.models.spec import PRESET
from pytest_cepbench.suites.data import data_name
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.model_options import RoleAssignment


def check_data_names(names: Iterable[str], suites: Sequence[Suite], option: str) -> None:
    """Raise SpecError for the first name of a data set that no suite reads.

    option: that named it, for the message.
    """
    known = {name for suite in suites if (name := data_name(suite)) is not None}
    for name in names:
        if name in known:
            continue
        read = f"They read {', '.join(sorted(known))}." if known else "Their data is built in."
        elsewhere = " What other runs need can stand in the ini file, as cepbench_data."
        raise SpecError(
            f"{option} {name}=...: no suite of this run ({_names(suites)}) reads a data set "
            f"{name!r}.{did_you_mean(name, known)} {read}"
            f"{elsewhere if option.startswith('--cep-') else ''}"
        )


def check_presets(named: Mapping[str, RoleAssignment], suites: Sequence[Suite]) -> None:
    """Raise SpecError for the first preset that no suite has.

    named: the models that the user named, by role.
    """
    known = {name for suite in suites for name in suite.table.presets}
    for assignment in named.values():
        spec = assignment.spec
        if spec.scheme == PRESET and spec.target not in known:
            raise SpecError(
                f"{assignment.source} {spec}: {unknown_name('preset', spec.target, known)} Suites "
                f"of this run: {_names(suites)}"
            )


def _names(suites: Sequence[Suite]) -> str:
    return ", ".join(dict.fromkeys(suite.name for suite in suites))
