"""The scores of cases, stored under all that they depend on, and read where they are.

Nothing that follows from stored results alone is computed twice. The key of a case's scores names
every link of its chains, or its answers with the verdicts and scores of the judge; the whole
population with its starts; the measure with its settings; the models that make and read all this;
and the code and libraries that score it. Where one of these is another one, or not known for sure,
the case is scored anew.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
import numpy as np

import pytest_cepbench
from pytest_cepbench.artifacts import DECODER, Failure, canonical_json, digest_json
from pytest_cepbench.artifacts.outcome import FailureKind
from pytest_cepbench.chains import Chain, Modality, RoleRunner
from pytest_cepbench.chains.steps import remember
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import CepError, StoreError
from pytest_cepbench.measures import ChainExcerpt, Measure, Measured
from pytest_cepbench.measures.base import MeasureBase, by_category, everyone, plans_of, readers_of
from pytest_cepbench.measures.cases import Case, SampleData
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.models.protocols import CODE
from pytest_cepbench.store.rows import MOST_PAYLOAD, Scores, StoredResult

if TYPE_CHECKING:
    from pytest_cepbench.measures.answer_data import AnswerData

_FORMAT = 3

_HUMAN = "human/"  # what adapters of people begin with: their answers are in no store


class _Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """A `ChainExcerpt` without its chain. start: of the chain that is shown."""

    start: Modality
    marks: dict[int, float]
    failure: tuple[FailureKind, str] | None
    failed_at: int | None
    remark: str


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is stored of a case.

    key: as it is stored under. samples: ids. measured: all else that is measured, by field.
    """

    key: str
    samples: list[str]
    excerpts: dict[str, _Excerpt]
    measured: dict[str, Any]


_TYPES = {name: kind for name, kind in get_type_hints(Measured).items() if name != "samples"}

_Measured = msgspec.defstruct("_Measured", list(_TYPES.items()), forbid_unknown_fields=True)
"""`Measured` without its samples, which have images."""


@dataclass(frozen=True)
class StoredScores:
    """Scores of a case, and its samples for the reader; None where single chains have no score."""

    measured: Measured
    excerpts: Mapping[str, ChainExcerpt]


@dataclass(frozen=True)
class ScoreKey:
    """Where the scores of a case are stored, and the chains that they are of, by start and id.

    model: whose chains or answers these are, as provenances name it; None of those made elsewhere.
    """

    key: str
    model: str | None
    chains: Mapping[Modality, Mapping[str, Chain]]


