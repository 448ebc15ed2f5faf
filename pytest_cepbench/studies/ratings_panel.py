"""The battles of a ratings folder as a panel, which brings questions and answers with it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains.answers.answer_plan import PieceRefs
from pytest_cepbench.chains.answers.battles import AnswerPair
from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.metrics.arena import JudgedBattle
from pytest_cepbench.ratings.exports import named_battles
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Item, Part
from pytest_cepbench.studies.judge_panels import BattlePanel


def ratings_panel(ratings: Ratings, votes: Votes) -> BattlePanel:
    """The battles that people judged in a ratings folder, each by the majority of its votes.

    A judge's verdict on one has the key that it has in a run of the suite, so that what a run has
    asked costs no call. Raises DatasetError as `named_battles`.
    """
    named = {_key(battle): item for item, battle in named_battles(ratings, votes)}
    battles = tuple(battle for _, battle in named_battles(ratings, votes))

    def pair(battle: JudgedBattle) -> AnswerPair:
        item: Item = named[_key(battle)]
        first, second = item.options
        return AnswerPair(
            battle.question,
            _refer(ratings, f"{battle.question}, its question", item.question),
            _refer(ratings, f"{battle.question}, the answer of {battle.first}", first.parts),
            _refer(ratings, f"{battle.question}, the answer of {battle.second}", second.parts),
        )

    return BattlePanel(ratings.path.resolve().name, battles, pair, {})


def _key(battle: JudgedBattle) -> tuple[str, str, str]:
    return battle.question, battle.first, battle.second


def _refer(ratings: Ratings, name: str, parts: Sequence[Part]) -> PieceRefs:
    pieces: list[str | FileImage] = []
    inputs: list[tuple[str, str]] = []
    for part in parts:
        if part.text is not None:
            pieces.append(part.text)
            inputs.append(("text", digest_text(part.text)))
        else:
            digest = str(part.image)
            pieces.append(FileImage(ratings.image_path(digest)))
            inputs.append(("image", digest))
    return PieceRefs(name, tuple(pieces), tuple(inputs))
