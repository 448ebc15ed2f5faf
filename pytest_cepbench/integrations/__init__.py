"""Gates inside training loops: each checkpoint against the last one that was accepted.

`Gate` runs pytest on a checkpoint in a process of its own and keeps what it accepted in files.
`TrainingGate` calls it from a loop: between steps or beside them, on one rank or several.
`integrations.transformers` and `integrations.lightning` have a callback each; a loop of one's own,
under accelerate or not, uses `TrainingGate` itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_cepbench.errors import TrainingGateError as TrainingGateError
    from pytest_cepbench.errors import TrainingStoppedError as TrainingStoppedError
    from pytest_cepbench.integrations.gate import Gate as Gate
    from pytest_cepbench.integrations.training_gate import TrainingGate as TrainingGate
    from pytest_cepbench.integrations.verdict import GatedCase as GatedCase
    from pytest_cepbench.integrations.verdict import GateVerdict as GateVerdict
    from pytest_cepbench.integrations.verdict import Outcome as Outcome

_HOMES = {
    "Gate": "integrations.gate",
    "GateVerdict": "integrations.verdict",
    "GatedCase": "integrations.verdict",
    "Outcome": "integrations.verdict",
    "TrainingGate": "integrations.training_gate",
    "TrainingGateError": "errors",
    "TrainingStoppedError": "errors",
}

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604 - made of the table above


def __getattr__(name: str) -> Any:
    """Load a public name from its home (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pytest_cepbench.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
