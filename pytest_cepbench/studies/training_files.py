"""Files of battles: chats to train judges with, or a table to measure them on.

A chat is a prompt and its completion, whose parts are in lists, as trl reads them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.chains.answers.answer_plan import PieceRefs
from pytest_cepbench.chains.answers.battles import AnswerPair
from pytest_cepbench.datasets.judged_battles import FILE_NAME, VERDICT, load_judged_battles
from pytest_cepbench.datasets.sample import GoldStep, SeedImage
from pytest_cepbench.errors import DatasetError, StoreError, WriteError
from pytest_cepbench.models.protocols import Battle, Piece
from pytest_cepbench.models.text_model.judge_prompts import JudgePrompt, break_up
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.ratings.votes import battle_votes
from pytest_cepbench.store import Store
from pytest_cepbench.studies.panels import BattlePanel


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

    Items that nobody judged are left out, and so are attention and repeated ones. Raises
    DatasetError for a folder that holds no such study, for images that are lost, and where nobody
    has voted.
    """
    ratings = read_ratings(path)
    votes = battle_votes(ratings, read_votes(ratings))
    if not votes:
        raise DatasetError(f"{path}: nobody has judged a battle of this study yet")
    models = {source.option: source.model for source in ratings.sources}
    for digest, judged in votes.items():
        first, second = judged.item.options
        shown = (judged.item.question, first.parts, second.parts)
        yield TrainingBattle(
            digest,
            "people",
            frozenset(filter(None, (models.get(own.option) for own in (first, second)))),
            Battle(*([_part(part, ratings) for part in parts] for parts in shown)),
            judged.verdict(),
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
    return piece if isinstance(piece, str) else piece.load().to_pil()


def _pieces(steps: Sequence[GoldStep]) -> list[Piece]:
    pieces: list[Piece] = []
    for step in steps:
        pieces += [step.text] if step.text else []
        pieces += [] if step.image is None else [_piece(step.image)]
    return pieces


ExportFormat = Literal["chat", "battles"]

IMAGES = "images"

_TRAIN, _UNSEEN = "train", "unseen"

_CONTROLS = re.compile(
    r"<[|\uff5c][^<>\[\]|\uff5c\s]+[|\uff5c]>"
    # What trainers count as media, and control tokens of chat models that read images.
    r"|</?(?:image|video|audio|s|bos|eos|pad|unk|mask|tool_call|tool_response|start_of_turn"
    r"|end_of_turn|start_of_image|end_of_image|image_soft_token|end_of_utterance|global-img"
    r"|fake_token_around_image|row_\d+_col_\d+)>"
    r"|\[/?(?:INST|IMG|IMG_BREAK|IMG_END|SYSTEM_PROMPT)\]"
)
"""Which tokens a model has is not known here; a local judge knows its own, and breaks up those."""


@dataclass
class TrainingExport:
    """What was written.

    battles: of each split. rows: lines of each file; of chats two to a battle.
    images: files of images.
    verdicts: how often each verdict was given, in the order of the answers at hand.
    """

    folder: Path
    battles: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    images: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)


