"""Gates inside training loops: each checkpoint against the last one that was accepted.

`Gate` runs pytest on a checkpoint in a process of its own and keeps what it accepted in files.
`TrainingGate` calls it from a loop: between steps or beside them, on one rank or several.
`integrations.transformers` and `integrations.lightning` have a callback each; a loop of one's own,
under accelerate or not, uses `TrainingGate` itself.
"""

from pytest_cepbench.errors import TrainingGateError, TrainingStoppedError
from pytest_cepbench.integrations.gate import Gate
from pytest_cepbench.integrations.training_gate import TrainingGate
from pytest_cepbench.integrations.verdict import GatedCase, GateVerdict, Outcome

__all__ = [
    "Gate",
    "GateVerdict",
    "GatedCase",
    "Outcome",
    "TrainingGate",
    "TrainingGateError",
    "TrainingStoppedError",
]
