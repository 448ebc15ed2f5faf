"""The rule-based models: exact, or wrong at known rates."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure, ImageArtifact
from pytest_cepbench.artifacts.outcome import CRITERIA, WINNERS, CriteriaScores, Winner
from pytest_cepbench.chains import ChainPlan, RoleRunner
from pytest_cepbench.chains.answers.answer_plan import parts_of
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import (
    Degradation,
    caption,
    degrade_scene,
    features,
    load_shapes,
    parse_caption,
    render,
)
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena, score_answer, solve_sample
from pytest_cepbench.datasets.shapes.scene import SHAPES
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.binding import detect
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    AnswerStep,
    Battle,
    Piece,
    Question,
    RoleName,
    StepLimit,
    VqaQuestion,
)
from pytest_cepbench.models.rule_based.scene_models import ShapesVqa, VqaKnobs
from pytest_cepbench.models.spec import SCHEMES, parse_spec
from pytest_cepbench.store import Store
from tests.chains.roles import RunnerSet, grow_and_trace
from tests.models.binding import bind_text

FREE = StepLimit()

SAMPLES = load_shapes_arena(4).samples

MIRRORED = dict(zip(WINNERS, reversed(WINNERS), strict=True))

Answer = Sequence[AnswerStep]


def load(spec: str, role: RoleName) -> Any:
    """The model of a spec, as a user's would be."""
    return bind_text(spec, role).load()


def asked(sample: Sample) -> Question:
    """A sample's question, with Pillow images."""
    return [piece if isinstance(piece, str) else piece.load().to_pil() for piece in sample.question]


def answer_all(
    spec: str, samples: Sequence[Sample], tag: str = "", limit: StepLimit = FREE
) -> list[Answer]:
    """The answers of an interleaver; the tag decides the seeds."""
    interleaver = load(spec, "interleaver")
    seeds = [zlib.crc32(f"{tag} {sample.id}".encode()) for sample in samples]
    replies = interleaver.interleave(
        [asked(sample) for sample in samples], [limit] * len(samples), seeds
    )
    return [cast("Answer", reply) for reply in replies]


def pieces(answer: Answer) -> list[Piece]:
    """Texts and images of an answer in reading order, as a judge gets them."""
    parts: list[Piece] = []
    for step in answer:
        parts += [step.text] if step.text else []
        parts += [] if step.image is None else [Image.fromarray(np.asarray(step.image))]
    return parts


def contents(answer: Answer) -> list[tuple[str, bytes | None]]:
    """Texts and pixels of an answer."""
    return [
        (step.text, None if step.image is None else np.asarray(step.image).tobytes())
        for step in answer
    ]


def test_a_perfect_interleaver_has_the_whole_truth() -> None:
    """Every sample of every category is answered without a mistake."""
    for sample, answer in zip(SAMPLES, answer_all("shapes:", SAMPLES), strict=True):
        steps = [(step.text, ImageArtifact(np.asarray(step.image))) for step in answer]
        assert score_answer(solve_sample(sample), steps).total == pytest.approx(1.0), sample.id


@pytest.mark.parametrize("spec", ["shapes:", "shapes:?miss=.2&drift=.5&no_image=.2&stop=.2"])
def test_an_answer_is_the_same_in_a_batch_of_one_and_of_eight(spec: str) -> None:
    """Question, limit and seed of an answer decide it; its neighbors do not."""
    interleaver, writer = load(spec, "interleaver"), load("shapes:?miss=.2&stop=.2", "writer")
    questions = [asked(sample) for sample in SAMPLES[::5]]
    seeds = list(range(len(questions)))
    limits = [StepLimit(told=k % 3 + 1) for k in seeds]
    together = interleaver.interleave(questions, limits, seeds)
    texts = writer.write(questions, "", seeds)
    for question, limit, seed, answer, text in zip(
        questions, limits, seeds, together, texts, strict=True
    ):
        (alone,) = interleaver.interleave([question], [limit], [seed])
        assert contents(alone) == contents(answer)
        assert writer.write([question], "", [seed]) == [text]
    assert len(questions) == 8


