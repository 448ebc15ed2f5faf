"""The TOML file of a suite, read strictly: what is not known is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.chains.plan import PLACEHOLDER
from pytest_cepbench.errors import SuiteError, unknown_name
from pytest_cepbench.gate import Policy
from pytest_cepbench.gate.judge import GateName
from pytest_cepbench.metrics import METRICS

FILE_NAME = "suite.toml"

OVERALL = "overall"
"""The part of a suite that is all of it; no category or group may have this name."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the tables: a key that is not a field is an error."""


class DataTable(_Strict, frozen=True):
    """Where samples come from.

    loader: "shapes", "folder", "mme", or "python:package.module:function".
    name: what `--cep-data NAME=PATH` calls it; the loader's name when left out.
    path: of the data, relative to the suite's folder; `--cep-data` goes before it.
    how_to_get: one sentence shown where the data set is absent.
    options: keyword arguments of the loader.
    """

    loader: str
    name: str | None = None
    path: str | None = None
    how_to_get: str = ""
    options: dict[str, Any] = {}


class ChainTable(_Strict, frozen=True):
    """The shape of the chains; see `ChainPlan`."""

    start: Literal["image", "text"] = "image"
    iterations: int = 3
    seed: int = 0


class PromptsTable(_Strict, frozen=True):
    """What the models are asked; generate holds `{description}`."""

    describe: str
    generate: str = PLACEHOLDER


class RolesTable(_Strict, frozen=True):
    """Model specs for the roles that the command line leaves open."""

    describer: str | None = None
    generator: str | None = None
    encoder: str | None = None


class MetricTable(_Strict, frozen=True):
    """Settings of one metric; what is left out is the suite's."""

    tolerance: float | None = None


class GateTable(_Strict, frozen=True):
    """How cases are judged; see `Policy`."""

    gate: GateName = "threshold"
    tolerance: float = 0.01


class SuiteTable(_Strict, frozen=True):
    """The whole file."""

    name: str
    version: int
    data: DataTable
    prompts: PromptsTable
    metrics: dict[str, MetricTable]
    description: str = ""
    chain: ChainTable = ChainTable()
    roles: RolesTable = RolesTable()
    groups: dict[str, list[str]] = {}
    gate: GateTable = GateTable()


class Suite(msgspec.Struct, frozen=True):
    """A suite: its table and the folder it was read from."""

    table: SuiteTable
    folder: Path

    @property
    def name(self) -> str:
        """Names the suite in cases, baselines and reports."""
        return self.table.name

    @property
    def plan(self) -> ChainPlan:
        """What is done to every sample."""
        chain, prompts = self.table.chain, self.table.prompts
        return ChainPlan(
            start=chain.start,
            iterations=chain.iterations,
            describe=prompts.describe,
            generate=prompts.generate,
            seed=chain.seed,
        )

    def policy(self, metric: str, tolerance: float | None = None) -> Policy:
        """How a metric's cases are judged: the given tolerance, else the metric's, else the suite's.

        Raises ValueError for a tolerance below 0.
        """
        own = self.table.metrics[metric].tolerance
        for candidate in (tolerance, own, self.table.gate.tolerance):
            if candidate is not None:
                return Policy(self.table.gate.gate, candidate)
        raise AssertionError


def load_suite(path: Path) -> Suite:
    """Read a suite's TOML file. Raises SuiteError naming the file and the key that is wrong."""
    try:
        table = msgspec.toml.decode(path.read_bytes(), type=SuiteTable)
    except OSError as error:
        msg = f"suite file {str(path)!r} cannot be read: {error.strerror}"
        raise SuiteError(msg) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # includes what is not TOML at all
        msg = f"suite file {str(path)!r}: {error}"
        raise SuiteError(msg) from error
    for problem in _problems(table):
        msg = f"suite file {str(path)!r}: {problem}"
        raise SuiteError(msg)
    return Suite(table, path.parent)


def _problems(table: SuiteTable) -> Iterator[str]:
    if not _NAME.fullmatch(table.name):
        yield f"name = {table.name!r}: lower-case letters, digits, - and _ are expected"
    if table.chain.iterations < 1:
        yield f"chain.iterations = {table.chain.iterations}: at least 1 is expected"
    if PLACEHOLDER not in table.prompts.generate:
        yield f"prompts.generate = {table.prompts.generate!r} does not hold {PLACEHOLDER}"
    if not table.metrics:
        yield f"no metric under [metrics]; known: {', '.join(sorted(METRICS))}"
    for name, metric in table.metrics.items():
        if name not in METRICS:
            yield unknown_name("metric", name, METRICS)
        tolerance = table.gate.tolerance if metric.tolerance is None else metric.tolerance
        if not 0 <= tolerance < float("inf"):
            yield f"tolerance = {tolerance} of metric {name}: at least 0 is expected"
    for group, members in table.groups.items():
        if group == OVERALL or not members:
            yield f"group {group!r} is reserved or empty"
