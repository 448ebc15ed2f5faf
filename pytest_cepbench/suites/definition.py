"""A suite's TOML file: read strictly, what is not known refused by name, and edited in place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.chains.answers.answer_plan import (
    STEP_PLACEHOLDER,
    AnswerPlan,
    BattleRules,
    OrderName,
)
from pytest_cepbench.chains.chain import PLACEHOLDER, CaptionRules
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.files import MOST_TEXT, parse_toml, read_regular
from pytest_cepbench.gate.policy import GateName
from pytest_cepbench.measures.base import MetricTable, number_problems
from pytest_cepbench.measures.cases import OVERALL, POOLED
from pytest_cepbench.measures.measure_registry import (
    ANSWER_KINDS,
    KINDS,
    explain_mismatch,
    read_table,
)
from pytest_cepbench.models.protocols import ROLE_NAMES, RoleName

FILE_NAME = "suite.toml"

_ITERATIONS = 3

_MOST = 10_000
"""Iterations, generations or seeds: more are a slip, which would end in no time or memory."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
"""Of suites, metrics and encoders."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the tables: a key that is not a field is an error."""


class DataTable(_Strict, frozen=True):
    """The source of the samples.

    loader: one of the package's loaders, or "python:package.module:function"; required.
    name: what `--cep-data NAME=PATH` calls it; the loader's name when left out.
    path: of the data, relative to the suite's folder; `--cep-data` goes before it.
    needed: whether a path is needed although the loader has data of its own.
    how_to_get: one sentence shown where the data set is absent.
    options: keyword arguments of the loader.
    config, split: of a data set in tables, where it has several.
    id, image, text, category: columns of its tables; those that the loader knows when left out.
    questions: name of a JSON Lines file of questions about the samples, beside the data, or in the
        suite's folder where the data is not read from a path; "metadata" for those that GenEval's
        clauses, or generated scenes, make.
    """

    loader: str
    name: str | None = None
    path: str | None = None
    needed: bool = False
    how_to_get: str = ""
    options: dict[str, Any] = {}
    config: str | None = None
    split: str | None = None
    id: str | None = None
    image: str | None = None
    text: str | None = None
    category: str | None = None
    questions: str | None = None


class ChainTable(_Strict, frozen=True):
    """The shape of the chains; see `ChainPlan`.

    start: "image", "sound", "text", or "both" for two chains of every sample.
    makes: what generators make, "image" or "sound"; as chains start, and images, when left out.
    iterations: T, one describe and one generate each; 3 when neither this nor generations is given.
    generations: G, single transformations, in place of iterations.
    seed: what every step's seed is derived from.
    seeds: how often each sample is played, each time with seeds of its own.
    """

    start: Literal["image", "text", "sound", "both"] = "image"
    iterations: int | None = None
    generations: int | None = None
    seed: int = 0
    seeds: int = 1
    makes: Literal["image", "sound"] | None = None

    @property
    def made(self) -> Literal["image", "sound"]:
        """What generators make."""
        return self.makes or ("sound" if self.start == "sound" else "image")

    @property
    def length(self) -> int:
        """The number of generations."""
        if self.generations is not None:
            return self.generations
        return 2 * (_ITERATIONS if self.iterations is None else self.iterations)


class AnswerTable(_Strict, frozen=True):
    """The interleaved answers that a suite asks for, in place of `[chain]`; see `AnswerPlan`.

    steps: "free" where the model decides how many, "gold" where it is told the reference answer's
    number, as OpenING's published scripts do.
    most: steps that an answer may have.
    seed: what every step's seed is derived from.
    seeds: how often each question is asked, each time with seeds of its own.
    """

    steps: Literal["free", "gold"] = "free"
    most: int = MOST_STEPS
    seed: int = 0
    seeds: int = 1


