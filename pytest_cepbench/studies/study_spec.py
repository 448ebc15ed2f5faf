"""The settings of a study: its suite, its models, the variants, the numbers that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.suites.cases import OVERALL
from pytest_cepbench.suites.measures import ENCODER
from pytest_cepbench.suites.model_options import Part

StudyName = Literal["seeds", "generators", "encoders", "lengths", "weighting"]

STUDIES: tuple[StudyName, ...] = get_args(StudyName)


@dataclass(frozen=True)
class Named:
    """A model spec and its name in tables."""

    name: str
    spec: str


@dataclass(frozen=True)
class StudySpec:
    """One study of one suite.

    study: which.
    suite: the suite's file.
    models: those under test, each a row.
    variants: the seeds, generators or encoders that are compared; the other studies have their own.
    seat: the encoder that `encoders` exchanges: "encoder", or the name of a further one.
    role: what the models under test play, where it is said.
    roles, encoders: specs that hold for all, as in `RoleChoices`.
    data: data set name -> path.
    samples: most of each category.
    metrics: names of the suite's metrics; all when None.
    parts: looked at beside the whole.
    Raises SpecError for a study without models or with fewer than two variants, for names that do
    not tell rows or columns apart, and for a model that is there under two names.
    """

    study: StudyName
    suite: Path
    models: tuple[Named, ...]
    variants: tuple[Named, ...] = ()
    seat: str = ENCODER
    role: Part | None = None
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Path] = field(default_factory=dict)
    samples: int | None = None
    metrics: tuple[str, ...] | None = None
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models:
            msg = "no model is given: name at least one with --model"
            raise SpecError(msg)
        _refuse_twins("model", self.models)
        _refuse_twins(self.study.removesuffix("s"), self.variants)
        if self.study in ("seeds", "generators", "encoders") and len(self.variants) < 2:
            given = ", ".join(variant.name for variant in self.variants) or "none"
            msg = (
                f"a study of {self.study} compares at least two: got {given}; "
                f"{_HOW_TO_GIVE[self.study]}"
            )
            raise SpecError(msg)

    @property
    def places(self) -> tuple[str, ...]:
        """The parts that are looked at: the whole first."""
        return tuple(dict.fromkeys((OVERALL, *self.parts)))


_HOW_TO_GIVE = {
    "seeds": "write --seeds=0,1,2,3,4",
    "generators": "give --generator several times",
    "encoders": "give --encoder several times",
}


def _refuse_twins(what: str, given: Sequence[Named]) -> None:
    names, specs = [named.name for named in given], [named.spec for named in given]
    for named in given:
        if specs.count(named.spec) > 1:  # it would agree with itself, and raise every correlation
            msg = f"the {what} {named.spec!r} is given twice: give it once"
            raise SpecError(msg)
        if names.count(named.name) > 1:
            msg = f"two are called {named.name!r}, each {what} needs a name of its own: NAME=SPEC"
            raise SpecError(msg)
