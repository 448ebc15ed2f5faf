"""What readers make of chains: similarities at any generations, and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.chains import Chain, ChainPlan, RoleRunner, load_link
from pytest_cepbench.chains.chain import Link
from pytest_cepbench.chains.features import boxes, store_vectors, trace, vectors
from pytest_cepbench.chains.growth import ChainGroup
from pytest_cepbench.errors import DamagedChainsError, ModelError
from pytest_cepbench.metrics.gc import cosine_to_start
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    SmallDetector,
    SmallEncoder,
    bound,
    find_all,
    inputs_of,
    make_runners,
    samples,
    vector_of,
)


def _grow(store: Store, plan: ChainPlan = PLAN, count: int = 3) -> ChainGroup:
    return ChainGroup(plan, samples(count), make_runners(store).models())


def _encoder(store: Store, encoder: SmallEncoder | None = None, **changes: Any) -> RoleRunner:
    return RoleRunner(bound("encoder", encoder or SmallEncoder(), **changes), store)


def _plain(chain: Chain, generations: Sequence[int], store: Store) -> list[float]:
    """The similarities of a chain, computed one by one."""
    start = vector_of(load_link(chain, 0, store))
    later = [vector_of(load_link(chain, generation, store)) for generation in generations]
    similarities: list[float] = cosine_to_start(start[None], np.stack(later)[None])[0].tolist()
    return similarities


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])
@pytest.mark.parametrize("generations", [(2, 4), (1, 3), (1, 2, 3, 4), (3,), ()])
def test_any_generations_are_compared_with_the_start(
    store: Store, plan: ChainPlan, generations: tuple[int, ...]
) -> None:
    """Of the start's modality, of the other one by an encoder of both, or of both in one pass."""
    group = _grow(store, plan)
    traces = trace(group.chains, generations, _encoder(store), store)
    expected = [_plain(chain, generations, store) if generations else [] for chain in group.chains]
    assert [list(item.similarities) for item in traces] == expected
    assert [item.chain for item in traces] == group.chains


def test_vectors_of_two_dimensions_are_an_error(store: Store) -> None:
    """Of an encoder's texts and images, and of its code before and after a change."""
    chains = _grow(store).chains
    encoder = SmallEncoder(lambda value: vector_of(value)[: 4 if isinstance(value, str) else 5])
    says = "vectors of 5 numbers for the starts of chains and of 4 for generation 1"
    with pytest.raises(ModelError, match=says):
        trace(chains, (1,), _encoder(store, encoder), store)
    changed = SmallEncoder(lambda value: vector_of(value)[:3])
    with pytest.raises(ModelError, match=r"vectors of 5 and of 3 numbers: .* another fingerprint"):
        trace(chains, (2,), _encoder(store, changed), store)


def test_boxes_are_asked_for_each_sample_by_its_own_queries(store: Store) -> None:
    """One answer per chain, kept under image and queries: other queries are asked anew. A lost
    picture is named by the step that drew it, for vectors and boxes alike; `ChainGroup.read` has it
    drawn again, with the same answers.
    """
    group = _grow(store, TEXT_PLAN)
    queries = {"s00": ["a cup"], "s01": ["a cup", "a bus"], "s02": ["a dog"]}
    model = SmallDetector()
    detector = RoleRunner(bound("detector", model), store)
    actual = boxes(group.chains, 1, queries, detector, store)
    assert model.calls == [[tuple(asked) for asked in queries.values()]]
    assert actual == [
        find_all(load_link(chain, 1, store), queries[chain.sample.id]) for chain in group.chains
    ]
    assert boxes(group.chains, 1, queries, detector, store) == actual
    assert (
        boxes(group.chains, 1, queries | {"s00": ["a cup", "a dog"]}, detector, store)[1:]
        == (actual[1:])
    )
    assert model.calls[1:] == [[("a cup", "a dog")]]
    assert boxes([], 1, queries, detector, store) == []

    chains, anew = group.chains, {name: ["a hat"] for name in queries}
    lost = chains[1].links[1]
    store.artifact_path(lost.digest).unlink()
    for ask in (
        lambda: boxes(chains, 1, anew, detector, store),
        lambda: vectors(chains, 1, _encoder(store), store),
    ):
        with pytest.raises(DamagedChainsError) as caught:
            ask()
        assert caught.value.keys == (lost.key,)
    actual = group.read(lambda mended: boxes(mended, 1, anew, detector, store))
    assert actual == [find_all(load_link(chain, 1, store), ["a hat"]) for chain in group.chains]
    assert group.chains[1].links == chains[1].links


def test_a_generation_that_is_not_recorded_is_passed_over(store: Store) -> None:
    """Its similarity stays 0 and it is no failure; what lies behind it is compared."""
    group = _grow(store, PLAN, 1)
    (chain,) = group.chains
    links = list(chain.links)
    links[1] = Link(links[1].kind, "")
    partial = Chain(chain.sample, links)
    (actual,) = trace([partial], (1, 2), _encoder(store), store)
    assert list(actual.similarities) == [0.0, *_plain(chain, (2,), store)]
    assert (actual.failure, partial.has(1), partial.has(2)) == (None, False, True)


def test_features_are_stored_once_without_being_read(store: Store) -> None:
    """Only those that are missing are made, whether the encoder asks for a seed or not."""
    group = _grow(store)
    chains, encoder = group.chains, SmallEncoder(seeded=True)
    store_vectors(chains[:1], 2, _encoder(store, encoder), store)
    store_vectors(chains, 2, _encoder(store, encoder), store)
    store_vectors([], 2, _encoder(store, encoder), store)
    assert [len(call) for call in encoder.calls] == [1, 2]
    vectors(chains, 2, _encoder(store, encoder), store)
    assert inputs_of(encoder) == 3