class ArenaTable(_Strict, frozen=True):
    """How answers battle; see `BattleRules`.

    against: "accepted" battles the accepted model's stored answers, "gold" the reference answers.
    order: both orders of every pair, or one that alternates.
    seed: of the judge.
    """

    against: Literal["accepted", "gold"] = "accepted"
    order: OrderName = "both"
    seed: int = 0


class PromptsTable(_Strict, frozen=True):
    """The prompts of the models.

    describe: the describer's; required where a chain describes.
    generate: the generator's, holding `{description}`.
    clean: whether a description is cleaned before it is drawn, as MMGenBench's code does.
    max_words: most words of a description that are drawn.
    system: the writer's system prompt, of interleaved answers.
    image, edit: what generator and editor draw a step from, holding `{step}`; `{question}` stands
    for the question's texts.
    """

    describe: str = ""
    generate: str = PLACEHOLDER
    clean: bool = False
    max_words: int | None = None
    system: str = ""
    image: str = STEP_PLACEHOLDER
    edit: str = STEP_PLACEHOLDER


class RolesTable(_Strict, frozen=True):
    """Model specs for the roles that the command line leaves open.

    Here and below, one that begins with ./ or ../ counts from the suite's folder.
    """

    describer: str | None = None
    generator: str | None = None
    encoder: str | None = None
    detector: str | None = None
    judge: str | None = None
    writer: str | None = None
    editor: str | None = None
    interleaver: str | None = None
    vqa: str | None = None


class PresetTable(_Strict, frozen=True):
    """A model with the settings that a paper used it with; written `preset:NAME` as a model spec.

    model: its spec.
    parameters: further parameters of the spec.
    """

    model: str
    parameters: dict[str, str | int | float | bool] = {}


class GateTable(_Strict, frozen=True):
    """The rules by which cases are judged; see `Policy`.

    gate: the rule: regression, noninferiority or threshold.
    tolerance: largest drop that does not matter, in the metric's own unit.
    anchor_tolerance: the same since the anchor; twice the tolerance when left out.
    alpha: error of a run in each direction, which is divided among its cases.
    primary: the cases that can fail a run, as METRIC, PART/METRIC or PART/*; all when left out.
    pooled: whether the suite has a verdict of its own, an item beside its cases.
    """

    gate: GateName = "regression"
    tolerance: float = 0.01
    anchor_tolerance: float | None = None
    alpha: float = 0.05
    primary: list[str] | None = None
    pooled: bool = False


class CaseTable(_Strict, frozen=True):
    """The rules for a single case, named PART/METRIC; those left out are the metric's.

    alpha: of this case alone, in place of its share of the run's.
    """

    tolerance: float | None = None
    anchor_tolerance: float | None = None
    alpha: float | None = None
    gate: GateName | None = None
    weight: float | None = None


class SuiteTable(_Strict, frozen=True):
    """The whole file.

    name: of the suite: lower-case letters, digits, - and _; required.
    version: a whole number, raised when the suite changes its meaning; required.
    description: free text.
    encoders: further encoders, which metrics name; name -> model spec.
    groups: categories that are averaged.
    """

    name: str
    version: int
    data: DataTable
    prompts: PromptsTable
    metrics: dict[str, dict[str, Any]]
    description: str = ""
    chain: ChainTable = ChainTable()
    answer: AnswerTable | None = None
    arena: ArenaTable = ArenaTable()
    roles: RolesTable = RolesTable()
    encoders: dict[str, str] = {}
    presets: dict[str, PresetTable] = {}
    groups: dict[str, list[str]] = {}
    gate: GateTable = GateTable()
    cases: dict[str, CaseTable] = {}


