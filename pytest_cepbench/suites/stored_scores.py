"""The scores of cases of chains, stored under all that they depend on, and read where they are.

Nothing that follows from stored results alone is computed twice. The key of a case's scores names
every link of its chains, the whole population with its starts, the measure with its settings, the
models that grow and read the chains, and the code and libraries that score them: where one of these
is another one, or not known for sure, the case is scored anew.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import pytest_cepbench
from pytest_cepbench.artifacts import DECODER, Failure, digest_json
from pytest_cepbench.artifacts.outcome import FailureKind
from pytest_cepbench.chains import Chain, Modality, RoleRunner
from pytest_cepbench.chains.steps import remember
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import CepError, StoreError
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.measures import ChainExcerpt, Measure, Measured
from pytest_cepbench.measures.base import CaseScores, by_category, everyone, plans_of, readers_of
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.fact_losses import FactSummary
from pytest_cepbench.models.protocols import CODE
from pytest_cepbench.store.rows import MOST_PAYLOAD, Scores, StoredResult

_FORMAT = 1

_HUMAN = "human/"  # what adapters of people begin with: their answers are in no store


class _Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """A `ChainExcerpt` without its chain. start: of the chain that is shown."""

    start: Modality
    marks: dict[int, float]
    failure: tuple[FailureKind, str] | None
    failed_at: int | None
    remark: str


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is stored of a case: the fields of `Measured` that chains can have, and its excerpts.

    key: as it is stored under. samples: ids.
    """

    key: str
    excerpts: dict[str, _Excerpt]
    samples: list[str]
    scores: dict[str, dict[str, float]]
    outcomes: list[CaseScores]
    curve: tuple[float, ...]
    sizes: dict[str, int]
    blocks: dict[str, dict[str, float]]
    shares: bool
    notes: tuple[str, ...]
    identity: dict[str, str]
    floor: float | None
    warnings: tuple[str, ...]
    obstacles: tuple[str, ...]
    facts: FactSummary | None
    blind: Blindness | None


_KEPT = frozenset(_Record.__struct_fields__)


@dataclass(frozen=True)
class StoredScores:
    """Scores of a case, and its samples for the reader; None where single chains have no score."""

    measured: Measured
    excerpts: Mapping[str, ChainExcerpt]


@dataclass(frozen=True)
class ScoreKey:
    """Where the scores of a case are stored, and the chains that they are of, by start and id.

    model: whose chains these are, as provenances name it; None of chains made elsewhere.
    """

    key: str
    model: str | None
    chains: Mapping[Modality, Mapping[str, Chain]]


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
    named = [role for role in roles if role in ("describer", "generator", *readers_of(required))]
    try:
        runners = {role: data.runner(role) for role in named}
        if any(
            runner.tally.passing or (role in readers_of(required) and not _lasting(runner))
            for role, runner in runners.items()
        ):
            return None
        chains: dict[Modality, Mapping[str, Chain]] = {}
        for plan in plans_of(required):
            whole = data.whole_chains(plan.start, _chained(case, data))
            if whole is None:
                return None
            chains[plan.start] = whole
        population = [_population(data, start) for start in chains]
    except CepError:
        return None
    if " at 0x" in repr(measure):  # a setting that says nothing of itself
        return None
    depends_on = [
        [_FORMAT, digest_of_code(Path(pytest_cepbench.__file__).parent), _libraries()],
        [type(measure).__module__, repr(measure), repr(case)],
        [[role, *_model(runner)] for role, runner in runners.items()],
        [tested, None if data.replay is None else data.replay.name],
        [repr(plan) for plan in plans_of(required)],
        population,
        [sample.id for sample in data.dataset.samples]
        if data.dataset is not data.population
        else "",
        [_digest(own.values()) for own in chains.values()],
    ]
    gated = [runner for role, runner in runners.items() if role in (tested or ("describer",))]
    model = gated[0].bound.short_fingerprint if gated else None
    return ScoreKey(digest_json({"scores": depends_on}), model, chains)


