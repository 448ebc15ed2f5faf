"""Statistics of the gate: bounds of paired differences, many cases, looking again, power.

Pure functions of arrays, without files, models or pytest, and without SciPy.
"""

from pytest_cepbench.gate.statistics.bounds import Bounds, Method, mean_bounds
from pytest_cepbench.gate.statistics.multiplicity import alpha_shares, holm
from pytest_cepbench.gate.statistics.paired import Differences
from pytest_cepbench.gate.statistics.power import samples_needed, smallest_visible
from pytest_cepbench.gate.statistics.sequential import look_shares, look_sizes
from pytest_cepbench.gate.statistics.sign_test import WinRate, win_rate

__all__ = [
    "Bounds",
    "Differences",
    "Method",
    "WinRate",
    "alpha_shares",
    "holm",
    "look_shares",
    "look_sizes",
    "mean_bounds",
    "samples_needed",
    "smallest_visible",
    "win_rate",
]
