"""From the strings of a command line to the question of a study."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pytest_cepbench.cli.arguments import ROLES
from pytest_cepbench.conventions import split_name
from pytest_cepbench.errors import SpecError, SuiteError
from pytest_cepbench.models.roles import RoleName
from pytest_cepbench.studies import Named, Question
from pytest_cepbench.suites.definition import FILE_NAME


def read_question(given: Namespace) -> Question:
    """The question. Raises SpecError and SuiteError naming the option that is wrong."""
    roles, encoders = _fixed_roles(given)
    return Question(
        study=given.study,
        suite=_suite_file(given.suite),
        models=_named(given.model),
        variants=_variants(given),
        seat=given.seat if given.study == "encoders" else "encoder",
        role=given.role,
        roles=cast("Mapping[RoleName, str]", roles),
        encoders=encoders,
        data=dict(_pair(text) for text in given.data),
        samples=_samples(given.samples),
        metrics=_list("--metrics", given.metrics),
        parts=_list("--parts", given.parts) or (),
    )


def _suite_file(path: Path) -> Path:
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
        return tuple(_seed(text) for text in _list("--seeds", given.seeds) or ())
    if given.study in ("generators", "encoders"):
        return _named(getattr(given, given.study.removesuffix("s")))
    return ()


def _seed(text: str) -> Named:
    if not (text.isascii() and text.isdecimal()):
        msg = f"--seeds: {text!r} is no seed; whole numbers from 0 on are expected, as in --seeds=0,1,2"
        raise SpecError(msg)
    return Named(str(int(text)), str(int(text)))


def _fixed_roles(given: Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Specs of the roles that are the same for all, and of the suite's further encoders."""
    exchanged = given.study.removesuffix("s")
    roles = {r: getattr(given, r) for r in ROLES if r not in (exchanged, "encoder")}
    encoders: dict[str, str] = {}
    if exchanged != "encoder":
        for name, spec in map(split_name, given.encoder):
            if name is None:
                roles["encoder"] = spec
            else:
                encoders[name] = spec
    return {role: spec for role, spec in roles.items() if spec is not None}, encoders


def _pair(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        msg = f"--data {text!r}: NAME=PATH is expected, such as folder=photos"
        raise SpecError(msg)
    return name, Path(path).absolute()


def _samples(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        msg = f"--samples {text!r}: a number of at least 1 is expected"
        raise SpecError(msg)
    return int(text)


def _list(option: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(","))
    if "" in names:
        msg = f"{option} {text!r}: names separated by commas are expected"
        raise SpecError(msg)
    return tuple(dict.fromkeys(names)) if option != "--seeds" else names
