"""Features of chains: vectors of encoders, boxes of detectors, similarities to the start."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import Detections, Failure, canonical_json
from pytest_cepbench.chains.chain import Chain, load_link, naming_damage
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.errors import ModelError
from pytest_cepbench.files import parse_json
from pytest_cepbench.metrics.gc import cosine_to_start
from pytest_cepbench.models.protocols import VqaQuestion
from pytest_cepbench.store import Store, Vector


@dataclass(frozen=True, slots=True)
class Trace:
    """The similarities of one chain to its own start.

    similarities: one per generation that was compared, in [-1, 1]; 0 from the failed step on.
    failure: what stopped the chain or its encoding; None while nothing did.
    failed_at: the generation that failed.
    vectors: of the start, then of each of those generations; None from the failed step on.
    """

    chain: Chain
    similarities: tuple[float, ...]
    failure: Failure | None
    failed_at: int | None
    vectors: tuple[Vector | None, ...] = ()


def trace(
    chains: Sequence[Chain], generations: Sequence[int], encoder: RoleRunner, store: Store
) -> list[Trace]:
    """Encode the start of each chain and its artifacts at some generations, and compare them.

    generations: rising, from 1 on. Raises ModelError and the others of the encoder;
    DamagedChainsError when a stored image that has to be encoded is damaged: the chains have to be
    grown again then.
    """
    similarities = np.zeros((len(chains), len(generations)))
    failures: dict[int, tuple[Failure, int]] = {}
    start: dict[int, Vector] = {}
    kept: list[list[Vector | None]] = [[] for _ in chains]
    for column, generation in enumerate((0, *generations)):
        able = [i for i, chain in enumerate(chains) if chain.has(generation) and i not in failures]
        results = vectors([chains[i] for i in able], generation, encoder, store)
        encoded = {}
        for i, result in zip(able, results, strict=True):
            if isinstance(result, Failure):
                failures[i] = (result, generation)
            else:
                encoded[i] = result
        for i, row in enumerate(kept):
            row.append(encoded.get(i))
        if generation == 0:
            start = encoded
        elif encoded:
            before = np.stack([start[i] for i in encoded])
            later = np.stack(list(encoded.values()))[:, None]
            if before.shape[1] != later.shape[2]:
                raise ModelError(
                    f"{encoder.bound.spec} gives vectors of {before.shape[1]} numbers for the "
                    f"starts of chains and of {later.shape[2]} for generation {generation}: they "
                    "cannot be compared"
                )
            similarities[list(encoded), column - 1] = cosine_to_start(before, later)[:, 0]
    # A start that nothing came of is compared with nothing, whatever the encoder makes of it.
    stopped = {
        number: (chain.failure, chain.failed_at)
        for number, chain in enumerate(chains)
        if generations and not chain.has(generations[0])
    }
    return [
        Trace(
            chain,
            tuple(row.tolist()),
            *(failures | stopped).get(i, (chain.failure, chain.failed_at)),
            tuple(kept[i]),
        )
        for i, (chain, row) in enumerate(zip(chains, similarities, strict=True))
    ]


def vectors(
    chains: Sequence[Chain], generation: int, encoder: RoleRunner, store: Store
) -> list[Vector | Failure]:
    """Encode every chain's artifact at a generation, which all of them have. Raises as `trace`."""
    if not chains:
        return []
    steps = _steps(chains, generation, encoder, store)
    with naming_damage(chains, generation):
        encoded: list[Any] = encoder.ask(f"encode_{chains[0].links[generation].kind}s", steps)
    return encoded


def store_vectors(
    chains: Sequence[Chain], generation: int, encoder: RoleRunner, store: Store
) -> None:
    """Store every chain's features at a generation; as `vectors`, but none is read."""
    steps = _steps(chains, generation, encoder, store)
    stored = store.has([step.key for step in steps])
    missing = [own for own, step in zip(chains, steps, strict=True) if step.key not in stored]
    vectors(missing, generation, encoder, store)


def boxes(
    chains: Sequence[Chain],
    generation: int,
    queries: Mapping[str, Sequence[str]],
    detector: RoleRunner,
    store: Store,
) -> list[Detections | Failure]:
    """Detect objects in every chain's image at a generation, which all of them have.

    queries: what to look for, by sample id. Raises as `trace`.
    """
    texts = {name: canonical_json(list(words)) for name, words in queries.items()}
    steps = _steps(chains, generation, detector, store, texts)
    with naming_damage(chains, generation):
        found: list[Any] = detector.ask("detect", steps)
    return found


def _steps(
    chains: Sequence[Chain],
    generation: int,
    runner: RoleRunner,
    store: Store,
    queries: Mapping[str, str] | None = None,
    read: Callable[[str], object] = json.loads,
) -> list[Step]:
    """A step for each chain's artifact at a generation, with what is asked about it.

    queries: by sample id, as they enter keys; None where nothing is asked. read: makes of one what
    the model is asked.
    """

    def step(chain: Chain) -> Step:
        query = "" if queries is None else queries[chain.sample.id]
        link = chain.links[generation]

        def load() -> object:
            piece = load_link(chain, generation, store)
            return piece if piece is None or queries is None else (piece, read(query))

        return Step(runner.key(query, 0, link.kind, link.digest), 0, load)

    return [step(chain) for chain in chains]


def vqa_query(questions: Sequence[VqaQuestion]) -> str:
    """Questions as they enter a step's key."""
    return canonical_json([[question.text, list(question.answers)] for question in questions])


def vqa_questions(query: str) -> list[VqaQuestion]:
    """The questions of a `vqa_query`."""
    return [VqaQuestion(text, tuple(answers)) for text, answers in json.loads(query)]


def vqa_answers(
    chains: Sequence[Chain],
    generation: int,
    queries: Mapping[str, str],
    vqa: RoleRunner,
    store: Store,
) -> list[tuple[float, ...] | Failure]:
    """Ask about every chain's artifact at a generation, which all of them have.

    queries: a `vqa_query` by sample id. Returns a probability in [0, 1] for each of its questions.
    Raises as `trace`.
    """
    steps = _steps(chains, generation, vqa, store, queries, vqa_questions)
    with naming_damage(chains, generation):
        results = vqa.ask("answer", steps)
    return [
        _stored_answers(result, len(vqa_questions(queries[chain.sample.id])))
        for result, chain in zip(results, chains, strict=True)
    ]


def _stored_answers(result: object, expected: int) -> tuple[float, ...] | Failure:
    if isinstance(result, Failure):
        return result
    try:
        numbers = tuple(float(number) for number in parse_json(str(result)))
    except (TypeError, ValueError) as error:  # a shared store may hold anything under a key
        return Failure("bad-answer", str(error))
    if len(numbers) != expected or not all(0.0 <= number <= 1.0 for number in numbers):
        return Failure("bad-answer", f"{expected} probabilities are expected, got {numbers!r:.80}")
    return numbers
