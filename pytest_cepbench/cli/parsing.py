"""From the strings of a command line to the question of a study, or to the trial of a model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.gate.policy import check_alpha, check_tolerance
from pytest_cepbench.models.protocols import ROLE_NAMES, RoleName
from pytest_cepbench.option_values import at_least_one, named_specs, split_name, split_pair
from pytest_cepbench.studies import Named, StudySpec
from pytest_cepbench.studies.calibration import Trial
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.definition import FILE_NAME
from pytest_cepbench.suites.gate_config import Overrides


def read_question(given: Namespace) -> StudySpec:
    """The question. Raises SpecError and SuiteError naming the option that is wrong."""
    roles, encoders = fixed_roles(given, given.study.removesuffix("s"))
    return StudySpec(
        study=given.study,
        suite=suite_file(given.suite),
        models=_named(given.model),
        variants=_variants(given),
        seat=given.seat if given.study == "encoders" else "encoder",
        role=given.role,
        roles=roles,
        encoders=encoders,
        data=read_data(given.data),
        samples=read_count("--samples", given.samples),
        metrics=_names("--metrics", given.metrics),
        parts=_names("--parts", given.parts) or (),
    )


def read_trial(given: Namespace) -> Trial:
    """What is to be calibrated. Raises as `read_question`."""
    roles, encoders = fixed_roles(given)
    return Trial(
        suite=suite_file(given.suite),
        choices=RoleChoices(given.model, given.role, roles, encoders),
        seeds=read_count("--seeds", given.seeds) or 0,
        data=read_data(given.data),
        samples=read_count("--samples", given.samples),
        overrides=Overrides(
            tolerance=_number("--tolerance", given.tolerance, check_tolerance),
            alpha=_number("--alpha", given.alpha, check_alpha),
            sources={"tolerance": "--tolerance", "alpha": "--alpha"},
        ),
    )


def suite_file(path: Path) -> Path:
    """The suite's file, which may be named by its folder. Raises SuiteError."""
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        msg = f"no suite at {str(path)!r}: a folder with a {FILE_NAME}, or such a file, is expected"
        raise SuiteError(msg)
    return file


def _named(texts: Sequence[str]) -> tuple[Named, ...]:
    pairs = [split_name(text) for text in texts]
    return tuple(Named(spec if name is None else name, spec) for name, spec in pairs)


def _variants(given: Namespace) -> tuple[Named, ...]:
    if given.study == "seeds":
        return tuple(_seed(text) for text in _split("--seeds", given.seeds))
    if given.study in ("generators", "encoders"):
        return _named(getattr(given, given.study.removesuffix("s")))
    return ()


def _seed(text: str) -> Named:
    if not (text.isascii() and text.isdecimal()):
        msg = f"--seeds: {text!r} is no seed; whole numbers from 0 on are expected, as in --seeds=0,1,2"
        raise SpecError(msg)
    seed = str(int(text))
    return Named(seed, seed)


def fixed_roles(
    given: Namespace, exchanged: str | None = None
) -> tuple[dict[RoleName, str], dict[str, str]]:
    """Specs of the roles that are the same for all, and of the suite's further encoders."""
    roles = {
        r: getattr(given, r) for r in ROLE_NAMES if r in given and r not in (exchanged, "encoder")
    }
    encoders: dict[str, str] = {}
    if exchanged != "encoder":
        roles["encoder"], encoders = named_specs(given.encoder)
    return {role: spec for role, spec in roles.items() if spec is not None}, encoders


def read_data(texts: Sequence[str]) -> dict[str, Path]:
    """Data set name -> path of several NAME=PATH. Raises SpecError."""
    with _explained():
        return {
            name: Path(path).absolute() for name, path in (split_pair(t, "--data") for t in texts)
        }


def read_count(option: str, text: str | None) -> int | None:
    """A number of at least 1; None where the option is not given. Raises SpecError."""
    with _explained():
        return None if text is None else at_least_one(text, option)


def _number(option: str, text: str | None, check: Callable[[float, str], None]) -> float | None:
    """A number that passes a check, which raises ValueError; None where the option is not given."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError as error:
        msg = f"{option} {text!r}: a number is expected"
        raise SpecError(msg) from error
    with _explained():
        check(value, option)
    return value


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise SpecError(str(error)) from error


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Each name once; None where the option is not given."""
    return None if text is None else tuple(dict.fromkeys(_split(option, text)))


def _split(option: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if "" in names:
        msg = f"{option} {text!r}: names separated by commas are expected"
        raise SpecError(msg)
    return names
