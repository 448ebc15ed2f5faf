"""Battles with verdicts, whatever they come from, to train judges with or to measure them on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.chains.answers.answer_plan import PieceRefs
from pytest_cepbench.chains.answers.battles import AnswerPair
from pytest_cepbench.datasets.judged_battles import VERDICT, load_judged_battles
from pytest_cepbench.datasets.sample import GoldStep, SeedImage
from pytest_cepbench.errors import DatasetError, StoreError
from pytest_cepbench.models.protocols import Battle, Piece
from pytest_cepbench.ratings.battle_votes import BattleVotes, battle_votes
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.store import Store
from pytest_cepbench.studies.judge_panels import BattlePanel


@dataclass(frozen=True)
class TrainingBattle:
    """A battle with its verdict, whose images are loaded when it is asked for.

    id: unique among those of one source.
    group: its category; what the panel is called where it has none.
    names: the models that fought and the category, as far as they are known.
    battle: the question and both answers.
    verdict: "A" for the first answer.
    """

    id: str
    group: str
    names: frozenset[str]
    battle: Battle
    verdict: Winner

    def mirrored(self) -> tuple[Battle, Winner]:
        """The same with the answers in the other order."""
        other = Battle(self.battle.question, self.battle.second, self.battle.first)
        return other, WINNERS[len(WINNERS) - 1 - WINNERS.index(self.verdict)]


def panel_battles(panel: BattlePanel, store: Store) -> Iterator[TrainingBattle]:
    """Those of a panel, with the verdicts of its people or of the truth."""
    for number, judged in enumerate(panel.people):
        pair: AnswerPair = panel.pair(judged)
        shown = [_loaded(refs, store) for refs in (pair.question, pair.candidate, pair.opponent)]
        category, slash, _ = judged.question.partition("/")
        yield TrainingBattle(
            f"{judged.question}-{number:05}",
            category if slash else panel.name,
            frozenset((judged.first, judged.second, *([category] if slash else []))),
            Battle(*shown),
            judged.winner,
        )


def stored_battles(path: Path) -> Iterator[TrainingBattle]:
    """Those of a table of battles with stored verdicts. Raises DatasetError."""
    for sample in load_judged_battles(path).samples:
        yield TrainingBattle(
            sample.id,
            sample.categories[0],
            frozenset(sample.categories),
            Battle(
                [_piece(piece) for piece in sample.question],
                _pieces(sample.answer),
                _pieces(sample.gold),
            ),
            sample.metadata[VERDICT],
        )


def people_battles(path: Path) -> Iterator[TrainingBattle]:
    """Those of a study of pairs, with the majority of the votes on each.

    Items that nobody judged are left out, and so are practice, attention and repeated ones. Raises
    DatasetError for a folder that holds no such study, for images that are lost, and where nobody
    has voted.
    """
    ratings = read_ratings(path)
    votes = battle_votes(ratings, read_votes(ratings))
    if not votes:
        raise DatasetError(f"{path}: nobody has judged a battle of this study yet")
    models = {source.option: source.model for source in ratings.sources}
    for digest, judged in votes.items():
        options = judged.item.options
        yield TrainingBattle(
            digest,
            "people",
            frozenset(filter(None, (models.get(option.option) for option in options))),
            _battle_of(judged, ratings),
            judged.verdict(),
        )


def _battle_of(judged: BattleVotes, ratings: Ratings) -> Battle:
    load = partial(_part, ratings=ratings)
    first, second = judged.item.options
    return Battle(
        [load(part) for part in judged.item.question],
        [load(part) for part in first.parts],
        [load(part) for part in second.parts],
    )


def _part(part: Part, ratings: Ratings) -> Piece:
    if part.image is not None:
        return ratings.image(part.image).to_pil()
    return part.text or ""


def _loaded(refs: PieceRefs | None, store: Store) -> Sequence[Piece]:
    assert refs is not None  # a panel has no battle of which an answer is missing
    loaded = refs.load(store)
    if loaded is None:
        raise StoreError(
            f"{refs.name}: an image in the store {store.root} is damaged: run the command again"
        )
    return loaded


def _piece(piece: str | SeedImage) -> Piece:
    return piece if isinstance(piece, str) else _image(piece)


def _pieces(steps: Sequence[GoldStep]) -> list[Piece]:
    pieces: list[Piece] = []
    for step in steps:
        pieces += [step.text] if step.text else []
        pieces += [] if step.image is None else [_image(step.image)]
    return pieces


def _image(image: SeedImage) -> Image.Image:
    return image.load().to_pil()
