"""The run's settings, read from the command line, else the environment, else the ini file.

Ways to run pytest in which no case can be judged are refused here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_cepbench.errors import CepError, name_errors
from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.settings import OPTIONS, RunSettings, read_settings
from pytest_cepbench.plugin.versions import accepts_new_only

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