class Suite(msgspec.Struct, frozen=True):
    """A suite: its table, the settings of its metrics, and the file it was read from.

    metrics: every metric by its name.
    digest: SHA-256 of the file as it was read.
    """

    table: SuiteTable
    metrics: dict[str, MetricTable]
    file: Path
    digest: str = ""

    @property
    def folder(self) -> Path:
        """The folder that relative paths in the file count from."""
        return self.file.parent

    @property
    def name(self) -> str:
        """Names the suite in cases, baselines and reports."""
        return self.table.name

    @property
    def plans(self) -> dict[Modality, ChainPlan]:
        """The steps of the chains of every sample, by the start; none of a suite of answers."""
        if self.table.answer is not None:
            return {}
        chain, prompts = self.table.chain, self.table.prompts
        starts: tuple[Modality, ...] = (
            ("text", chain.made) if chain.start == "both" else (chain.start,)
        )
        return {
            start: ChainPlan(
                start=start,
                generations=chain.length,
                describe=prompts.describe,
                generate=prompts.generate,
                seed=chain.seed,
                caption_rules=CaptionRules(prompts.clean, prompts.max_words),
                makes=chain.made,
            )
            for start in starts
        }

    @property
    def answer_plan(self) -> AnswerPlan | None:
        """How it asks for interleaved answers; None for a suite of chains."""
        answer, prompts = self.table.answer, self.table.prompts
        if answer is None:
            return None
        return AnswerPlan(
            answer.steps,
            answer.most,
            answer.seed,
            prompts.system,
            prompts.image,
            prompts.edit,
        )

    @property
    def battle_rules(self) -> BattleRules:
        """How answers battle."""
        arena = self.table.arena
        return BattleRules(arena.order, arena.seed)

    @property
    def seeds(self) -> int:
        """How often each sample is measured, each time with seeds of its own."""
        return self.table.chain.seeds if self.table.answer is None else self.table.answer.seeds

    @property
    def length(self) -> int:
        """Results of models for one sample, as far as they are known before: a chain's length."""
        return self.table.chain.length if self.table.answer is None else self.table.answer.most


