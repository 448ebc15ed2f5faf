"""The gate: measurements against accepted baselines, and the verdicts that come of it."""

from pytest_cepbench.gate.baseline import Baseline, dump_baseline, load_baseline
from pytest_cepbench.gate.judge import Judgement, Policy, judge
from pytest_cepbench.gate.measurement import CaseKey, Measurement
from pytest_cepbench.gate.verdict import PRESENTATIONS, Presentation, Verdict

__all__ = [
    "PRESENTATIONS",
    "Baseline",
    "CaseKey",
    "Judgement",
    "Measurement",
    "Policy",
    "Presentation",
    "Verdict",
    "dump_baseline",
    "judge",
    "load_baseline",
]
