"""The marker `cep`: what a test module can say about its suite."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import SuiteError, unknown_name
from pytest_cepbench.suites.definition import FILE_NAME
from pytest_cepbench.suites.gate_config import Overrides


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
        """Merge the markers of a test, the nearest winning. Raises SuiteError naming what is wrong."""
        values: dict[str, Any] = {}
        known = [field.name for field in fields(cls)]
        for marker in markers:
            if marker.args:
                msg = f"@pytest.mark.cep takes its arguments by name ({', '.join(known)})"
                raise SuiteError(msg)
            for name, value in marker.kwargs.items():
                if name not in known:
                    msg = f"@pytest.mark.cep: {unknown_name('argument', name, known)}"
                    raise SuiteError(msg)
                _check(name, value)
                values.setdefault(name, tuple(value) if isinstance(value, list) else value)
        return cls(**values)

    @property
    def partial(self) -> bool:
        """Whether it leaves out cases of the suite."""
        return self.categories is not None or self.metrics is not None

    @property
    def overrides(self) -> Overrides:
        """What it says of how cases are judged."""
        return Overrides(tolerance=self.tolerance, sources={"tolerance": "@pytest.mark.cep"})

    def suite_file(self, module: Path) -> Path:
        """The suite's file, as seen from the test module."""
        return _resolved(module.parent, self.suite or FILE_NAME)


@cache  # asked for every case, and links in a path do not move within a run
def _resolved(folder: Path, name: str) -> Path:
    return (folder / name).resolve()


def is_tolerance(value: Any) -> bool:
    """Whether it is a number of at least 0, and finite."""
    return isinstance(value, int | float) and 0 <= value < float("inf")


def _check(name: str, value: Any) -> None:
    """Raises SuiteError for a value of the wrong kind; None is as good as left out."""
    kinds = {
        "suite": ("a path", isinstance(value, str)),
        "tolerance": ("a number of at least 0", is_tolerance(value)),
    }
    names = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    expected, fits = kinds.get(name, ("a list of names", names))
    if value is not None and not fits:
        msg = f"@pytest.mark.cep: {name} is {expected}, got {value!r}"
        raise SuiteError(msg)
