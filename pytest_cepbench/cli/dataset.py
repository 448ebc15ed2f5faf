"""`cepbench dataset`: data sets of one's own, constructed in stages, verified by people, frozen."""

from __future__ import annotations

from argparse import Namespace


def run(arguments: Namespace) -> int:
    """Do the action; exit codes as in `main`."""
    if arguments.action == "patterns":
        from pytest_cepbench.cli import dataset_patterns

        return dataset_patterns.run(arguments)
    from pytest_cepbench.cli import dataset_files

    actions = {
        "verify": dataset_files.run_verify,
        "freeze": dataset_files.run_freeze,
        "pairs": dataset_files.run_pairs,
        "arena": dataset_files.run_arena,
    }
    return actions[arguments.action](arguments)
