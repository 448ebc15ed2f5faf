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
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.chains.answers.battles import AnswerPair
from pytest_cepbench.datasets.judged_battles import FILE_NAME, VERDICT, load_judged_battles
from pytest_cepbench.datasets.sample import GoldStep, SeedImage
from pytest_cepbench.errors import DatasetError, StoreError, WriteError
from pytest_cepbench.models.protocols import Battle, Piece
from pytest_cepbench.models.text_model.judge_prompts import JudgePrompt, break_up
from pytest_cepbench.ratings.folder import read_ratings, read_votes
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.ratings.votes import battle_votes, mirrored
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


def panel_battles(panel: BattlePanel, store: Store) -> Iterator[TrainingBattle]:
    """Those of a panel, with the verdicts of its people or of the truth."""
    for number, judged in enumerate(panel.people):
        pair: AnswerPair = panel.pair(judged)
        shown = []
        for refs in (pair.question, pair.candidate, pair.opponent):
            assert refs is not None  # a panel has no battle of which an answer is missing
            loaded = refs.load(store)
            if loaded is None:
                raise StoreError(
                    f"{refs.name}: an image in the store {store.root} is damaged: run the command "
                    "again"
                )
            shown.append(loaded)
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

    def pieces(shown: Iterable[str | SeedImage | None]) -> list[Piece]:
        return [p if isinstance(p, str) else p.load().to_pil() for p in shown if p]

    def steps(answer: Sequence[GoldStep]) -> list[Piece]:
        return pieces(piece for step in answer for piece in (step.text, step.image))

    for sample in load_judged_battles(path).samples:
        yield TrainingBattle(
            sample.id,
            sample.categories[0],
            frozenset(sample.categories),
            Battle(pieces(sample.question), steps(sample.answer), steps(sample.gold)),
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

    def pieces(parts: Sequence[Part]) -> list[Piece]:
        return [p.text or "" if p.image is None else ratings.image(p.image).to_pil() for p in parts]

    for digest, judged in votes.items():
        first, second = judged.item.options
        yield TrainingBattle(
            digest,
            "people",
            frozenset(filter(None, (models.get(own.option) for own in (first, second)))),
            Battle(*map(pieces, (judged.item.question, first.parts, second.parts))),
            judged.verdict(),
        )


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
    export = TrainingExport()
    partial = folder.parent / f".{folder.resolve().name}.partial"
    lines: dict[str, list[str]] = {}
    known: set[str] = set()
    written: set[str] = set()

    def add(image: Any) -> str:
        """Write an image once; the name of its file, counted from the folder."""
        artifact = ImageArtifact.from_pil(image)
        # PNG: of lossless formats the one that every trainer's loader reads.
        name = f"{IMAGES}/{artifact.digest}.png"
        if name not in written:
            artifact.to_pil().save(partial / name, "PNG")
            written.add(name)
        return name

    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        (partial / IMAGES).mkdir(parents=True)
        for battle in battles:
            known |= battle.names
            split = _UNSEEN if battle.names & set(unseen) else _TRAIN
            export.battles[split] += 1
            export.verdicts[battle.verdict] += 1
            if layout == "chat":
                name, rows = f"{split}.jsonl", _chats(battle, prompt, add)
            else:
                name = FILE_NAME if split == _TRAIN else f"{_UNSEEN}-{FILE_NAME}"
                rows = [_table(battle, add)]
            lines.setdefault(name, []).extend(json.dumps(row, ensure_ascii=False) for row in rows)
            export.rows[name] += len(rows)
        if absent := sorted(set(unseen) - known):
            names = ", ".join(sorted(known)) or "none is named"
            raise WriteError(
                f"--unseen {absent[0]}: no battle has that model or category; there are: {names}"
            )
        for name, texts in lines.items():
            (partial / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        partial.rename(folder)
    except OSError as error:
        raise WriteError(
            f"{error.filename or folder} could not be written: {error.strerror}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    export.images = len(written)
    return export


def _chats(
    battle: TrainingBattle, prompt: JudgePrompt, add: Callable[[Any], str]
) -> list[dict[str, Any]]:
    """The battle in either order of the answers."""

    def turn(role: str, pieces: Sequence[Piece]) -> dict[str, Any]:
        # Parts with and without a text have the same columns, or rows of them are no table.
        content = [
            {"type": "text", "text": piece}
            if isinstance(piece, str)
            else {"type": "image", "text": None}
            for piece in pieces
        ]
        return {"role": role, "content": content}

    rows = []
    shown = battle.battle
    turned = Battle(shown.question, shown.second, shown.first)
    for own, winner in ((shown, battle.verdict), (turned, mirrored(battle.verdict))):
        pieces = break_up(_CONTROLS, prompt.show(own))
        # As prompt and completion: of rows with all turns in one list, trl learns the prompt too.
        rows.append(
            {
                "prompt": [turn("system", [prompt.system]), turn("user", pieces)],
                "completion": [turn("assistant", [prompt.phrases[winner]])],
                "images": [add(piece) for piece in pieces if not isinstance(piece, str)],
                "battle": battle.id,
                "verdict": winner,
                "answers": prompt.bounds(own),
            }
        )
    return rows


def _table(battle: TrainingBattle, add: Callable[[Any], str]) -> dict[str, Any]:
    """A row of a table of judged battles."""

    def steps(pieces: Sequence[Piece]) -> list[dict[str, str]]:
        """An answer in the same order: a step begins at each text, and at a second image."""
        made: list[dict[str, str]] = []
        for piece in pieces:
            if isinstance(piece, str):
                made.append({"text": piece})
            elif made and "image" not in made[-1]:
                made[-1]["image"] = add(piece)
            else:
                made.append({"image": add(piece)})
        return made

    return {
        "id": battle.id,
        "category": battle.group,
        "verdict": battle.verdict,
        "question": [
            {"text": piece} if isinstance(piece, str) else {"image": add(piece)}
            for piece in battle.battle.question
        ],
        "first": steps(battle.battle.first),
        "second": steps(battle.battle.second),
    }
