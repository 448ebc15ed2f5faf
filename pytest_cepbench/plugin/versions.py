"""Differences between releases of pytest, syrupy and xdist, each found by what it has."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.terminal import TerminalReporter  # a public name since pytest 8.4


def draws_on_terminal(reporter: Any) -> bool:
    """Whether pytest's own reporter, and no other plugin's, writes to a terminal."""
    return type(reporter) is TerminalReporter and bool(reporter.isatty)


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
