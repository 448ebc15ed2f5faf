"""The marker `cep`: what a test module can say about its suite."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.suites.definition import FILE_NAME

DOCUMENTATION = (
    "cep(suite, categories, metrics, tolerance): gate the cases of a suite.toml; on every test that "
    "uses cep_gate"
)


@dataclass(frozen=True)
class CepMark:
    """Arguments of `@pytest.mark.cep(...)`, all by name.

    suite: path of the suite's file, relative to the test module; `suite.toml` beside it if left
    out. categories, metrics: only these parts of it. tolerance: instead of the suite's.
    """

    suite: str | None = None
    categories: tuple[str, ...] | None = None
    metrics: tuple[str, ...] | None = None
    tolerance: float | None = None

    @classmethod
    def from_markers(cls, markers: Any) -> CepMark:
        """Merge the markers of a test, the nearest winning. Raises pytest.UsageError by name."""
        values: dict[str, Any] = {}
        known = [field.name for field in fields(cls)]
        for marker in markers:
            if marker.args:
                msg = f"@pytest.mark.cep takes its arguments by name ({', '.join(known)})"
                raise pytest.UsageError(msg)
            for name, value in marker.kwargs.items():
                if name not in known:
                    msg = f"@pytest.mark.cep has no argument {name!r} ({', '.join(known)})"
                    raise pytest.UsageError(msg)
                values.setdefault(name, tuple(value) if isinstance(value, list) else value)
        return cls(**values)

    def suite_file(self, module: Path) -> Path:
        """The suite's file, as seen from the test module."""
        return (module.parent / (self.suite or FILE_NAME)).resolve()
