"""Both ways of docs/judges.md to train a judge, run as they are printed, on the small judge."""

from __future__ import annotations

import ast
import json
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.models.protocols import Battle, Judge, Reply
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.studies.training_files import TrainingBattle, stored_battles, write_training
from tests.docs.markdown import DOCS, EXAMPLES, ROOT, blocks
from tests.models.binding import bind_text

torch = pytest.importorskip("torch", reason="the training needs the [models] extra")

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


def mirrored(own: TrainingBattle) -> tuple[Battle, Winner]:
    """The battle with its answers in the other order, and its verdict."""
    other = Battle(own.battle.question, own.battle.second, own.battle.first)
    return other, WINNERS[::-1][WINNERS.index(own.verdict)]


@pytest.mark.filterwarnings("default")  # trl names settings as earlier versions of transformers did
def test_the_recipe_teaches_verdicts_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes through, only the verdict's tokens are learned, and what it saves is a judge."""
    pytest.importorskip("trl", reason="the recipe is one for trl")
    pytest.importorskip("datasets", reason="trl reads the rows by datasets")
    monkeypatch.chdir(tmp_path)
    write_training(Path("battles"), battles(), "chat", PROMPT)
    shutil.copytree(ROOT / "reference" / "checkpoints" / "judge", "checkpoints/start")
    (recipe,) = [b.text for b in blocks(DOCS / "judges.md") if "SFTTrainer(" in b.text]

    known: dict[str, Any] = {}
    exec(compile(recipe, "docs/judges.md", "exec"), known)

    trainer, rows = known["trainer"], known["rows"]
    assert trainer.state.global_step == 3
    tokenizer = trainer.processing_class.tokenizer
    verdicts = [winner for battle in battles() for winner in (battle.verdict, mirrored(battle)[1])]
    for row, verdict in zip(rows, verdicts, strict=True):
        batch = trainer.data_collator([row])
        learned = batch["labels"][batch["labels"] != -100]
        assert tokenizer.decode(learned).strip() == PROMPT.phrases[verdict]
        assert len(learned) == 1
    lengths = [len(trainer.data_collator([row])["input_ids"][0]) for row in rows]
    assert max(lengths) > 1024

    _assert_judges("checkpoints/judge")


def _assert_judges(checkpoint: str) -> None:
    judge = bind_text(f"{checkpoint}?device=cpu", "judge").load()
    assert isinstance(judge, Judge)
    (reply,) = judge.judge([next(battles()).battle], [0])
    assert isinstance(reply, Reply)
    assert reply.value in WINNERS


START = ROOT / "reference" / "checkpoints" / "judge"
SCRIPT = EXAMPLES / "train_judge.py"


Train = Callable[..., tuple[int, str, str]]


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Train:
    """Runs the script in this process, which has the libraries; (exit code, output, errors)."""

    def run(folder: Path, *options: str) -> tuple[int, str, str]:
        command = [str(SCRIPT), str(folder), "--model", str(START), *options]
        monkeypatch.setattr(sys, "argv", command)
        code: Any = 0
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        return code, *capfd.readouterr()

    return run


def _logged(output: str) -> dict[str, float]:
    """What the last line of the training's log says."""
    line = [line for line in output.splitlines() if "train_runtime" in line][-1]
    logged = ast.literal_eval(line[line.index("{") :])
    return {name: float(value) for name, value in logged.items()}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("rank", [0, 4])
def test_script_trains_a_judge_with_four_losses(train: Train, tmp_path: Path, rank: int) -> None:
    """All weights or LoRA: every loss is logged, weights change, what it saves is a judge."""
    from safetensors.torch import load_file

    write_training(tmp_path / "battles", battles(), "chat", PROMPT)
    options = ["--rank", str(rank), "--contrast", "0.2", "--features", "0.2", "--batch", "2"]
    where = ["--out", str(tmp_path / "judge"), "--accumulate", "1", "--rate", "1e-3"]

    code, output, _ = train(tmp_path / "battles", *options, *where, "--steps", "2")

    assert code == 0
    logged = _logged(output)
    assert all(logged[n] > 0 for n in ("verdict", "ranking", "contrast", "features"))
    before = load_file(START / "model.safetensors")
    after = load_file(tmp_path / "judge" / "model.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name, value in after.items() if not value.equal(before[name].to(value))}
    assert any("language_model" in name or "layers" in name for name in changed)
    assert any("visual" in name for name in changed) == (rank == 0)
    _assert_judges(str(tmp_path / "judge"))

    code, *_ = train(tmp_path / "battles", *options, *where, "--steps", "3", "--resume")

    assert code == 0
    state = json.loads((tmp_path / "judge/training/checkpoint-3/trainer_state.json").read_text())
    assert state["global_step"] == 3


def test_script_learns_from_what_stands_in_the_answers(tmp_path: Path) -> None:
    """Only the verdict's tokens are learned, and each answer is where its tokens are."""
    from transformers import AutoProcessor

    folder = tmp_path / "battles"
    write_training(folder, battles(), "chat", PROMPT)
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    script = runpy.run_path(str(SCRIPT))
    for row in rows:
        script["without_empty_texts"](row)
    processor = AutoProcessor.from_pretrained(START)
    batch = script["Battles"](processor, folder)(rows)

    leads = {"A": 1, "B": -1, "Tie(A)": 0.5, "Tie(B)": -0.5}
    shown = [
        each for battle in battles() for each in ((battle.battle, battle.verdict), mirrored(battle))
    ]
    decode = processor.tokenizer.decode
    for row, (battle, verdict) in enumerate(shown):
        ids, labels = batch["input_ids"][row], batch["labels"][row]
        assert decode(labels[labels != -100]).strip() == PROMPT.phrases[verdict]
        assert batch["lead"][row] == leads[verdict]
        first, second, end = batch["answers"][row].tolist()
        for answer, heading, part in (
            (battle.first, "Answer A:", ids[first:second]),
            (battle.second, "Answer B:", ids[second:end]),
        ):
            texts = [piece for piece in answer if isinstance(piece, str)]
            kept = [token for token in decode(part).split() if not token.startswith("<|")]
            assert kept == " ".join([heading, *texts]).split()
            images = len(answer) - len(texts)
            assert decode(part).count("<|vision_start|>") == images


def test_script_names_what_it_lacks(train: Train, tmp_path: Path) -> None:
    """A folder without battles is a line that names the command which writes them."""
    code, _, errors = train(tmp_path, "--out", str(tmp_path / "judge"))

    assert code == 2
    assert "`cepbench arena training` writes it" in errors.splitlines()[-1]