def write_training(
    folder: Path,
    battles: Iterable[TrainingBattle],
    layout: ExportFormat,
    prompt: JudgePrompt,
    unseen: Collection[str] = (),
) -> TrainingExport:
    """Write battles into a new folder, an image once however often it is shown.

    prompt: what the judge is asked, of chats.
    unseen: models or categories whose battles go into a split of their own.
    Raises WriteError where the folder is there or cannot be written, and for a name in `unseen`
    that no battle has, and what `battles` raises. There is no folder then, and none when the
    process is killed.
    """
    if folder.exists():
        raise WriteError(f"{str(folder)!r} is there already: name a new folder with --out")
    export = TrainingExport(folder)
    partial = folder.parent / f".{folder.resolve().name}.partial"
    lines: dict[str, list[str]] = {}
    known: set[str] = set()
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        (partial / IMAGES).mkdir(parents=True)
        album = _Album(partial)
        for battle in battles:
            known |= battle.names
            split = _UNSEEN if battle.names & set(unseen) else _TRAIN
            export.battles[split] += 1
            export.verdicts[battle.verdict] += 1
            if layout == "chat":
                name, rows = f"{split}.jsonl", _chats(battle, prompt, album)
            else:
                name = FILE_NAME if split == _TRAIN else f"{_UNSEEN}-{FILE_NAME}"
                rows = [_table(battle, album)]
            lines.setdefault(name, []).extend(rows)
            export.rows[name] += len(rows)
        if absent := sorted(set(unseen) - known):
            names = ", ".join(sorted(known)) or "none is named"
            raise WriteError(
                f"--unseen {absent[0]}: no battle has that model or category; there are: {names}"
            )
        for name, rows in lines.items():
            (partial / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        partial.rename(folder)
    except OSError as error:
        raise WriteError(
            f"{error.filename or folder} could not be written: {error.strerror}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    export.images = len(album.written)
    return export


@dataclass
class _Album:
    """Files of images, named by their digests."""

    folder: Path
    written: set[str] = field(default_factory=set)

    def add(self, image: Any) -> str:
        """The name of an image's file, counted from the folder."""
        artifact = ImageArtifact.from_pil(image)
        # PNG: of lossless formats the one that every trainer's loader reads.
        name = f"{IMAGES}/{artifact.digest}.png"
        if name not in self.written:
            artifact.to_pil().save(self.folder / name, "PNG")
            self.written.add(name)
        return name


def _chats(battle: TrainingBattle, prompt: JudgePrompt, album: _Album) -> list[str]:
    """The battle in either order of the answers."""
    rows = []
    for shown, winner in ((battle.battle, battle.verdict), battle.mirrored()):
        pieces = break_up(_CONTROLS, prompt.show(shown))
        # As prompt and completion: of rows with all turns in one list, trl learns the prompt too.
        row = {
            "prompt": [_turn("system", [prompt.system]), _turn("user", pieces)],
            "completion": [_turn("assistant", [prompt.phrases[winner]])],
            "images": [album.add(piece) for piece in pieces if not isinstance(piece, str)],
            "battle": battle.id,
            "verdict": winner,
            "answers": prompt.bounds(shown),
        }
        rows.append(json.dumps(row, ensure_ascii=False))
    return rows


def _turn(role: str, pieces: Sequence[Piece]) -> dict[str, Any]:
    # Parts with and without a text have the same columns, or rows of them are no table.
    return {
        "role": role,
        "content": [
            {"type": "text", "text": piece}
            if isinstance(piece, str)
            else {"type": "image", "text": None}
            for piece in pieces
        ],
    }


def _table(battle: TrainingBattle, album: _Album) -> str:
    """A line of a table of judged battles."""

    def pieces(shown: Sequence[Piece]) -> Iterator[dict[str, str]]:
        for piece in shown:
            yield {"text": piece} if isinstance(piece, str) else {"image": album.add(piece)}

    fields = {
        "id": battle.id,
        "category": battle.group,
        "verdict": battle.verdict,
        "question": list(pieces(battle.battle.question)),
        "first": _steps(battle.battle.first, album.add),
        "second": _steps(battle.battle.second, album.add),
    }
    return json.dumps(fields, ensure_ascii=False)


def _steps(pieces: Sequence[Piece], add: Callable[[Any], str]) -> list[dict[str, str]]:
    """An answer's pieces in the same order: a step begins at each text, and at a second image."""
    steps: list[dict[str, str]] = []
    for piece in pieces:
        if isinstance(piece, str):
            steps.append({"text": piece})
        elif steps and "image" not in steps[-1]:
            steps[-1]["image"] = add(piece)
        else:
            steps.append({"image": add(piece)})
    return steps