@pytest.mark.parametrize(("told", "most"), [(2, 10), (None, 2), (7, 3), (10, 10), (1, 10)])
def test_limits_hold_whatever_the_knobs(told: int | None, most: int) -> None:
    """A told number is answered with, surplus steps apart, and the most is never exceeded."""
    samples = SAMPLES[::3]
    for answer in answer_all("shapes:", samples, limit=StepLimit(told, most)):
        assert len(answer) == min(told, most) if told is not None else len(answer) <= most
    for answer in answer_all("shapes:?surplus=1", samples, limit=StepLimit(told, most)):
        assert len(answer) <= most
        assert told is None or len(answer) == min(told + 1, most)


def test_the_writer_writes_what_the_interleaver_writes() -> None:
    """The same captions from the same seed, one part for each step."""
    knobs = "recolor=.2&no_text=.2&stop=.1&surplus=.3"
    writer = load(f"shapes:?{knobs}", "writer")
    seeds = [zlib.crc32(f" {sample.id}".encode()) for sample in SAMPLES]
    texts = writer.write([asked(sample) for sample in SAMPLES], "any prompt", seeds)
    for text, answer in zip(texts, answer_all(f"shapes:?{knobs}", SAMPLES), strict=True):
        parts, _ = parts_of(cast("str", text), StepLimit())  # as a pipeline cuts them
        assert [part for part, _ in parts] == [step.text for step in answer if step.text]


@pytest.mark.parametrize("role", ["interleaver", "writer", "judge"])
def test_a_question_of_another_world_is_a_failure_of_its_own(role: RoleName) -> None:
    """It has a reason, and the other questions of the batch are answered."""
    model, foreign = load("shapes:", role), ["what is the weather like ?"]
    questions = [asked(SAMPLES[0]), foreign]
    if role == "judge":
        results = model.judge([Battle(question, ["a"], ["b"]) for question in questions], [0, 0])
    elif role == "writer":
        results = model.write(questions, "", [0, 0])
    else:
        results = model.interleave(questions, [StepLimit()] * 2, [0, 0])
    assert not isinstance(results[0], Failure)
    assert isinstance(results[1], Failure)
    assert results[1].kind == ("no-verdict" if role == "judge" else "refused")
    assert "'what is the weather like ?' is no question of the arena" in results[1].detail
    if role == "judge":
        answers = [AnsweredQuestion(question, ["no shapes"]) for question in questions]
        fine, failed = model.score_answers(answers, [0, 0])
        assert (failed.kind, fine.failures) == ("no-score", [])


def rated(spec: str, winner: Winner, number: int) -> Counter[str]:
    """Verdicts of a judge over many seeds on a battle whose exact verdict is the given one."""
    sample = next(s for s in SAMPLES if s.categories == ("restore",))
    question, solution = asked(sample), solve_sample(sample)
    right = [AnswerStep(caption(scene), render(scene, 3).pixels) for scene in solution.scenes]
    # One misspelled text costs quality alone, less than the margin.
    nearly = [AnswerStep(f"{right[0].text} !", right[0].image), *right[1:]]
    worse = nearly if winner.startswith("Tie") else right[:1]
    first, second = (right, worse) if winner in ("A", "Tie(A)") else (worse, right)
    battle = Battle(question, pieces(first), pieces(second))
    judge = load(spec, "judge")
    return Counter(cast("Sequence[str]", judge.judge([battle] * number, range(number))))