def load_suite(path: Path) -> Suite:
    """Read a suite's TOML file. Raises SuiteError naming the file and the key that is wrong."""
    try:
        data = read_regular(path, MOST_TEXT)
        document = parse_toml(data)
        table = msgspec.convert(document, SuiteTable)
    except OSError as error:
        raise SuiteError(f"suite file {str(path)!r} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:  # the latter for what is not TOML at all
        raise SuiteError(
            f"suite file {str(path)!r}: {explain_mismatch(error, SuiteTable)}"
        ) from error
    kinds = KINDS if table.answer is None else ANSWER_KINDS
    metrics, problems = {}, list(_problems(table))
    if not table.metrics:
        problems.append(f"no metric under [metrics]; known: {', '.join(sorted(kinds))}")
    for name, raw in table.metrics.items():
        if not NAME.fullmatch(name):
            problems.append(f"metric {name!r}: lower-case letters, digits, - and _ are expected")
        if name == POOLED[1]:
            problems.append(f"metric {name!r}: the name belongs to the verdict of the suite itself")
        try:
            metrics[name] = read_table(name, raw, kinds)
        except ValueError as error:
            problems.append(str(error))
    if table.answer is not None and "chain" in document:
        problems.append("[chain] and [answer] are two kinds of suites: give one")
    if problems:
        raise SuiteError(f"suite file {str(path)!r}: {problems[0]}")
    return Suite(table, metrics, path, sha256(data).hexdigest())


def _problems(table: SuiteTable) -> Iterator[str]:
    if not NAME.fullmatch(table.name):
        yield f"name = {table.name!r}: lower-case letters, digits, - and _ are expected"
    yield from _chain_problems(table) if table.answer is None else _answer_problems(table)
    yield from (f"[gate]: {problem}" for problem in number_problems(table.gate))
    for name, case in table.cases.items():
        yield from (f"case {name!r}: {problem}" for problem in number_problems(case))
    for name in table.encoders:
        if name in ROLE_NAMES or not NAME.fullmatch(name):
            yield f"encoder {name!r} is the name of a role, or not lower-case letters and digits"
    for group, members in table.groups.items():
        if group == OVERALL or not group.strip() or not members:
            yield f"group {group!r} is reserved or empty"


def _chain_problems(table: SuiteTable) -> Iterator[str]:
    chain, prompts = table.chain, table.prompts
    if chain.iterations is not None and chain.generations is not None:
        yield "chain.iterations and chain.generations are two names of one length: give one"
    for key in ("iterations", "generations", "seeds"):
        number = getattr(chain, key)
        if number is not None and not 1 <= number <= _MOST:
            yield f"chain.{key} = {number}: 1 to {_MOST:,} are expected"
    if chain.start not in ("text", "both", chain.made):
        start = chain.start
        yield f"chain.makes = {chain.makes!r}: chains that start with {start}s make {start}s"
    if PLACEHOLDER not in prompts.generate:
        yield f"prompts.generate = {prompts.generate!r} does not hold {PLACEHOLDER}"
    describes = chain.start != "text" or chain.length > 1
    if describes and not prompts.describe.strip():
        yield "prompts.describe is missing: the chains of this suite are described"
    if prompts.max_words is not None and prompts.max_words < 1:
        yield f"prompts.max_words = {prompts.max_words}: at least 1 is expected"


def _answer_problems(table: SuiteTable) -> Iterator[str]:
    answer, prompts = table.answer, table.prompts
    assert answer is not None
    if not 1 <= answer.most <= MOST_STEPS:
        yield f"answer.most = {answer.most}: 1 to {MOST_STEPS} steps are expected"
    if not 1 <= answer.seeds <= _MOST:
        yield f"answer.seeds = {answer.seeds}: 1 to {_MOST:,} are expected"
    for key in ("image", "edit"):
        prompt = getattr(prompts, key)
        if STEP_PLACEHOLDER not in prompt:
            yield f"prompts.{key} = {prompt!r} does not hold {STEP_PLACEHOLDER}"


GROWERS: tuple[RoleName, ...] = ("describer", "generator")
"""The roles that grow chains; all others read them."""

ANSWERING: tuple[RoleName, ...] = ("interleaver", "writer", "generator", "editor")
"""The roles that make interleaved answers: the first alone, or the others together. A model under
test plays the first that it can."""

ANSWERS_ONLY: tuple[RoleName, ...] = ("interleaver", "writer", "editor", "judge")
"""Roles that no chain has."""


# -- the suites that come with the package: benchmarks that need no checkpoint of this repository
# They are kept once, in the folder `suites/` of the repository. A wheel has those of them that
# stand in `pyproject.toml` beside this module, in the folder `shipped`. Either folder is on the
# path of the package `pytest_cepbench.suites`, so that `pytest --pyargs
# pytest_cepbench.suites.folder` finds them by the same name in a clone and where the wheel is
# installed.


PACKAGE = "pytest_cepbench.suites"
"""What `--pyargs` calls the folder."""

_HERE = Path(__file__).parent

FOLDER = _HERE / "shipped" if (_HERE / "shipped").is_dir() else _HERE.parents[1] / "suites"
"""Where they lie."""


def list_suites() -> list[Suite]:
    """All suites that are shipped, those of one folder together, the folder's own first.

    Raises SuiteError where a file was changed and cannot be read.
    """
    folders = sorted(path.parent for path in FOLDER.glob(f"*/{FILE_NAME}"))
    return [
        load_suite(file)
        for folder in folders
        for file in sorted(
            folder.glob("*.toml"), key=lambda path: (path.name != FILE_NAME, path.name)
        )
    ]


def package_of(suite: Suite) -> str:
    """What `pytest --pyargs` calls the folder of a shipped suite."""
    return f"{PACKAGE}.{suite.folder.name}"


def find_shipped(name: str) -> Path | None:
    """The folder that `--pyargs` would find under a name; None for any other text."""
    package, _, folder = name.rpartition(".")
    path = FOLDER / folder
    return path if package == PACKAGE and (path / FILE_NAME).is_file() else None
