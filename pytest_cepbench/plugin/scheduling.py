"""Which xdist worker judges what: the metrics of one category stay together.

xdist's own grouping (`--dist loadgroup`) does nothing on pytest 9.2, so a scheduler is supplied.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from pytest_cepbench.suites.cases import OVERALL
from pytest_cepbench.suites.measures.mapping import MAPPINGS

_SHARED = tuple(f"{part}-" for part in (OVERALL, *MAPPINGS))


class CategoryScheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist ships no types
    """Load balancing by category: cases that need the same chains go to one worker.

    Scopes are dealt in collection order, categories before what is averaged over them, so that
    groups and the whole suite find most chains in the store.
    """

    def __init__(self, config: Any, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        """`suites/x/test_x.py::test_drift[color-gc]` belongs to `...[color`; others to themselves.

        Mappings belong to `...[overall`: all of them read the chains of the whole suite.
        """
        file, _, name = nodeid.partition("::")
        test, bracket, case = name.partition("[")
        part, dash, _ = case.rpartition("-")
        if not (bracket and dash):
            return nodeid
        if case.startswith(_SHARED):  # their metrics may be named with dashes
            part = OVERALL
        return f"{file}::{test}[{part}"