@pytest.mark.parametrize(
    ("knob", "turned"),
    [
        ("flip", {"A": "B", "Tie(A)": "Tie(B)", "Tie(B)": "Tie(A)", "B": "A"}),
        ("first", {"A": "A", "Tie(A)": "A", "Tie(B)": "Tie(A)", "B": "Tie(B)"}),
        ("tie", {"A": "Tie(A)", "Tie(A)": "Tie(A)", "Tie(B)": "Tie(B)", "B": "Tie(B)"}),
    ],
)
@pytest.mark.parametrize("winner", WINNERS)
def test_a_judge_errs_at_its_rate_and_in_its_way(
    knob: str, turned: dict[Winner, Winner], winner: Winner
) -> None:
    """The share of changed verdicts is the knob's value, and each is changed as documented; of an
    exact judge clear leads win, and small ones are ties that lean to the better answer.
    """
    assert rated("shapes:", winner, 3) == {winner: 3}
    number, rate = 120, 0.3
    verdicts = rated(f"shapes:?{knob}={rate}", winner, number)
    assert set(verdicts) <= {winner, turned[winner]}
    if turned[winner] != winner:
        error = math.sqrt(rate * (1 - rate) / number)
        assert verdicts[turned[winner]] / number == pytest.approx(rate, abs=4 * error)


@pytest.mark.slow
def test_the_order_of_two_answers_does_not_matter_to_an_exact_judge() -> None:
    """The verdict on the exchanged battle is the mirrored one, ties included."""
    judge = load("shapes:", "judge")
    spec = "shapes:?miss=.1&no_image=.1&no_text=.1&stop=.1"
    answers = [answer_all(spec, SAMPLES, tag) for tag in ("x", "y")]
    exact = [answer_all("shapes:", SAMPLES, tag) for tag in ("x", "y")]
    for one, other in (answers, exact):
        battles = [
            (asked(sample), pieces(a), pieces(b))
            for sample, a, b in zip(SAMPLES, one, other, strict=True)
        ]
        seeds = range(len(battles))
        forth = judge.judge([Battle(q, a, b) for q, a, b in battles], seeds)
        back = judge.judge([Battle(q, b, a) for q, a, b in battles], seeds)
        different = [index for index, (_, a, b) in enumerate(battles) if a and b]
        assert [MIRRORED[cast("Winner", forth[index])] for index in different] == [
            back[index] for index in different
        ]


@pytest.mark.slow
def test_equal_truth_leans_to_either_answer_equally_often() -> None:
    """Two perfect answers in different jitter: never always to the first one."""
    judge = load("shapes:", "judge")
    samples = load_shapes_arena(12).samples
    first, second = (answer_all("shapes:", samples, tag) for tag in ("x", "y"))
    verdicts = Counter(
        judge.judge(
            [
                Battle(asked(sample), pieces(a), pieces(b))
                for sample, a, b in zip(samples, first, second, strict=True)
            ],
            [0] * len(samples),
        )
    )
    assert set(verdicts) == {"Tie(A)", "Tie(B)"}
    error = 0.5 / math.sqrt(len(samples))
    assert verdicts["Tie(A)"] / len(samples) == pytest.approx(0.5, abs=4 * error)
    same = judge.judge(
        [Battle(asked(s), pieces(a), pieces(a)) for s, a in zip(samples, first, strict=True)],
        [0] * len(samples),
    )
    assert Counter(same).keys() == {"Tie(A)", "Tie(B)"}


def test_two_captions_in_a_row_are_two_steps_to_a_judge() -> None:
    """A step without an image is not taken for a part of the next one."""
    sample = next(s for s in SAMPLES if s.categories == ("move",))
    (right,) = answer_all("shapes:", [sample])
    two_steps, single_step = [right[0].text, *pieces(right[1:])], pieces(right[:1])
    battles = [Battle(asked(sample), two_steps, single_step)]
    assert load("shapes:", "judge").judge(battles, [0]) == ["B"]