def plain_data(value: object) -> Any:
    """Settings as built-in types, with the names of their own types: what a key says of them.

    A field that is left out of `repr` is named by an identity beside it, and left out here.
    Raises TypeError for what does not say all of itself so, such as a function.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return [[plain_data(name), plain_data(own)] for name, own in value.items()]
    if isinstance(value, list | tuple):
        return [plain_data(own) for own in value]
    if isinstance(value, set | frozenset):
        return sorted((plain_data(own) for own in value), key=canonical_json)
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{value!r} cannot be part of a key")
    own_fields = {f.name: plain_data(getattr(value, f.name)) for f in fields(value) if f.repr}
    return [f"{type(value).__module__}.{type(value).__qualname__}", own_fields]


def score_key(
    case: Case,
    measure: Measure,
    data: ChainData,
    roles: Iterable[str],
    tested: Sequence[str] | None,
) -> ScoreKey | None:
    """The key of a case's scores; None where its chains are not all there, or scores not stored.

    roles: of the suite. tested: those under test; None for what is shown of chains by a recorded
    model.
    What is wrong with data or models is left to the measuring of the case, which says so.
    """
    required = measure.required_features(case)
    readers = readers_of(required)
    named = [role for role in roles if role in ("describer", "generator", *readers)]
    chains: dict[Modality, Mapping[str, Chain]] = {}
    try:
        runners = {role: data.runner(role) for role in named}
        own = everyone(by_category(case, data))
        for role, runner in runners.items():
            bound, codes = runner.bound, runner.tally.codes
            # Of a model behind a server, warnings depend on when they were made. So do those of one
            # in the user's own code, where other code made some of them. People are in no store.
            lasting = bound.warn is None and not codes and not bound.adapter.startswith(_HUMAN)
            if runner.tally.passing or (role in readers and not lasting):
                return None
        for plan in plans_of(required):
            whole = data.whole_chains(plan.start, own)
            if whole is None:
                return None
            chains[plan.start] = whole
        all_data = data.origin
        reads = [
            [tested, None if data.replay is None else data.replay.name],
            [_population(all_data, start, partial(all_data.starts, start)) for start in chains],
            [_digest(own.values()) for own in chains.values()],
        ]
        key = _key((measure, case, plans_of(required)), runners, data, reads)
    except (CepError, TypeError):  # a setting of the user's own code is no plain data
        return None
    return ScoreKey(key, _model(runners, tested or ("describer",)), chains)


def answer_score_key(
    case: Case,
    measure: MeasureBase,
    data: AnswerData,
    runners: Mapping[str, RoleRunner],
    tested: Sequence[str],
    reads: Sequence[object],
) -> ScoreKey | None:
    """The key of the scores of a case of answers; None where scores are not stored.

    runners: of the models that answer and judge. reads: the answers, verdicts and scores of the
    case's samples, with whatever else its measure is given.
    """
    for runner in runners.values():
        if runner.tally.passing or runner.bound.adapter.startswith(_HUMAN):
            return None
    recorded = None if data.models.recorded is None else data.models.recorded.name
    try:
        population = _population(data, "question", data.starts)
        others = [[*tested], recorded, population]
        key = _key((measure, case, data.plan, data.rules, reads), runners, data, others)
    except (CepError, TypeError):
        return None
    return ScoreKey(key, _model(runners, tested), {})


def _key(
    settings: tuple[object, ...],
    runners: Mapping[str, RoleRunner],
    data: SampleData,
    others: Sequence[object],
) -> str:
    """The digest of all that scores depend on. Raises TypeError as `plain_data`."""
    looked_at = [sample.id for sample in data.dataset.samples]
    depends_on = [
        [_FORMAT, digest_of_code(Path(pytest_cepbench.__file__).parent), _libraries()],
        plain_data(settings),
        [
            # The spec is part of messages, and the user's own code of warnings.
            [role, remember(own), own.spec, own.hides_reasoning, own.provenance.get(CODE, "")]
            for role, own in ((role, runner.bound) for role, runner in runners.items())
        ],
        "" if data.dataset is data.population else looked_at,
        others,
    ]
    return digest_json({"scores": depends_on})


def _model(runners: Mapping[str, RoleRunner], tested: Sequence[str]) -> str | None:
    gated = [runner for role, runner in runners.items() if role in tested]
    return gated[0].bound.short_fingerprint if gated else None


def load_scores(at: ScoreKey, data: SampleData) -> StoredScores | None:
    """The scores under a key; None where there are none. What cannot be read is dropped."""
    result = data.store.get([at.key]).get(at.key)
    if result is None:
        return None
    by_id = {sample.id: sample for sample in data.population.samples}
    try:  # a shared store may hold anything under a key
        text = result if isinstance(result, Scores) else ""  # which is no JSON
        record = msgspec.convert(json.loads(text), _Record, str_keys=True)
        own = msgspec.structs.asdict(msgspec.convert(record.measured, _Measured, str_keys=True))
        measured = Measured(**own, samples=tuple(by_id[name] for name in record.samples))
        excerpts = {
            name: ChainExcerpt(
                at.chains[shown.start][name],
                shown.marks,
                None if shown.failure is None else Failure(*shown.failure),
                shown.failed_at,
                shown.remark,
            )
            for name, shown in record.excerpts.items()
        }
    except (ValueError, KeyError, RecursionError):
        record = None
    if record is None or record.key != at.key:
        data.store.forget([at.key], why="it holds no scores of the case")
        return None
    return StoredScores(measured, excerpts)


def store_scores(
    at: ScoreKey, measured: Measured, data: SampleData, show: Callable[[str], ChainExcerpt | None]
) -> None:
    """Store the scores of a case, with what is shown of its samples.

    show: gives a sample's excerpt.
    """
    excerpts: dict[str, _Excerpt] = {}
    for sample in measured.samples:
        excerpt = show(sample.id)
        if excerpt is None:
            break
        failure = excerpt.failure
        excerpts[sample.id] = _Excerpt(
            excerpt.chain.links[0].kind,
            {generation: float(mark) for generation, mark in excerpt.marks.items()},
            None if failure is None else (failure.kind, failure.detail),
            excerpt.failed_at,
            excerpt.remark,
        )
    own = {name: getattr(measured, name) for name in _TYPES}
    ids = [sample.id for sample in measured.samples]
    record = _Record(key=at.key, samples=ids, excerpts=excerpts, measured=own)
    # Python's JSON, unlike msgspec's, tells NaN from None.
    text = json.dumps(msgspec.to_builtins(record, str_keys=True), separators=(",", ":"))
    if len(text) <= MOST_PAYLOAD:
        with suppress(StoreError):  # the case is measured: a full disk is no error of it any more
            made_by = {} if at.model is None else {"model": at.model}
            data.store.put([StoredResult(at.key, Scores(text), made_by)])


# -- what scores depend on -------------------------------------------------------------------------


def _population(
    data: SampleData, start: str, starts: Callable[[Sequence[Sample]], Mapping[str, str]]
) -> str:
    """Digest of all samples, and instead of their images of what each starts from.

    starts: gives that by id.
    """

    def digest() -> str:
        samples = data.population.samples
        begun = starts(samples)
        return digest_json(
            [
                [
                    [s.id, s.categories, s.text, plain_data(s.metadata), s.unit, s.replicate],
                    [None, begun[s.id]],
                    [[step.text, step.image is not None] for step in s.gold],
                ]
                for s in samples
            ]
        )

    return data.cached("population digest", start, digest)


def _digest(chains: Iterable[Chain]) -> str:
    """Digest of every link, by its key and its content, and of what stopped each chain."""
    digest = sha256()
    for chain in chains:
        links = "".join(f"{link.key} {link.digest}\n" for link in chain.links)
        digest.update(
            f"{chain.sample.id!r} {chain.failed_at} {chain.failure}\n{links}".encode(
                "utf-8", "surrogatepass"
            )
        )
    return digest.hexdigest()


@cache
def digest_of_code(package: Path) -> str:
    """Digest of a package's code: a changed formula must not be answered by its last scores."""
    digest = sha256()

    def add(folder: str) -> None:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_dir():
                add(entry.path)
            elif entry.name.endswith(".py"):
                digest.update(f"{entry.name}\0".encode() + Path(entry.path).read_bytes())

    add(str(package))
    return digest.hexdigest()


@cache
def _libraries() -> list[Any]:
    """Of what computes scores: the last bits of sums differ between them."""
    python = list(sys.version_info[:3])
    return [python, platform.machine(), np.__version__, version("scipy"), DECODER]
