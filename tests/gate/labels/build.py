"""Battles, draws and label files as the tests of labels need them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.gate.labels.label_file import (
    BattleDigests,
    Contestant,
    Draw,
    DrawnBattle,
    Label,
    LabelFile,
    draw_battles,
    population_digest,
)

DRAWN = "2026-11-20T10:00:00Z"


def battles(
    categories: Mapping[str, int], model: str = "new", equal: tuple[str, ...] = ()
) -> list[Contestant]:
    """So many battles of each category. equal: samples whose two answers are the same."""
    return [
        Contestant(
            BattleDigests(
                digest_text(f"question {name}/{i}"),
                digest_text("old" if f"{name}/{i}" in equal else f"{model} {name}/{i}"),
                digest_text("old" if f"{name}/{i}" in equal else f"old {name}/{i}"),
            ),
            f"{name}/{i}",
            name,
            f"{name}/{i}",
        )
        for name, count in categories.items()
        for i in range(count)
    ]


def drawn_file(
    path: Path, own: list[Contestant], count: int, labels: Mapping[str, float] | None = None
) -> LabelFile:
    """The label file of a draw, with labels by sample; all drawn battles are won where None."""
    probabilities = draw_battles(own, count)
    by_sample = {contestant.sample: contestant.battle for contestant in own}
    given = dict.fromkeys(probabilities, 1.0) if labels is None else labels
    return LabelFile(
        path,
        Draw(
            suite="arena",
            population=population_digest(own),
            battles=len(own),
            count=count,
            drawn=DRAWN,
        ),
        {
            sample: DrawnBattle(
                sample=sample, **by_sample[sample]._asdict(), probability=probability
            )
            for sample, probability in probabilities.items()
        },
        {
            by_sample[sample]: Label(**by_sample[sample]._asdict(), score=score)
            for sample, score in given.items()
        },
    )