def test_the_faults_of_a_seed_stay_what_they_are() -> None:
    """Results are stored under seed and knobs: other draws would be another judge's answers."""
    answers = answer_all("shapes:?surplus=1&miss=0.3", SAMPLES[:2])
    shown = [
        AnsweredQuestion(asked(sample), pieces(answer))
        for sample, answer in zip(SAMPLES[:2], answers, strict=True)
    ]
    for spec, expected in (
        ("shapes:", [6, 8, 10, 10, 10, 10, 10, 4, 9, 10, 10, 10, 10, 10]),
        ("shapes:?flip=0.3", [6, 8, 10, 10, 0, 10, 10, 6, 9, 10, 10, 10, 10, 10]),
    ):
        scores: list[CriteriaScores] = load(spec, "judge").score_answers(shown, [0, 0])
        assert [own.value(name) for own in scores for name in CRITERIA] == expected
    first, (second,) = answers[0], answer_all("shapes:?miss=0.3", SAMPLES[:1])
    battle = Battle(asked(SAMPLES[0]), pieces(first), pieces(second))
    judge = load("shapes:?flip=0.3&tie=0.3&first=0.3", "judge")
    assert " ".join(judge.judge([battle] * 12, list(range(12)))) == (
        "Tie(B) B A Tie(B) Tie(B) Tie(B) B Tie(B) Tie(B) B B B"
    )


# -- scenes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Some samples of each category of the default data set."""
    return load_shapes().limited(4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["miss", "recolor", "reshape", "resize", "move", "swap", "blank"])
def test_every_knob_lowers_gc_at_3(name: str, dataset: Dataset, store: Store) -> None:
    """From 1 of perfect models, the mean over some samples of each category falls strictly."""
    generator, encoder = (
        RoleRunner(bind_text("shapes:", role), store) for role in ("generator", "encoder")
    )
    plan, scores = ChainPlan("image", 6, "Describe it.", "{description}"), []
    for spec in ("shapes:", *(f"shapes:?{name}={level}" for level in (0.05, 0.1, 0.2, 0.4))):
        describer = RoleRunner(bind_text(spec, "describer"), store)
        runners = RunnerSet(describer, generator, encoder, store)
        traces = grow_and_trace(plan, dataset.samples, runners)
        similarities = np.array([own.similarities for own in traces])
        scores.append(float((similarities @ [1, 2, 3]).mean() / 6))
    assert scores[0] == pytest.approx(1.0, abs=1e-6)
    assert (np.diff(scores) < -0.001).all(), scores


def test_the_roles_know_one_scene(dataset: Dataset) -> None:
    """Text-image similarity of a matching pair is 1, and that of others is low on average. With the
    same seed a describer says, and a generator draws, the same distorted scene.
    """
    encoder = load("shapes:", "encoder")
    texts = [sample.text or "" for sample in dataset.samples]
    images = [load_seed_image(sample).to_pil() for sample in dataset.samples]
    shown, said = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (encoder.encode_images(images), encoder.encode_texts(texts))
    )
    table = shown @ said.T
    assert np.diag(table) == pytest.approx(np.ones(len(table)), abs=1e-9)
    assert (table.sum() - np.trace(table)) / (table.size - len(table)) < 0.2

    spec = "shapes:?miss=0.2&recolor=0.3&reshape=0.3&resize=0.3&move=0.3&swap=0.5"
    describer = load(spec, "describer")
    generator = load(spec, "generator")
    knobs = Degradation(miss=0.2, recolor=0.3, reshape=0.3, resize=0.3, move=0.3, swap=0.5)
    seeds = list(range(len(dataset.samples)))
    expected = [
        degrade_scene(parse_caption(text), knobs, seed)
        for text, seed in zip(texts, seeds, strict=True)
    ]
    assert list(describer.describe(images, "", seeds)) == [caption(scene) for scene in expected]
    drawn = [Image.fromarray(np.asarray(image)) for image in generator.generate(texts, seeds)]
    wanted = np.array([features(scene) for scene in expected])
    assert np.array_equal(encoder.encode_images(drawn), wanted)


