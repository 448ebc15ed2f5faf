"""Baselines that a process left half-written: put right before a command reads or writes them."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.terminal import NOT_DONE, complain, tell
from pytest_cepbench.errors import WriteError
from pytest_cepbench.replacement import recover


def put_right(root: Path) -> bool:
    """Whether the folder is whole now; where it is not, it was said why."""
    try:
        done = recover(root)
    except WriteError as error:
        complain(str(error), NOT_DONE)
        return False
    if done is not None:
        tell(done)
    return True
