"""What the judge is taught with: its battles, and rows as the shipped judge will read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    load_shapes_arena,
    score_answer,
    solve,
)
from pytest_cepbench.datasets.shapes.arena.solver import read_question
from pytest_cepbench.models.protocols import Battle as ShownBattle
from pytest_cepbench.models.protocols import Piece
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from tests.ratings.studies import cast, make_study, side_vote
from tests.tiny.common import skip_before

pytest.importorskip("torch", reason="the training needs the [models] extra")
pytest.importorskip("transformers", reason="the training needs the [models] extra")

pytestmark = pytest.mark.models

SUITE = Path(__file__).parents[2] / "suites" / "judge"


def drawn(number: int, *faults: str, **options: Any) -> list[Any]:
    """Battles of a seed of their own."""
    from battles import SEEN_FAULTS, draw_battles

    return draw_battles(np.random.default_rng(7), number, faults or SEEN_FAULTS, **options)


def pieces(steps: Any) -> list[Piece]:
    """An answer as judges are shown it."""
    flat = [part for step in steps for part in step if part is not None and part != ""]
    return [part.to_pil() if isinstance(part, ImageArtifact) else part for part in flat]


def shown(battle: Any) -> ShownBattle:
    """A battle as judges are shown it."""
    question = [p.to_pil() if isinstance(p, ImageArtifact) else p for p in battle.question]
    return ShownBattle(question, pieces(battle.first.steps), pieces(battle.second.steps))


def test_battles_are_labelled_by_truth() -> None:
    """The better answer wins, a difference within the margin is a tie that leans to it."""
    from battles import verdict_place

    battles = drawn(24, reference_share=0.0)
    for battle in battles:
        solution = solve(read_question(battle.question))
        for side in (battle.first, battle.second):
            assert side.truth == score_answer(solution, side.steps)
        assert battle.place == verdict_place(battle.apart)
        assert battle.apart != 0
    places = [battle.place for battle in battles]
    assert {0, 3} <= set(places)
    assert places.count(1) + places.count(2) < 10
    tasks = {read_question(battle.question).instruction.task for battle in battles}
    assert len(tasks) > 5
    assert tasks <= {*TASKS}


def test_no_scene_of_a_suite_is_shown() -> None:
    """Neither in questions; all questions are lessons that are new."""
    from lessons import known_scenes

    from pytest_cepbench.datasets.shapes import parse_image

    asked = {
        parse_image(piece)
        for battle in drawn(20)
        for piece in battle.question
        if isinstance(piece, ImageArtifact)
    }
    assert not {scene for scene in asked if scene.objects} & known_scenes()


def test_rows_are_what_the_shipped_judge_reads() -> None:
    """Token by token and place by place, in both orders, as processor and model make them."""
    skip_before("the training of the judge", "transformers", "5.0")
    from judge_rows import RowBuilder
    from qwen import build_model, build_processor

    battles = drawn(3, "no_text", "miss", "no_image", "stop")
    builder = RowBuilder()
    rows = builder.of_battles(battles)
    processor = build_processor(builder.tokenizer)
    model = build_model(builder.tokenizer, width=64, layers=1, depth=1)
    prompt = JUDGE_PROMPTS["criteria"]
    for number, battle in enumerate(battles):
        one = shown(battle)
        orders = (one, ShownBattle(one.question, one.second, one.first))
        for mirrored, order in enumerate(orders):
            content = [
                {"type": "text", "text": piece}
                if isinstance(piece, str)
                else {"type": "image", "image": piece}
                for piece in prompt.show(order)
            ]
            system = {"role": "system", "content": [{"type": "text", "text": prompt.system}]}
            inputs = processor.apply_chat_template(
                [[system, {"role": "user", "content": content}]],
                add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
            )  # fmt: skip
            row = 2 * number + mirrored
            length = int(rows.mask[row].sum())
            assert rows.ids[row, :length].tolist() == inputs["input_ids"][0].tolist()
            assert builder.tokenizer.unk_token_id not in rows.ids[row].tolist()
            places, _ = model.model.get_rope_index(
                inputs["input_ids"], inputs["mm_token_type_ids"], inputs["image_grid_thw"]
            )
            assert rows.places[:, row, :length].tolist() == places[:, 0].tolist()
            slots = rows.slots[row, :length]
            images = list(dict.fromkeys((slots[slots >= 0] // 9).tolist()))
            patches = rows.patches[images].flatten(0, 1)
            assert np.allclose(patches, inputs["pixel_values"], atol=1e-5)


def test_the_tower_sees_all_images_at_once_as_one_by_one() -> None:
    """The way of the training gives what the model's own way gives."""
    skip_before("the training of the judge", "transformers", "5.0")
    import torch
    from judge_rows import RowBuilder
    from qwen import build_model, look

    builder = RowBuilder()
    torch.manual_seed(0)
    model = build_model(builder.tokenizer, layers=1)
    patches = builder.of_battles(drawn(1)).patches
    grid = torch.tensor([[1, 6, 6]] * len(patches))
    with torch.no_grad():
        own = model.model.visual(patches.flatten(0, 1), grid_thw=grid).pooler_output
        assert torch.allclose(look(model, patches).flatten(0, 1), own, atol=1e-5)


def test_people_teach_where_nothing_tells_the_truth(tmp_path: Path) -> None:
    """Their pairs give a verdict in both orders, and nothing that helpers could learn."""
    from battles import read_people
    from judge_rows import IGNORED, RowBuilder

    ratings = make_study(tmp_path / "ratings", "pair", count=4)
    for item in [own for own in ratings.items.values() if own.kind == "item"][:2]:
        for annotator in ("a1", "a2"):
            cast(ratings, side_vote(item, annotator, "B", swapped=True))
    battles = read_people(tmp_path / "ratings")
    assert [(battle.source, battle.place, battle.apart) for battle in battles] == [
        ("people", 0, 0.0)
    ] * 2
    rows = RowBuilder().of_battles(battles)
    assert len(set(rows.verdicts.tolist())) == 2
    assert (rows.right == IGNORED).all()
    assert rows.truths.isnan().all()
    assert len(rows.figures) == 0


def test_battles_of_the_suite_are_those_of_its_script() -> None:
    """`suites/judge` has what reference/judge_battles.py writes, to the last byte."""
    import judge_battles

    rng = np.random.default_rng((0, 4))
    samples = load_shapes_arena(24, seed=0).samples[:6]
    lines = (SUITE / "battles.jsonl").read_text("utf-8").splitlines()
    for number, (sample, line) in enumerate(zip(samples, lines, strict=False)):
        assert judge_battles.battle_line(sample, rng, seen=number % 2 == 0) == json.loads(line)
