"""Suites: data set, chains and metrics put together into measurements."""

from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.measure_registry import list_cases
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.data import load_data
from pytest_cepbench.suites.definition import FOLDER, Suite, load_suite
from pytest_cepbench.suites.model_pool import ModelPool
from pytest_cepbench.suites.prepared_suite import (
    PreparedSuite,
    load_prepared_suite,
    prepare_suite,
)
from pytest_cepbench.suites.role_assignment import (
    Assignments,
    RoleChoices,
    assign_models,
    assigned_role,
)
from pytest_cepbench.suites.suite_run import SuiteRun

# For `pytest --pyargs pytest_cepbench.suites.NAME`; see `definition.find_shipped`.
__path__.append(str(FOLDER))

__all__ = [
    "Assignments",
    "Case",
    "ChainRun",
    "ModelPool",
    "PreparedSuite",
    "RoleChoices",
    "Suite",
    "SuiteRun",
    "assign_models",
    "assigned_role",
    "list_cases",
    "load_data",
    "load_prepared_suite",
    "load_suite",
    "prepare_suite",
]
