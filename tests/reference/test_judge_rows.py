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
    AnswerDegradation,
    load_shapes_arena,
    score_answer,
    solve,
)
from pytest_cepbench.datasets.shapes.arena.solver import read_question
from pytest_cepbench.models.protocols import Battle as ShownBattle
from pytest_cepbench.models.protocols import Piece
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from tests.cli.test_arena_training import judged_study
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


@pytest.mark.slow
def test_differences_of_truth_are_spread() -> None:
    """Up to 0.4 about evenly; at first those under 0.15 are rare."""
    even = [abs(battle.apart) for battle in drawn(150, reference_share=0.0)]
    easy = [abs(battle.apart) for battle in drawn(150, reference_share=0.0, ease=1.0)]
    for low in (0.0, 0.1, 0.2):
        assert 0.1 < np.mean([low < own <= low + 0.1 for own in even]) < 0.5
    assert np.mean([own < 0.1 for own in easy]) < np.mean([own < 0.1 for own in even])


def test_a_twin_with_a_quarter_of_the_faults_wins_by_assumption() -> None:
    """It is the better one but in a few cases, and never the same."""
    battles = drawn(40, reference_share=1.0)
    assert {battle.source for battle in battles} == {"reference"}
    leads = [battle.apart if battle.place == 0 else -battle.apart for battle in battles]
    assert np.mean([lead > 0 for lead in leads]) > 0.9
    assert {battle.place for battle in battles} == {0, 3}
    assert not [b for b in battles if b.first.contents == b.second.contents]


def test_only_the_faults_that_are_named_occur() -> None:
    """Of unseen kinds none is among the seen; answers of `no_text` have all of their images."""
    from battles import SEEN_FAULTS, UNSEEN_FAULTS, draw_knobs

    assert not {*SEEN_FAULTS} & {*UNSEEN_FAULTS}
    rng = np.random.default_rng(0)
    for faults in (SEEN_FAULTS, UNSEEN_FAULTS):
        kinds = {name for _ in range(80) for name in draw_knobs(rng, faults)}
        # A drift needs a mistake to go on from.
        assert kinds - {*faults} <= ({"miss"} if "drift" in faults else set())
        assert kinds >= {*faults}
        for _ in range(50):
            AnswerDegradation(**draw_knobs(rng, faults))
    for battle in drawn(8, "no_text"):
        assert all(image is not None for _, image in battle.first.steps)


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


def test_what_is_known_stands_at_its_token() -> None:
    """Of a hand-made answer: what is right, what is due, and how good each step is."""
    from battles import Answered
    from judge_rows import IGNORED, RowBuilder

    from pytest_cepbench.datasets.shapes import parse_caption, render

    told = "two shapes : small red circle top left , large blue square middle right"
    right = parse_caption("two shapes : small red circle top left , large cyan cross middle right")
    scene = parse_caption("one shape : small red circle top left")
    truth = score_answer(solve(read_question(drawn(1)[0].question)), [(told, None)])
    answer = Answered(
        ((told, render(scene, 1)),), truth, (parse_caption(told),), (scene,), (right,)
    )
    builder = RowBuilder()
    rows = builder.of_answers([(("make it so",), answer)])
    names = builder.tokenizer.convert_ids_to_tokens(rows.ids[0].tolist())
    circle = names.index("small red circle top left")
    square = names.index("large blue square middle right")
    assert (rows.right[0, circle], rows.right[0, square]) == (1, 0)
    assert rows.due[0, square].tolist() == [4, 6, 2]  # a large cyan cross should be there
    cells = (rows.slots[0] >= 0).nonzero().squeeze(1).tolist()
    assert rows.right[0, cells].tolist() == [1, *[IGNORED] * 4, 0, *[IGNORED] * 3]
    assert rows.due[0, cells[5]].tolist() == [4, 6, 2]
    assert rows.due[0, cells[1]].tolist() == [0, 0, 0]
    assert rows.figures[0].tolist() == pytest.approx([0.5, 2 / 3, 2 / 3])
    assert rows.truths[0, 0, 0] == pytest.approx(truth.total)
    assert rows.truths[0, 1].isnan().all()


def test_people_teach_where_nothing_tells_the_truth(tmp_path: Path) -> None:
    """Their pairs give a verdict in both orders, and nothing that helpers could learn."""
    from battles import read_people
    from judge_rows import IGNORED, RowBuilder

    judged_study(tmp_path / "ratings", votes=2)
    battles = read_people(tmp_path / "ratings")
    assert [(battle.source, battle.place, battle.apart) for battle in battles] == [
        ("people", 0, 0.0)
    ] * 2
    rows = RowBuilder().of_battles(battles)
    assert len(set(rows.verdicts.tolist())) == 2
    assert (rows.right == IGNORED).all()
    assert rows.truths.isnan().all()
    assert len(rows.figures) == 0


def test_losses_are_what_their_formulas_say() -> None:
    """Of ranking and order, by hand; neither pulls where there is nothing to learn."""
    import torch
    from judge_losses import order_loss, ranking_loss

    scores = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    expected = (np.log1p(np.exp(-1.0)) + np.log1p(np.exp(3.0))) / 2
    assert ranking_loss(scores, torch.tensor([1.0, 1.0])).item() == pytest.approx(expected)
    assert ranking_loss(scores, torch.zeros(2)).item() == 0.0
    assert order_loss(torch.tensor([1.5, -1.5, 2.0, -1.0])).item() == pytest.approx(0.5)


def test_every_verdict_and_object_is_one_token() -> None:
    """So that verdicts are told apart by one number each, and no text is unknown."""
    from qwen import OBJECTS, VERDICTS, build_tokenizer

    tokenizer = build_tokenizer()
    for text in (*VERDICTS, *OBJECTS, "three shapes :", *JUDGE_PROMPTS["criteria"].headings):
        (token,) = tokenizer(text, add_special_tokens=False).input_ids
        assert token != tokenizer.unk_token_id
        assert tokenizer.decode([token]) == text
    words = tokenizer.tokenize("make the small red circle top left blue")
    assert words == ["make", "the", "small red circle top left", "blue"]


def test_battles_of_the_suite_are_those_of_its_script() -> None:
    """`suites/judge` has what reference/judge_battles.py writes, to the last byte."""
    import judge_battles

    rng = np.random.default_rng((0, 4))
    samples = load_shapes_arena(24, seed=0).samples[:6]
    lines = (SUITE / "battles.jsonl").read_text("utf-8").splitlines()
    for number, (sample, line) in enumerate(zip(samples, lines, strict=False)):
        assert judge_battles.battle_line(sample, rng, seen=number % 2 == 0) == json.loads(line)
