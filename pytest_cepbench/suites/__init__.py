"""Suites: data set, chains and metrics put together into measurements."""

from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.casting import Lineup, NotConcernedError, cast_suite
from pytest_cepbench.suites.choices import RoleChoices, named_seat
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import Suite, load_suite
from pytest_cepbench.suites.measures import list_cases
from pytest_cepbench.suites.roster import Roster
from pytest_cepbench.suites.run import SuiteRun

__all__ = [
    "Case",
    "Lineup",
    "NotConcernedError",
    "RoleChoices",
    "Roster",
    "Suite",
    "SuiteRun",
    "cast_suite",
    "list_cases",
    "load_data",
    "load_suite",
    "named_seat",
]
