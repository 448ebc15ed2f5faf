"""Ways to run pytest in which no case can be judged: refused where cases were selected."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_cepbench.plugin.records import FORKED

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
