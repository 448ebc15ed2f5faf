"""Differences between releases of pytest, syrupy and xdist, each found by what it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def known_flags(parser: pytest.Parser) -> set[str]:
    """Every option that is registered; pytest 8 refuses a name that is taken too late to see it."""
    groups = [parser._anonymous, *parser._groups]  # noqa: SLF001 - no public call lists them
    return {name for group in groups for option in group.options for name in option.names()}


def names_in_ini(config: pytest.Config) -> Iterable[str]:
    """The names that the ini file has, for which there is no public call; pytest 9 renamed them."""
    settings = vars(config)
    names: Iterable[str] = settings.get("_inicfg") or settings.get("inicfg") or ()
    return names


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
