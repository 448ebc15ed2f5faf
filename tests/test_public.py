"""The public surface: names that users import, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_cepbench


@pytest.mark.parametrize("name", pytest_cepbench.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    """Each name of `__all__` can be had, and says what it is."""
    exported = getattr(pytest_cepbench, name)

    assert name in dir(pytest_cepbench)
    assert name == "__version__" or (exported.__doc__ or "").strip()


def test_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'Describe'"):
        _ = pytest_cepbench.Describe


def test_importing_the_package_imports_nothing_heavy() -> None:
    """`import pytest_cepbench` brings neither NumPy nor Pillow nor any floor of the house."""
    code = (
        "import sys; before = set(sys.modules); import pytest_cepbench; "
        "print(*(set(sys.modules) - before))"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    new = set(ended.stdout.split())
    assert "pytest_cepbench" in new
    assert not {name for name in new if name.partition(".")[0] in {"numpy", "PIL", "torch"}}
    assert not {name for name in new if name.startswith("pytest_cepbench.")}
