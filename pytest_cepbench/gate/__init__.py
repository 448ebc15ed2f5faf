"""The gate: measurements against accepted baselines, and the verdicts that come of it."""

from pytest_cepbench.gate.baseline import dump_baseline, load_baseline, record_of
from pytest_cepbench.gate.compare import Judgement, judge
from pytest_cepbench.gate.measurement import CaseKey, FreshMeasurement, Measurement, Noise
from pytest_cepbench.gate.policy import Policy
from pytest_cepbench.gate.verdict import PRESENTATIONS, Presentation, Verdict, present

__all__ = [
    "PRESENTATIONS",
    "CaseKey",
    "FreshMeasurement",
    "Judgement",
    "Measurement",
    "Noise",
    "Policy",
    "Presentation",
    "Verdict",
    "dump_baseline",
    "judge",
    "load_baseline",
    "present",
    "record_of",
]