def test_the_scene_of_nothing_is_no_failure() -> None:
    """Having lost all objects is an answer: said in words, drawn as a ground that is not black."""
    describer = load("shapes:?miss=1", "describer")
    generator = load("shapes:?miss=1", "generator")
    scene = parse_caption("small red circle top left")
    assert list(describer.describe([render(scene, 0).to_pil()], "", [0])) == ["no shapes"]
    (image,) = generator.generate([caption(scene)], [0])
    assert np.asarray(image).min() > 0


def test_the_detector_finds_what_was_drawn(dataset: Dataset) -> None:
    """The shapes that are asked for, with their colors, sure of each; the center of each box lies
    in the cell that the caption names.

    A wrong question is the caller's mistake, found also where the image shows nothing.
    """
    detector = load("shapes:", "detector")
    with pytest.raises(RoleError, match=r"unknown shape .*Known: circle, cross, square, triangle"):
        detector.detect([Image.new("RGB", (64, 64))], [["cross", "red circle"]])
    images = [load_seed_image(sample).to_pil().resize((192, 192)) for sample in dataset.samples]
    queries = [
        (["circle", "cross"], ["triangle", "square"], SHAPES)[i % 3] for i in range(len(images))
    ]
    for sample, wanted, detections in zip(
        dataset.samples, queries, detector.detect(images, queries), strict=True
    ):
        assert isinstance(detections, Detections)
        drawn = parse_caption(sample.text or "").objects
        places = [(own.box[0] + own.box[2], own.box[1] + own.box[3]) for own in detections.found]
        actual = [
            (own.query, own.color, own.score, int(y // 128) * 3 + int(x // 128))
            for own, (x, y) in zip(detections.found, places, strict=True)
        ]
        assert actual == [(o.shape, o.color, 1.0, o.cell) for o in drawn if o.shape in wanted]


def test_what_the_world_has_not_is_refused() -> None:
    """The message says what was typed and what could be."""
    with pytest.raises(SpecError, match="nothing but knobs can follow 'shapes:', got 'large'"):
        bind_text("shapes:large", "describer")
    with pytest.raises(RoleError, match=r"the shapes world has no editor; it has describer, .*"):
        bind_text("shapes:", "editor")
    assert detect(parse_spec("shapes:?miss=0.1")).roles == SCHEMES["shapes"].roles


CAPTION = "two shapes : large red circle top left , small blue square bottom right"

PICTURE = render(parse_caption(CAPTION), 3).to_pil()

RED = VqaQuestion("Is the circle red? Answer in one word.", ("Yes", "yes"))

BLUE = VqaQuestion("Is the circle blue?", ("Yes", "yes"))

COUNT = VqaQuestion("How many shapes are in the image?", ("two", "Two", "2"))


def test_pictures_and_texts_are_answered_alike() -> None:
    """Exactly: 1 for the answer that is right, else 0. No answer is made up for another world."""
    asked = [RED, BLUE, COUNT]
    model = ShapesVqa(VqaKnobs())
    *answers, foreign = model.answer(
        [PICTURE, CAPTION, PICTURE], [asked, asked, [RED, VqaQuestion("Why?", ("Yes",))]]
    )
    assert answers == [[1.0, 0.0, 1.0]] * 2
    assert isinstance(foreign, Failure)
    assert foreign.kind == "refused"


@given(st.floats(0, 1), st.floats(0, 1))
def test_knobs_take_known_amounts(yes: float, doubt: float) -> None:
    """A share of every answer is yes whatever is shown, and a share of all goes to nothing."""
    (answers,) = ShapesVqa(VqaKnobs(yes, doubt)).answer([PICTURE], [[RED, BLUE, COUNT]])
    assert answers == pytest.approx(
        [1 - doubt, yes * (1 - doubt), (1 - yes) * (1 - doubt)], abs=1e-12
    )
