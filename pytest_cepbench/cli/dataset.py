"""`cepbench dataset`: data sets of one's own, constructed in stages, verified by people, frozen."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module

_ACTIONS = {
    "patterns": "dataset_patterns",
    "verify": "dataset_verify",
    "freeze": "dataset_freeze",
    "pairs": "dataset_pairs",
    "arena": "dataset_arena",
}


def run(arguments: Namespace) -> int:
    """Do the action; exit codes as in `main`."""
    module = import_module(f"pytest_cepbench.cli.{_ACTIONS[arguments.action]}")
    return int(module.run(arguments))
