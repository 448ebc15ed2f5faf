"""The options of a run as those of pytest, with their ini and environment twins.

Standard library and pytest only: this runs in every pytest that has the plugin installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from pytest_cepbench.evaluation.settings import OPTIONS, RunOption
from pytest_cepbench.plugin.versions import known_flags, names_in_ini

SHORT_TAKEN = pytest.StashKey[Sequence[str]]()
"""Short names of options that other plugins own."""

_GROUPS = {
    "models": "cepbench: models",
    "gate": "cepbench: gate",
    "data": "cepbench: data and stored results",
    "workers": "cepbench: workers and devices",
    "reports": "cepbench: reports",
    "advanced": "cepbench: advanced",
}
"""Name of a group -> its title in `pytest --help`, in the order of the page."""

_LIKENESS = 0.85
"""Least likeness of an environment variable that is taken for a mistyped one of ours."""


def add_options(parser: pytest.Parser) -> None:
    """Register every option and ini key."""
    previous = None
    for name, title in _GROUPS.items():
        parser.getgroup(f"cepbench-{name}", title, after=previous)
        previous = f"cepbench-{name}"
    for option in OPTIONS:
        _add_flag(parser, option, option.flag, option.help)
        kind = "linelist" if option.multiple else "string"
        parser.addini(option.ini, f"Twin of {option.flag}", type=kind)  # type: ignore[arg-type]


def _add_flag(parser: pytest.Parser, option: RunOption, flag: str, help_: str) -> None:
    # Choices are checked where the values are read, in words that are the same for all three twins.
    group = parser.getgroup(f"cepbench-{option.group}")
    if option.metavar:
        group.addoption(
            flag, dest=option.dest, help=help_, default=None, metavar=option.metavar,
            action="append" if option.multiple else "store",
        )  # fmt: skip
    else:
        group.addoption(
            flag, dest=option.dest, help=help_, default=None, action="store_const", const="true"
        )


def hide_short_values(config: pytest.Config, args: Sequence[str]) -> None:
    """Take the values of `--model DIR` and its siblings out of the paths to collect.

    The short names are registered last (see `add_short_options`), so pytest's first, rough parse
    takes DIR for a test path and would import a conftest.py from inside a checkpoint.
    """
    shorts = {f"--{option.name}" for option in OPTIONS if option.short}
    paths = config.known_args_namespace.file_or_dir
    for flag, value in pairwise(args):
        if flag in shorts and value in paths:
            paths.remove(value)


def add_short_options(parser: pytest.Parser) -> list[str]:
    """Register `--model` and its siblings where no other plugin or conftest has them.

    Called when all of those are loaded. Returns the names that others own.
    """
    owned = known_flags(parser)
    taken = []
    for option in OPTIONS:
        flag = f"--{option.name}"
        if option.short and flag in owned:
            taken.append(flag)
        elif option.short:
            _add_flag(parser, option, flag, f"Short for {option.flag}")
    return taken


def are_named(config: pytest.Config, args: Sequence[str]) -> bool:
    """Whether any option is given, in one of its three places; also before pytest has parsed them.

    So it is where the environment has a name like ours.
    """
    flags = {arg.partition("=")[0] for arg in args}
    options = vars(config.option)
    return any(name.startswith("CEPBENCH_") for name in os.environ) or any(
        flags & {option.flag, *([f"--{option.name}"] if option.short else [])}
        or options.get(option.dest) is not None
        or config.getini(option.ini)
        for option in OPTIONS
    )


def check_names(config: pytest.Config) -> None:
    """Raise pytest.UsageError for a mistyped name in the ini file, which would set nothing.

    pytest warns of names that no plugin registered after collection.
    """
    known = [option.ini for option in OPTIONS]
    for name in names_in_ini(config):
        if name not in known and name.lower().startswith("cepbench_"):
            from pytest_cepbench.errors import did_you_mean

            hint = did_you_mean(name, known)
            if hint:
                raise pytest.UsageError(f"ini {name}: there is no such setting.{hint}")


def mistyped_variables() -> Iterator[str]:
    """A sentence for the header for each variable that is named nearly as one of ours."""
    from pytest_cepbench.errors import nearest_name

    known = [option.env for option in OPTIONS]
    for name in sorted(os.environ):
        if name.startswith("CEPBENCH_") and name not in known:
            close = nearest_name(name, known, cutoff=_LIKENESS)
            if close is not None:
                yield f"the environment variable {name} is not read: did you mean {close}?"
