"""Exceptions: all in one module, below one base."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest_cepbench
from pytest_cepbench import errors
from pytest_cepbench.errors import CepError, DamagedInputsError, IncomparableError

PACKAGE = Path(pytest_cepbench.__file__).parent


def test_no_exception_is_defined_elsewhere() -> None:
    """A reader finds every exception in `errors.py`, and every handler can catch the base."""
    elsewhere = [
        f"{file.relative_to(PACKAGE)}: {node.name}"
        for file in PACKAGE.rglob("*.py")
        if file.name != "errors.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
    ]
    assert elsewhere == []


def test_one_base() -> None:
    """Only an error of the file system and a warning are not below it, and say why."""
    own = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__ and not issubclass(kind, CepError)
    }
    assert own == {"UnfitFileError", "InconclusiveWarning"}


def test_exceptions_carry_data() -> None:
    """Callers need not read a message to go on."""
    incomparable = IncomparableError(("other samples", "other seed"), ("samples", "seed"))
    assert incomparable.reasons == ("other samples", "other seed")
    assert incomparable.fields == ("samples", "seed")
    assert DamagedInputsError([3, 5]).indices == (3, 5)
