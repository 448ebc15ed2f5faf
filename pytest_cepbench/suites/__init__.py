"""Suites: data set, chain and metrics put together into measurements."""

from pytest_cepbench.suites.cases import Case, list_cases
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import Suite, load_suite
from pytest_cepbench.suites.roster import Lineup, RoleChoices, Roster, choose_roles, named_seat
from pytest_cepbench.suites.run import SuiteRun

__all__ = [
    "Case",
    "Lineup",
    "RoleChoices",
    "Roster",
    "Suite",
    "SuiteRun",
    "choose_roles",
    "list_cases",
    "load_data",
    "load_suite",
    "named_seat",
]
