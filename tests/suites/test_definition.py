"""The suite file: whatever is wrong in it is refused by name, with the file's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import SuiteError
from pytest_cepbench.gate import Policy
from pytest_cepbench.suites import load_suite
from tests.plugin.project import SHAPES


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_suite_is_read_as_written(tmp_path: Path) -> None:
    """Names, plan and policies are those of the file; what is left out has the documented default."""
    suite = load_suite(_write(tmp_path, SHAPES))
    assert (suite.name, suite.folder) == ("toy", tmp_path)
    (plan,) = suite.plans.values()
    assert list(suite.plans) == ["image"]
    assert (plan.start, plan.iterations, plan.seed) == ("image", 2, 0)
    assert (plan.describe, plan.generate) == ("describe", "{description}")
    assert suite.policy("gc") == Policy("threshold", 0.01)


def test_the_nearest_tolerance_counts(tmp_path: Path) -> None:
    """The given one, else the metric's, else the suite's; 0 is a tolerance, not a gap."""
    suite = load_suite(_write(tmp_path, SHAPES + "[gate]\ntolerance = 0.5\n"))
    assert suite.policy("gc").tolerance == 0.5
    assert suite.policy("failures").tolerance == 0.0
    assert suite.policy("failures", 0.3).tolerance == 0.3
    assert suite.policy("gc", 0.0).tolerance == 0.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 1\ncolour = 2", "unknown field `colour`"),
        ("iterations = 2", "iterations = 2\nturns = 3", r"unknown field `turns` - at `\$.chain`"),
        ("version = 1\n", "", "missing required field `version`"),
        ("version = 1", "version = '1'", r"Expected `int`, got `str` - at `\$.version`"),
        ('name = "toy"', 'name = "My Suite"', "name = 'My Suite': lower-case letters, digits"),
        ('name = "toy"', 'name = "../up"', "name = '../up': lower-case letters, digits"),
        ("iterations = 2", "iterations = 0", "chain.iterations = 0: at least 1"),
        ("iterations = 2", 'start = "sound"', r"Invalid enum value 'sound' - at `\$.chain.start`"),
        ('describe = "describe"', 'describe = ""\ngenerate = "draw"', "'draw' does not hold {desc"),
        ("[metrics.gc]", "[metrics.gcc]", "unknown metric 'gcc'. Did you mean 'gc'?"),
        ("[metrics.gc]\n[metrics.failures]\ntolerance = 0.0", "[metrics]", "no metric under"),
        ("tolerance = 0.0", "tolerance = -0.1", "tolerance = -0.1 of metric failures: at least 0"),
        ("tolerance = 0.0", "tolerance = nan", "tolerance = nan of metric failures: at least 0"),
        ("tolerance = 0.0", "tolerance = inf", "tolerance = inf of metric failures: at least 0"),
        ("[chain]", "[groups]\noverall = ['color']\n[chain]", "group 'overall' is reserved or"),
        ("[chain]", "[groups]\nnone = []\n[chain]", "group 'none' is reserved or empty"),
        ("[chain]", "[gate]\ngate = 'luck'\n[chain]", r"Invalid enum value 'luck'"),
        ("[chain]", "[chain", "suite.toml"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Unknown keys, metrics and values, and texts that are no TOML, raise SuiteError by name."""
    assert old in SHAPES
    path = _write(tmp_path, SHAPES.replace(old, new))
    with pytest.raises(SuiteError, match=message) as caught:
        load_suite(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing files, folders and bytes that are no UTF-8 are explained as well."""
    with pytest.raises(SuiteError, match="cannot be read: No such file"):
        load_suite(tmp_path / "suite.toml")
    with pytest.raises(SuiteError, match="cannot be read: Is a directory"):
        load_suite(tmp_path)
    (tmp_path / "suite.toml").write_bytes(SHAPES.encode() + b'description = "\xff"\n')
    with pytest.raises(SuiteError, match=r"suite\.toml"):
        load_suite(tmp_path / "suite.toml")


@given(st.binary(max_size=200))
def test_no_bytes_escape_as_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """Whatever is in the file, reading it gives a suite or SuiteError."""
    path = tmp_path_factory.getbasetemp() / "suite.toml"
    path.write_bytes(data)
    with pytest.raises(SuiteError):
        load_suite(path)
