"""The numbers of the gate that were found by simulation, and what breaks without each.

Those of test, bounds, looks, series and power were found and are checked by
`python -m benchmarks.gate_error_rates` (its tables: benchmarks/results/gate-error-rates.md). A
promise that one of them breaks is named there.
"""

# -- test of a drop: benchmarks/gate_error_rates.py, "False failures and false passes", "Speed" ----

ALL_UNITS = 17
"""Units that differ of which all flips are made; of more, a case would take seconds."""

FLIP_ROUNDS = (11, 13, 15, 17, 18)
"""Log2 of flips: the first round is enough for most p values. Only the last has values of at most
alpha, so that stopping before it costs no error."""

ENOUGH_FLIPS = 100
"""Flips in the tail that put a p value right within a tenth; of fewer, verdicts near alpha would be
drawn by the hash that makes the flips."""

# -- bounds: "Worlds that are hard" and "The step from Hall's bound to Gaffke's" -------------------

LUMP = 0.75
"""Share of units with the same difference from which on they are a lump: beyond it Hall's bound
passes rare larger losses behind the ties more often than alpha."""

SAME_DIFFERENCE = 0.0005
"""Of the span: differences this near count as the same. Noise as small would hide a lump, and says
nothing of what no unit shows."""

FARTHEST_TURN = 9 / 8
"""Of c t + c^2 / 6, where Hall's transformation turns back: without the stop the bounds of 8
samples err up to 2.8 times as often as they say."""

# -- looking again: "Looking again" ----------------------------------------------------------------

FIRST_LOOK, LEAST_GROWTH = 25, 1.25
"""Samples at the first of looks that double, and the least growth: a look at hardly more samples
costs error and shows nothing new."""

LAST_LOOK = 0.5
"""Of the error: what the last look has, so that whoever does not stop early pays little for having
looked."""

# -- series of gates: "A series of gates" and "Whole trainings" ------------------------------------

EXPECTED_CHECKPOINTS = 40
"""Checkpoints over which half of the error is spent, where nothing else is said."""

LEAST_SHARE = 1e-5
"""The smallest share of a checkpoint: with less of alpha no drop is told from noise."""

RECENT = 2
"""Checkpoints after a baseline over which half of the error of its comparisons is spent: most
trainings move their baseline at each good checkpoint."""

FIXED = 0.5
"""Of a checkpoint's share: for the baseline that the series began with, without which a slow
decline is found late."""

# -- what people are told of power: "What people are told" -----------------------------------------

FEWEST_IN_STRATUM, MOST_SCATTER = 2.5, 1.6
"""Units of a stratum that show skewness, and how far theirs scatters: without the cap, power
foretold of few samples in a category is off by more than 5 points."""

UNEVEN = 0.75
"""Of the units: with fewer effective ones the spread is that of a few, and with as many units as
24 samples in six such categories called needed for 80 %, 64 % were held."""

# -- what a case can see: benchmarks/regressions.py ------------------------------------------------

SAME_SCORE = 0.1
"""Of the tolerance: how far each score of the same weights may move, on another machine, say,
without being compared as if another model gave it."""

SMALL_SHARE, SMALLEST_SHARE = 0.25, 0.05
"""Of the range from chance to the best: accepting below the first warns, below the second is
refused unless asked for. From there no damage of a checkpoint shows."""

MOST_TIES = 0.9
"""Of different answers: from this share of ties on, what judges them may tell nothing apart."""

MOST_UNSCORED = 0.02
"""Share of a case's samples that may lack a score because a model that measures failed. Of more,
bounds that allow for the worst could decide nothing at the tolerances of the suites."""
