"""A user's project that runs shipped suites as they are, and what its runs left behind."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from pytest_cepbench.chains import Link, Modality
from pytest_cepbench.measures.cases import POOLED
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.acceptance.suites.warm import run_pytest
from tests.documents import flat_report

SHIPPED = Path(__file__).parents[3] / "suites"

INI = """\
[pytest]
addopts = --strict-markers -p no:cacheprovider -p no:hypothesispytest -p no:anyio -p no:xdist
filterwarnings =
    error
    ignore:Module already imported:pytest.PytestAssertRewriteWarning
cepbench_gate = threshold
"""
"""Strict; the one exception is for a plugin of this environment that the warm libraries import.

The plain rule: of the few samples here, which are about the measuring, statistics would say
nothing.
"""


class Run(NamedTuple):
    """One run of pytest: its exit code, what it printed, its JSON report (empty without one)."""

    code: int
    output: str
    report: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, *arguments: str) -> Run:
        """Run pytest in a folder, in a process of its own that has the model libraries."""
        report = folder / ".cepbench" / "report.json"
        report.unlink(missing_ok=True)
        printed = folder / "output.txt"
        code = run_pytest(folder, arguments, printed)
        document = flat_report(json.loads(report.read_text()) if report.exists() else {})
        return cls(code, printed.read_text(), document)

    @property
    def cases(self) -> dict[str, dict[str, Any]]:
        """The measured cases, by `suite/part/metric`, without the verdicts of whole suites."""
        return {
            f"{case['suite']}/{case['part']}/{case['metric']}": case
            for case in self.report["cases"]
            if (case["part"], case["metric"]) != POOLED
        }


@dataclass(frozen=True)
class Cast:
    """What a user says of models and data; the command line, and the same for code."""

    model: str
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Path] = field(default_factory=dict)
    samples: int | None = None

    @property
    def options(self) -> list[str]:
        """As they are typed."""
        options = [f"--model={self.model}"]
        options += [f"--{role}={spec}" for role, spec in self.roles.items()]
        options += [f"--encoder={name}={spec}" for name, spec in self.encoders.items()]
        options += [f"--cep-data={name}={path}" for name, path in self.data.items()]
        return options + ([] if self.samples is None else [f"--cep-samples={self.samples}"])


def chain_run(
    file: Path,
    choices: RoleChoices,
    data: Mapping[str, Path],
    store: Store,
    samples: int | None = None,
) -> ChainRun:
    """The run of a suite's file that the command line would make, nothing measured yet."""
    suite = load_suite(file)
    dataset = load_data(suite, data, samples)
    assignments, measures = assign_models(suite, choices)
    return ChainRun(suite, dataset, assignments, measures, ModelPool(store, threads=1))


def measure_all(run: ChainRun) -> dict[str, CaseMeasurement]:
    """What is measured of every case, by its id."""
    cases = list_cases(run.measures, run.suite.table.name, run.dataset, run.suite.table.groups)
    return {case.id: run.measure(case) for case in cases}


@dataclass(frozen=True)
class Project:
    """A folder with copies of shipped suites."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, *suites: str) -> Project:
        """A project of these suites, nothing accepted yet."""
        for suite in suites:
            shutil.copytree(SHIPPED / suite, folder / "suites" / suite)
        (folder / "pytest.ini").write_text(INI)
        return cls(folder)

    def run(self, cast: Cast, *arguments: str, paths: Sequence[str] = ("suites",)) -> Run:
        """Run pytest in the project."""
        return Run.of(self.folder, *paths, *cast.options, *arguments)

    def accept(self, cast: Cast, *arguments: str, paths: Sequence[str] = ("suites",)) -> Run:
        """A run that accepts baselines, and did, though untrained models are often at chance."""
        asked = ("--snapshot-update", "--cep-accept-insensitive")
        run = self.run(cast, *asked, *arguments, paths=paths)
        assert run.code == 0, run.output
        assert all(case["accepted"] for case in run.report["cases"])
        return run

    def scores(self, case: str) -> dict[str, dict[str, float]]:
        """The accepted scores of `suite/part/metric`: by category, then sample."""
        for path in (self.folder / "baselines").rglob("*.toml"):
            baseline = tomllib.loads(path.read_text())
            if baseline["case"] == case:
                scores: dict[str, dict[str, float]] = baseline["scores"]
                return scores
        raise AssertionError(case)

    def chains(self, cast: Cast, suite: str, start: Modality) -> dict[str, list[Link]]:
        """What is in the store of each sample's chain, by id; `suite` is the path below suites/."""
        choices = RoleChoices(cast.model, roles=cast.roles, encoders=cast.encoders)
        with self.store() as store:
            file = self.folder / "suites" / suite
            run = chain_run(file, choices, cast.data, store, cast.samples)
            chains = run.data.chains(start, run.dataset.samples)
            return {name: chain.links for name, chain in chains.items()}

    def store(self) -> Store:
        """The project's store."""
        return Store(self.folder / ".cepbench" / "store")

    def drawn(self, links: Sequence[Link]) -> list[Image.Image]:
        """The images of these links, which are all in the store."""
        with self.store() as store:
            images = [store.get_image(link.digest) for link in links]
        assert all(image is not None for image in images)
        return [image.to_pil() for image in images if image is not None]


def good_verdict(case: Mapping[str, Any]) -> str:
    """The verdict of a case of a report that lost no more than is tolerated.

    `held`, but `inconclusive` where its baseline has nothing to lose: an untrained checkpoint's
    similarity is often what chance gives, and its drawings show nothing that was asked for.
    """
    metric = str(case["metric"])
    if metric == "failures":
        most = 1 - case["baseline"]
    elif metric in ("geneval", "mgg"):
        most = case["baseline"]
    elif case["baseline_floor"] is not None:
        most = case["baseline"] - case["baseline_floor"]
    else:
        return "held"
    return "held" if round(most, 6) > case["tolerance"] else "inconclusive"


def assert_none_lost(cases: Sequence[Mapping[str, Any]]) -> None:
    """Each case of a report has its good verdict, and so has each suite as a whole."""
    wholes = [case for case in cases if (case["part"], case["metric"]) == POOLED]
    measured = [case for case in cases if (case["part"], case["metric"]) != POOLED]
    verdicts = {(case["suite"], case["part"], case["metric"]): case["verdict"] for case in measured}
    assert verdicts == {
        (case["suite"], case["part"], case["metric"]): good_verdict(case) for case in measured
    }
    for whole in wholes:
        own = [case for case in measured if case["primary"] and case["suite"] == whole["suite"]]
        held = {case["verdict"] for case in own} == {"held"}
        assert whole["verdict"] == ("held" if held else "inconclusive")


class Gated(NamedTuple):
    """A project, what was typed, and the run that accepted it."""

    project: Project
    cast: Cast
    run: Run
