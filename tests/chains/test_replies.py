"""Results that come with something to be told: what they took, where they are from, what to say."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import ChainGroup, ChainModels, RoleRunner
from pytest_cepbench.models.protocols import Reply, Usage
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    SmallDescriber,
    SmallGenerator,
    bound,
    describe_image,
    draw_text,
    samples,
)

REMARK = "temperature=0 was not honoured"


def _replying(image: Any, prompt: str, seed: int | None) -> Reply:
    usage = Usage(requests=1, input_tokens=30, output_tokens=4, cost=0.5)
    text = describe_image(image, prompt, seed)
    return Reply(text, usage, {"server": "m-1"}, remarks=(REMARK,))


def _drawing(text: str, seed: int | None) -> Reply:
    return Reply(draw_text(text, seed), Usage(requests=2, retries=1, images=1))


def _models(
    store: Store, describe: Any, draw: Any = draw_text
) -> tuple[RoleRunner, RoleRunner, ChainModels]:
    describer = RoleRunner(bound("describer", SmallDescriber(describe)), store)
    generator = RoleRunner(bound("generator", SmallGenerator(draw)), store)
    return describer, generator, ChainModels(describer, generator, store)


def test_replies_count_as_the_results_in_them(tmp_path: Path) -> None:
    """The chains are those of bare results; usage and remarks are summed, provenance is stored."""
    with Store(tmp_path / "plain") as store:
        expected = [
            chain.links[-1].digest
            for chain in ChainGroup(PLAN, samples(3), _models(store, describe_image)[2]).chains
        ]
    with Store(tmp_path / "replies") as store:
        describer, generator, models = _models(store, _replying, _drawing)
        actual = [chain.links[-1].digest for chain in ChainGroup(PLAN, samples(3), models).chains]
    assert actual == expected
    assert describer.tally.usage == Usage(6, 0, 180, 24, 0, 3.0)
    assert generator.tally.usage == Usage(12, 6, 0, 0, 6)
    assert list(describer.tally.remarks) == [REMARK]
    database = sqlite3.connect(tmp_path / "replies" / "index.sqlite")
    rows = database.execute("SELECT provenance FROM results").fetchall()
    database.close()
    servers = [json.loads(text).get("server") for (text,) in rows]
    assert servers.count("m-1") == 6
    assert servers.count(None) == 6


def test_a_passing_failure_counts_and_is_asked_again(tmp_path: Path) -> None:
    """It is no answer: the next run may get one. A refusal is an answer, and stays."""
    fails = [True]

    def describe(image: Any, prompt: str, seed: int | None) -> Reply:
        failure = Failure("exception", "the server did not answer")
        return Reply(failure, passing=True) if fails[0] else _replying(image, prompt, seed)

    def refuse(*_: object) -> Reply:
        return Reply(Failure("exception", "refused for good"))

    with Store(tmp_path) as store:
        chains = ChainGroup(PLAN, samples(2), _models(store, describe)[2]).chains
        assert [(chain.failed_at, chain.failure is not None) for chain in chains] == [(1, True)] * 2
        assert len(store) == 0
        fails[0] = False
        assert all(
            chain.failure is None
            for chain in ChainGroup(PLAN, samples(2), _models(store, describe)[2]).chains
        )
    with Store(tmp_path / "refused") as store:
        ChainGroup(PLAN, samples(2), _models(store, refuse)[2]).chains  # noqa: B018 - this grows it
        assert len(store) == 2
