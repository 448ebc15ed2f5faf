"""The options of a run as those of pytest, with their ini and environment twins, and its settings.

These are read from the command line, else the environment, else the ini file. Ways to run pytest in
which no case can be judged are refused here too. This runs in every pytest that has the plugin
installed: it imports what has little to import.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CepError, did_you_mean, name_errors, nearest_name
from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.settings import (
    OPTIONS,
    RunOption,
    RunSettings,
    read_settings,
)

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
    kind: dict[str, str] = {"action": "store_const", "const": "true"}
    if option.metavar:
        kind = {"action": "append" if option.multiple else "store", "metavar": option.metavar}
    group = parser.getgroup(f"cepbench-{option.group}")
    group.addoption(flag, dest=option.dest, help=help_, default=None, **kind)


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
    # All that are registered, which no public call lists; pytest 8 refuses a name that is taken too
    # late to see it.
    groups = [parser._anonymous, *parser._groups]  # noqa: SLF001
    owned = {name for group in groups for option in group.options for name in option.names()}
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
    known, own = [option.ini for option in OPTIONS], vars(config)
    # For which there is no public call; pytest 9 renamed them.
    for name in own.get("_inicfg") or own.get("inicfg") or ():
        if name not in known and name.lower().startswith("cepbench_"):
            hint = did_you_mean(name, known)
            if hint:
                raise pytest.UsageError(f"ini {name}: there is no such setting.{hint}")


def mistyped_variables() -> Iterator[str]:
    """A sentence for the header for each variable that is named nearly as one of ours."""
    known = [option.env for option in OPTIONS]
    for name in sorted(os.environ):
        if name.startswith("CEPBENCH_") and name not in known:
            close = nearest_name(name, known, cutoff=_LIKENESS)
            if close is not None:
                yield f"the environment variable {name} is not read: did you mean {close}?"


# -- settings --------------------------------------------------------------------------------------

_ENV_LIST_SEPARATOR = ";"

_LISTINGS = ("collectonly", "showfixtures", "show_fixtures_per_test")
"""Options of pytest with which tests are collected and shown, and no session of tests begins."""


def settings_of(config: pytest.Config) -> RunSettings:
    """The settings of a run. Raises pytest.UsageError naming the option that is wrong."""
    values: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        typed = config.getoption(option.dest, default=None)
        text, ini = os.environ.get(option.env, ""), config.getini(option.ini)
        parts = text.split(_ENV_LIST_SEPARATOR) if option.multiple else [text]
        set_there = [part.strip() for part in parts if part.strip()]
        if option.short and option.env in os.environ and not set_there:
            set_there = [text]  # which is refused
        if typed is not None:
            values[option.name] = list(typed) if option.multiple else [typed]
            sources[option.name] = option.flag
        elif set_there:
            values[option.name] = set_there
            sources[option.name] = option.env
        elif ini:
            values[option.name] = list(ini) if option.multiple else [ini]
            sources[option.name] = f"ini {option.ini}"

    def resolve(name: str, text: str) -> Path:
        """Paths in the ini file start where it lies, as pytest's own do; others here."""
        if sources[name].startswith("ini ") and config.inipath is not None:
            return config.inipath.parent / text
        return Path(text).absolute()

    xdist = getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None)
    try:
        with usage_errors():
            settings = read_settings(
                values,
                sources,
                config.rootpath,
                resolve=resolve,
                listing=any(config.getoption(name, default=False) for name in _LISTINGS),
            )
    except ValueError as error:
        raise pytest.UsageError(visible(str(error))) from None
    if settings.engine == "ray" and (xdist or hasattr(config, "workerinput")):
        raise pytest.UsageError(
            "--cep-engine=ray starts its own workers: drop -n (and --tx), or the engine"
        )
    return settings


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a CepError into pytest.UsageError: one message, and no traceback."""
    try:
        with name_errors():
            yield
    except CepError as error:
        raise pytest.UsageError(visible(str(error))) from None


def updating(config: pytest.Config) -> bool:
    """Whether baselines are accepted rather than compared with; syrupy's options say so."""
    return config.getoption("update_snapshots", default=False) or accepts_new_only(config)


# -- ways to run in which no case is judged --------------------------------------------------------

FORKED = (
    "--forked runs each test in a process that ends with it, and takes the loaded models and the "
    "verdict along: leave it out, or use -n, whose workers are processes of their own"
)

_NO_TEST = (
    "{option} calls no test, so no case would be judged: leave it out (it may stand in addopts or "
    "PYTEST_ADDOPTS); --cep-plan shows what would run, --collect-only lists the cases"
)

_MODES = {
    "setupplan": _NO_TEST.format(option="--setup-plan"),
    "setuponly": _NO_TEST.format(option="--setup-only"),
    "forked": FORKED,
}
"""Option -> why no case is judged with it; the former sets the second."""


def refuse_modes(config: pytest.Config, items: Sequence[pytest.Item] = ()) -> None:
    """Raise UsageError where the selected cases could not be judged.

    items: the cases, where this process knows more of them than their ids.
    """
    for option, reason in _MODES.items():
        if config.getoption(option, default=False):
            raise pytest.UsageError(reason)
    forks = config.pluginmanager.hasplugin("pytest_forked")
    if forks and any(item.get_closest_marker("forked") for item in items):
        raise pytest.UsageError(FORKED.replace("--forked", "@pytest.mark.forked", 1))


# -- differences between releases, each found by what it has -----------------------------------


def colored(word: str, color: str) -> Any:
    """What `pytest_report_teststatus` gives: until pytest 8.2 the short summary shows no colors."""
    known = hasattr(pytest.TestReport, "_get_verbose_word_with_markup")
    return (word, {color: True}) if known else word


def accepts_new_only(config: pytest.Config) -> bool:
    """Whether only cases without a baseline are accepted, for which syrupy 5.3 has an option."""
    return bool(config.getoption("update_new_snapshots_only", default=False))


def worker_specs(config: pytest.Config) -> list[str]:
    """What xdist starts each worker with; the function was called otherwise until xdist 3.6."""
    from xdist import workermanage

    known: Any = vars(workermanage)
    specs: list[str] = (known.get("parse_tx_spec_config") or known["parse_spec_config"])(config)
    return specs
