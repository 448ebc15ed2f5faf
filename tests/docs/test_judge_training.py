"""The recipe of docs/judges.md for trl, run as it is printed there, on the shipped small judge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.models.protocols import Battle, Judge, Reply
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.studies.training_files import TrainingBattle, stored_battles, write_training
from tests.docs.markdown import DOCS, ROOT, blocks
from tests.models.binding import bind_text

pytest.importorskip("torch", reason="the training needs the [models] extra")
pytest.importorskip("trl", reason="the recipe is one for trl")
pytest.importorskip("datasets", reason="trl reads the rows by datasets")

pytestmark = [pytest.mark.models, pytest.mark.slow]

PROMPT = JUDGE_PROMPTS["criteria"]

_IMAGES = 120  # of nine tokens each: more tokens than trl keeps where it is not told otherwise


def battles() -> Iterator[TrainingBattle]:
    """Two battles of the shipped suite, a long one, and one without an image."""
    yield from islice(stored_battles(ROOT / "suites" / "judge"), 2)
    red = Image.new("RGB", (48, 48), "red")
    names: frozenset[str] = frozenset()
    long = Battle(["continue"], ["one shape"], [red] * _IMAGES)
    yield TrainingBattle("long", "long", names, long, "A")
    plain = Battle(["continue"], ["one shape"], ["two shapes"])
    yield TrainingBattle("plain", "plain", names, plain, "Tie(B)")


@pytest.mark.filterwarnings("default")  # trl names settings as earlier versions of transformers did
def test_the_recipe_teaches_verdicts_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes through, only the verdict's tokens are learned, and what it saves is a judge."""
    monkeypatch.chdir(tmp_path)
    write_training(Path("battles"), battles(), "chat", PROMPT)
    shutil.copytree(ROOT / "reference" / "checkpoints" / "judge", "checkpoints/start")
    (recipe,) = [b.text for b in blocks(DOCS / "judges.md") if "SFTTrainer(" in b.text]

    known: dict[str, Any] = {}
    exec(compile(recipe, "docs/judges.md", "exec"), known)

    trainer, rows = known["trainer"], known["rows"]
    assert trainer.state.global_step == 3
    tokenizer = trainer.processing_class.tokenizer
    verdicts = [winner for battle in battles() for winner in (battle.verdict, battle.mirrored()[1])]
    for row, verdict in zip(rows, verdicts, strict=True):
        batch = trainer.data_collator([row])
        learned = batch["labels"][batch["labels"] != -100]
        assert tokenizer.decode(learned).strip() == PROMPT.phrases[verdict]
        assert len(learned) == 1
    lengths = [len(trainer.data_collator([row])["input_ids"][0]) for row in rows]
    assert max(lengths) > 1024

    judge = bind_text("checkpoints/judge?device=cpu", "judge").load()
    assert isinstance(judge, Judge)
    (reply,) = judge.judge([next(battles()).battle], [0])
    assert isinstance(reply, Reply)
    assert reply.value in WINNERS
