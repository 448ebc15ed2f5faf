"""Reports: results of cases shown to people and machines. Nothing is computed here."""

from pytest_cepbench.report.result import CaseResult, ChainShown, Effort, LinkShown

__all__ = ["CaseResult", "ChainShown", "Effort", "LinkShown"]
