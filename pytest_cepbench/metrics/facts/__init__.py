"""Facts: whether what is true of a sample is still told and still shown along its chain.

A sample has atomic facts ("a red circle", "three shapes"). Each is checked in every text and every
picture of its chain: 1 where it holds, 0 where it does not, anything between where the check is
soft, NaN where there is no answer. `fact_f1` makes one score of these answers; `half_life`,
`truth_table` and `attribute_losses` say which kinds of facts are lost, when, and by which role.

The idea, facts of one scene graph checked on both sides of a unified model, is XTC-Bench's (2026);
the formulas here are of chains and are this project's own.
"""

from pytest_cepbench.metrics.facts.answers import FactAnswers, fact_f1, right_share
from pytest_cepbench.metrics.facts.chance import chance_f1
from pytest_cepbench.metrics.facts.fact import KINDS, Fact, check_kinds
from pytest_cepbench.metrics.facts.half_life import HalfLife, half_life
from pytest_cepbench.metrics.facts.summary import (
    FactSummary,
    KindSummary,
    PairTable,
    summarize_facts,
)
from pytest_cepbench.metrics.facts.truth_table import (
    Role,
    RoleLoss,
    TruthTable,
    attribute_losses,
    truth_table,
)

__all__ = [
    "KINDS",
    "Fact",
    "FactAnswers",
    "FactSummary",
    "HalfLife",
    "KindSummary",
    "PairTable",
    "Role",
    "RoleLoss",
    "TruthTable",
    "attribute_losses",
    "chance_f1",
    "check_kinds",
    "fact_f1",
    "half_life",
    "right_share",
    "summarize_facts",
    "truth_table",
]