def load_scores(at: ScoreKey, data: ChainData) -> StoredScores | None:
    """The scores under a key; None where there are none. What cannot be read is dropped."""
    result = data.store.get([at.key]).get(at.key)
    if result is None:
        return None
    try:
        text = result if isinstance(result, Scores) else ""  # which is no JSON
        return _unpack(msgspec.convert(json.loads(text), _Record, str_keys=True), at, data)
    except (ValueError, KeyError, RecursionError):  # a shared store may hold anything under a key
        data.store.forget([at.key], why="it holds no scores of the case")
        return None


def store_scores(
    at: ScoreKey, measured: Measured, data: ChainData, show: Callable[[str], ChainExcerpt | None]
) -> None:
    """Store the scores of a case, with what is shown of its samples.

    show: gives a sample's excerpt.
    """
    for field in fields(measured):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name not in _KEPT and getattr(measured, field.name) != default:
            return
    own = {name: getattr(measured, name) for name in _KEPT - {"key", "excerpts", "samples"}}
    shown: dict[str, _Excerpt] = {}
    for sample in measured.samples:
        excerpt = show(sample.id)
        if excerpt is None:
            break
        shown[sample.id] = _pack(excerpt)
    record = {
        **own,
        "key": at.key,
        "samples": [sample.id for sample in measured.samples],
        "excerpts": shown,
    }
    # Python's JSON, unlike msgspec's, tells NaN from None.
    text = json.dumps(msgspec.to_builtins(record, str_keys=True), separators=(",", ":"))
    if len(text) <= MOST_PAYLOAD:
        with suppress(StoreError):  # the case is measured: a full disk is no error of it any more
            made_by = {} if at.model is None else {"model": at.model}
            data.store.put([StoredResult(at.key, Scores(text), made_by)])


def _pack(excerpt: ChainExcerpt) -> _Excerpt:
    failure = excerpt.failure
    return _Excerpt(
        excerpt.chain.links[0].kind,
        {generation: float(mark) for generation, mark in excerpt.marks.items()},
        None if failure is None else (failure.kind, failure.detail),
        excerpt.failed_at,
        excerpt.remark,
    )


def _unpack(record: _Record, at: ScoreKey, data: ChainData) -> StoredScores:
    """Raises ValueError for a record of another key or samples, KeyError for chains not read."""
    by_id = {sample.id: sample for sample in data.population.samples}
    if record.key != at.key:
        raise ValueError("these are scores under another key")
    own = {name: getattr(record, name) for name in _KEPT - {"key", "excerpts", "samples"}}
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
    return StoredScores(measured, excerpts)


# -- what scores depend on -------------------------------------------------------------------------


def _chained(case: Case, data: ChainData) -> list[Sample]:
    """The samples whose chains the case may read: its own, and those that edited ones are of."""
    own = everyone(by_category(case, data))
    origins = (data.population.with_id(sample.origin) for sample in own)
    by_id = {sample.id: sample for sample in (*own, *origins) if sample is not None}
    return [by_id[name] for name in sorted(by_id)]


def _lasting(runner: RoleRunner) -> bool:
    """Whether all that is said of a reader's results follows from its results.

    Of a model behind a server, warnings depend on when they were made. So do those of one in the
    user's own code, where other code made some of them.
    """
    bound, codes = runner.bound, runner.tally.codes
    return bound.warn is None and not codes and not bound.adapter.startswith(_HUMAN)


def _model(runner: RoleRunner) -> tuple[str, str, bool, str]:
    """The spec is part of messages, and the user's own code of warnings."""
    bound = runner.bound
    return remember(bound), bound.spec, bound.hides_reasoning, bound.provenance.get(CODE, "")


def _population(data: ChainData, start: Modality) -> str:
    """Digest of all samples, without their images, and of their starts."""
    whole = data.origin

    def digest() -> str:
        samples = whole.population.samples
        starts = whole.starts(start, samples)
        return digest_json(
            [
                [
                    [s.id, list(s.categories), s.text, repr(s.metadata), s.unit, s.replicate],
                    [repr(s.edit), starts[s.id]],
                ]
                for s in samples
            ]
        )

    return whole.cached("population digest", start, digest)


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
