"""Suites: data set, chains and metrics put together into measurements."""

from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import Suite, load_suite
from pytest_cepbench.suites.measures import list_cases
from pytest_cepbench.suites.model_options import RoleChoices, named_seat
from pytest_cepbench.suites.model_pool import ModelPool
from pytest_cepbench.suites.role_assignment import Assignments, cast_suite
from pytest_cepbench.suites.suite_run import SuiteRun

__all__ = [
    "Assignments",
    "Case",
    "ModelPool",
    "RoleChoices",
    "Suite",
    "SuiteRun",
    "cast_suite",
    "list_cases",
    "load_data",
    "load_suite",
    "named_seat",
]
