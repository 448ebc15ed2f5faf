"""Statistics of the gate: bounds of paired differences, many cases, looking again, power.

Pure functions of arrays, without files, models or pytest.
"""

from pytest_cepbench.gate.statistics.bounds import GAFFKE, HALL, Bounds, mean_bounds
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.gate.statistics.error_budget import (
    alpha_shares,
    checkpoint_share,
    holm,
    look_shares,
    look_sizes,
    reference_share,
)
from pytest_cepbench.gate.statistics.power import (
    Design,
    chance_to_fail,
    chance_to_hold,
    smallest_visible,
    tolerance_that_holds,
    units_needed,
    units_to_fail,
)

__all__ = [
    "GAFFKE",
    "HALL",
    "Bounds",
    "Design",
    "Differences",
    "alpha_shares",
    "chance_to_fail",
    "chance_to_hold",
    "checkpoint_share",
    "holm",
    "look_shares",
    "look_sizes",
    "mean_bounds",
    "reference_share",
    "smallest_visible",
    "tolerance_that_holds",
    "units_needed",
    "units_to_fail",
]
