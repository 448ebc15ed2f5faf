"""The roles in a suite: those that make what is measured; all others read it."""

from __future__ import annotations

from pytest_cepbench.models.protocols import RoleName

GROWERS: tuple[RoleName, ...] = ("describer", "generator")
"""The roles that grow chains; all others read them."""

ANSWERING: tuple[RoleName, ...] = ("interleaver", "writer", "generator", "editor")
"""The roles that make interleaved answers: the first alone, or the others together."""

ANSWERS_ONLY: tuple[RoleName, ...] = ("interleaver", "writer", "editor", "judge")
"""Roles that no chain has."""
