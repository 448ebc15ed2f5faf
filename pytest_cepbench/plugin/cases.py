"""What is a case among pytest's tests. Standard library and pytest only."""

from __future__ import annotations

import pytest

MISTAKE = "cepbench_mistake"
"""Attribute of the report on a module that was not collected since its suite is written wrongly."""


def is_case(item: pytest.Item) -> bool:
    """Whether a test takes a case."""
    return "cep_case" in getattr(item, "fixturenames", ())


def stands_for(item: pytest.Item) -> str:
    """What is not judged where a test is skipped.

    Its "case"; the "suite" of which it takes the place; or "nothing", where there is no case, since
    the data is not here, or the model under test has no part in the suite.
    """
    params = getattr(getattr(item, "callspec", None), "params", {})
    absent = "cep_case" in params and params["cep_case"] is None
    return str(getattr(item, "stands_for", "nothing" if absent else "case"))
