"""soft_tifa_gm and soft_tifa_am over the embedded world: real chains, stores and models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.measures.soft_tifa import spellings
from pytest_cepbench.models.protocols import Piece, VqaQuestion
from pytest_cepbench.models.rule_based.scene_models import ShapesVqa, VqaKnobs
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from tests.suites.world import stage

SCENES = """\
name = "scenes"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 2 }
questions = "metadata"
[chain]
start = "image"
iterations = 2
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
vqa = "shapes:"
"""

FROM_TEXTS = SCENES.replace('"image"\niterations', '"text"\ngenerations')

SUITE = FROM_TEXTS.replace("= 2\n", "= 3\n")

METRICS = "[metrics.soft_tifa_gm]\n[metrics.soft_tifa_am]\n[metrics.failures]\n"


def test_exact_models_meet_every_prompt(tmp_path: Path, store: Store) -> None:
    """All answers about pictures and controls are right, and the report says so."""
    staged = stage(tmp_path / "suite", SUITE + METRICS, store)
    for mean in ("gm", "am"):
        measured = staged.measure(f"overall-soft_tifa_{mean}")
        assert measured.value == 1.0
        assert measured.label == f"Soft-TIFA {mean.upper()}"
        assert any("control questions answered rightly" in note for note in measured.notes)
        assert "count 1.000 (16)" in measured.notes[-1]
        assert len(measured.identity["questions"]) == 16


def test_a_generator_that_loses_things_is_seen(tmp_path: Path, store: Store) -> None:
    """GM is stricter than AM, sample by sample, and both fall with what is lost."""
    values = []
    for number, miss in enumerate(("0.1", "0.5")):
        text = SUITE.replace('generator = "shapes:"', f'generator = "shapes:?miss={miss}"')
        staged = stage(tmp_path / f"suite{number}", text + METRICS, store)
        strict, lenient = (staged.measure(f"overall-soft_tifa_{mean}") for mean in ("gm", "am"))
        for part, scores in strict.scores.items():
            assert all(score <= lenient.scores[part][name] for name, score in scores.items())
        values.append((strict.value, lenient.value))
    assert values[0][0] > values[1][0]
    assert values[0][1] > values[1][1]


ANSWERERS = f"python:{__name__}"


def test_a_sample_without_a_picture_scores_nothing(tmp_path: Path, store: Store) -> None:
    """A black picture is a failure of the generator: 0, and blamed on it."""
    text = SUITE.replace('generator = "shapes:"', 'generator = "shapes:?blank=0.4"')
    measured = stage(tmp_path / "suite", text + METRICS, store).measure("overall-soft_tifa_am")
    scores = np.concatenate([list(part.values()) for part in measured.scores.values()])
    assert set(scores) == {0.0, 1.0}
    stopped = sum(n for what, n in measured.failures.items() if "blank-image" in what)
    assert stopped >= (scores == 0).sum() > 0
    assert not measured.unscored


def test_markup_in_questions_is_shown_as_it_is(tmp_path: Path, store: Store) -> None:
    """A remark holds a hostile question on one line, with what cannot be seen as escapes."""
    samples = load_shapes(samples_per_category=2).samples
    hostile = {
        "question": f"Are there any small cyan crosses in the image? <script>\n\u202e{'x' * 100}",
        "kind": "object",
    }
    lines = [{"sample": s.id, "id": "any", "answer": "yes", **hostile} for s in samples]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    text = SUITE.replace('"metadata"', '"questions.jsonl"')
    staged = stage(tmp_path, text + "[metrics.soft_tifa_gm]\ncontrols = 0\n", store)
    excerpt = staged.run.measures["soft_tifa_gm"].show(
        staged.cases["overall-soft_tifa_gm"],
        staged.run.dataset.samples[0].id,
        staged.run.data,
    )
    assert excerpt is not None
    assert "Are there any" in excerpt.remark
    assert "\n" not in excerpt.remark
    assert "\u202e" not in excerpt.remark
    assert len(excerpt.remark) < 500


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("generation = 0", "generation = 0: 1 to 3 is expected"),
        ("generation = 4", "generation = 4: 1 to 3 is expected"),
        ('prompt = "answer"', "prompt = 'answer' does not hold {question}"),
        ("controls = 5", "controls = 5: 0 to 4 are expected"),
        ("least_control = 1.1", "least_control = 1.1: over 0.5"),
        ("controls = 0\nleast_control = 0.9", "least_control = 0.9: with controls = 0 none are"),
        ('start = "image"', "there are no image-first chains"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    tmp_path: Path, store: Store, settings: str, message: str
) -> None:
    """One line with suite, metric and setting."""
    with pytest.raises(SuiteError, match=message):
        stage(tmp_path / "suite", f"{SUITE}[metrics.soft_tifa_gm]\n{settings}\n", store)


def test_data_without_questions_says_where_they_come_from(tmp_path: Path, store: Store) -> None:
    """The sentence names the key."""
    text = SUITE.replace('questions = "metadata"\n', "")
    staged = stage(tmp_path / "suite", text + METRICS, store)
    with pytest.raises(MeasurementError, match=r"has no questions .*\[data\] questions = FILE"):
        staged.measure("overall-soft_tifa_gm")


@pytest.mark.parametrize("start", ["text", "image"])
def test_any_artifact_can_be_asked_about(tmp_path: Path, store: Store, start: str) -> None:
    """Texts too: the description of a drawing, and the drawing of an image's description."""
    text = SUITE.replace('start = "text"', f'start = "{start}"')
    for generation in (1, 2, 3):
        metric = f"[metrics.soft_tifa_am]\ngeneration = {generation}\n"
        staged = stage(tmp_path / f"{start}{generation}", text + metric, store)
        assert staged.measure("overall-soft_tifa_am").value == 1.0


@pytest.mark.parametrize(
    ("answer", "forms"),
    [
        ("Yes", {"Yes", "yes"}),
        ("four", {"four", "Four", "4"}),
        ("4", {"4", "four", "Four"}),
        ("Light Blue", {"Light Blue", "light blue", "Light blue"}),
        ("\u0664", {"\u0664"}),
    ],
)
def test_answers_are_looked_for_in_every_spelling(answer: str, forms: set[str]) -> None:
    """Those of the released code, but for spaces before them."""
    assert set(spellings(answer)) == forms


# -- whether the VQA model can be believed ---------------------------------------------------------


def _by(model: str, text: str = SCENES) -> str:
    return text.replace('vqa = "shapes:"', f'vqa = "{model}"')


CONTROLLED = "[metrics.soft_tifa_am]\n"

YES = "shapes:?yes=1"


@pytest.mark.parametrize("suite", [SCENES, FROM_TEXTS], ids=["images", "texts"])
@pytest.mark.parametrize(
    ("model", "shares"),
    [
        (YES, r"\d+ of \d+ about what is present .* and 0 of \d+ about what is absent"),
        ("shapes:?yes=0.7", r"and 0 of \d+ about what is absent"),
        (f"{ANSWERERS}:says_no", r"0 of \d+ about what is present"),
        (f"{ANSWERERS}:noisy?wrong=0.5", r"\d+ of \d+ about what is present .*--vqa=SPEC"),
        (f"{ANSWERERS}:always?p=0.5", r"0 of \d+ about what is present .* and 0 of"),
        (f"{ANSWERERS}:always?p=0.9", r"both to yes and to no, in (\d+) of \1 control"),
    ],
)
def test_a_model_that_says_the_same_to_all_measures_nothing(
    tmp_path: Path, store: Store, model: str, shares: str, suite: str
) -> None:
    """Yes to all would be perfect facts, no to all lost ones, one half neither: all are errors. So
    is a model to which any answer is likely: it answers all questions rightly, whatever is shown.
    """
    few = "" if "both" in shares else "too few control .* rightly: .*"
    staged = stage(tmp_path / "suite", _by(model, suite) + CONTROLLED, store)
    for part in ("overall", "crowded"):
        with pytest.raises(MeasurementError, match=few + shares):
            staged.measure(f"{part}-soft_tifa_am")


def test_a_usable_model_is_measured_whatever_the_group(tmp_path: Path, store: Store) -> None:
    """Right three times of four, it is judged by the starts of the whole suite in every case."""
    text = _by(f"{ANSWERERS}:noisy", SCENES.replace("category = 2", "category = 3"))
    staged = stage(tmp_path / "suite", text + CONTROLLED, store)
    notes = {staged.measure(case).notes[0].partition(";")[0] for case in staged.cases}
    assert len(staged.cases) == 9
    assert len(notes) == 1
    shares = re.findall(r"\((\d+)\.\d%\)", notes.pop())
    assert all(68 <= int(share) <= 82 for share in shares)
    assert len(shares) == 2
    # Its answers are judged as they are; in the score, what hangs on a failed one has failed too.
    assert staged.measure("overall-soft_tifa_am").value < 0.65


@pytest.mark.parametrize("suite", [SCENES, SUITE], ids=["images", "texts"])
def test_a_collapse_is_measured_and_not_blamed_on_the_model(
    tmp_path: Path, store: Store, suite: str
) -> None:
    """What chains end in may show what controls ask about: a note, with all the tables."""
    text = suite.replace('describer = "shapes:"', 'describer = "shapes:?collapse=0.5"')
    staged = stage(tmp_path / "suite", f"{text}{CONTROLLED}generation = 3\n", store)
    for part in ("overall", "crowded"):
        measured = staged.measure(f"{part}-soft_tifa_am")
        assert 0 < measured.value < 0.9
        known, _, later = measured.notes[0].partition("; ")
        assert known.count("(100.0%)") == 2
        assert later.startswith("of what models made, which may show it by now: d")
    assert "(100.0%)" not in staged.measure("overall-soft_tifa_am").notes[0].partition("; ")[2]


def test_yes_to_what_no_start_shows_is_refused(tmp_path: Path, store: Store) -> None:
    """Starts that are texts say nothing of pictures: there controls about drawings decide. Where
    starts are pictures, and answered rightly, drawings may show what is asked for.
    """
    text = _by(f"{ANSWERERS}:yes_to_pictures", FROM_TEXTS)
    staged = stage(tmp_path / "suite", text + CONTROLLED, store)
    with pytest.raises(MeasurementError, match=r"rightly: 0 of \d+ .* in drawings, where at least"):
        staged.measure("overall-soft_tifa_am")
    text = _by(f"{ANSWERERS}:yes_to_pictures?knows=starts") + CONTROLLED
    told = stage(tmp_path / "told", text.replace("shapes:", "shapes:?collapse=1", 1), store)
    assert "drawings 0 of " in told.measure("overall-soft_tifa_am").notes[0]


ONE_DRAWING = FROM_TEXTS.replace("= 2\n", "= 1\n")

DRAWS = RoleChoices(model="shapes:", role="generator")


def test_a_model_that_reads_no_texts_is_judged_by_drawings(tmp_path: Path, store: Store) -> None:
    """No start can be asked about in chains from texts: the note says what decides instead."""
    seeing, blind = (
        stage(tmp_path / name, _by(model, ONE_DRAWING) + CONTROLLED, store, DRAWS)
        for name, model in (
            ("seeing", f"{ANSWERERS}:looks_only"),
            ("blind", f"{ANSWERERS}:looks_only?says=yes"),
        )
    )
    measured = seeing.measure("overall-soft_tifa_am")
    assert measured.value == 1.0
    assert measured.notes[0].startswith("control questions answered rightly: of what models made")
    with pytest.raises(MeasurementError, match="in drawings, where at least 60% is expected"):
        blind.measure("overall-soft_tifa_am")


def test_without_controls_the_note_says_what_is_not_known(tmp_path: Path, store: Store) -> None:
    """The user asked for it: yes to all is measured, and no start is asked about."""
    staged = stage(tmp_path / "suite", _by(YES) + CONTROLLED + "controls = 0\n", store)
    measured = staged.measure("overall-soft_tifa_am")
    assert measured.notes[0].startswith("no control questions were asked: a model that says yes")
    required = staged.run.measures["soft_tifa_am"].required_features(None)
    assert all(0 not in features.generations for features in required)


# -- VQA models of the shapes world with faults, as a user writes them -----------------------------

Answer = Callable[[Piece, VqaQuestion, float], float]
"""What is shown, what is asked, the exact model's answer -> the probability of the right answer."""


@dataclass(frozen=True)
class Answerer:
    """A VQA model that makes its answers of the exact model's.

    reads: whether it can be asked about texts.
    """

    fingerprint: str
    answer_of: Answer
    reads: bool = True

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[list[float] | Failure]:
        """A probability for every question."""
        exact: Any = ShapesVqa(VqaKnobs()).answer(pieces, questions)
        return [
            Failure("refused", "texts are not for me")
            if isinstance(piece, str) and not self.reads
            else [self.answer_of(piece, q, right) for q, right in zip(asked, own, strict=True)]
            for piece, asked, own in zip(pieces, questions, exact, strict=True)
        ]


def _wants(question: VqaQuestion, word: str) -> float:
    return float(word in question.answers)


def says_no() -> Answerer:
    """No to all."""
    return Answerer("says no/1", lambda _, question, __: _wants(question, "no"))


def always(p: str) -> Answerer:
    """One probability of every answer that is looked for."""
    return Answerer(f"always/1/{p}", lambda *_: float(p))


def noisy(wrong: str = "0.25") -> Answerer:
    """Wrong about a share of all pairs of an artifact and a question."""

    def answer(piece: Piece, question: VqaQuestion, right: float) -> float:
        shown = piece if isinstance(piece, str) else piece.tobytes().hex()
        drawn = int(digest_json([shown, question.text])[:8], 16) / 16**8
        return 1.0 - right if drawn < float(wrong) else right

    return Answerer(f"noisy/1/{wrong}", answer)


def yes_to_pictures(knows: str = "") -> Answerer:
    """Exact about texts, and starts where it knows them; of every other picture it says yes."""
    samples = load_shapes(samples_per_category=2).samples if knows else ()
    starts = {load_seed_image(sample).to_pil().tobytes() for sample in samples}

    def answer(piece: Piece, question: VqaQuestion, right: float) -> float:
        known = isinstance(piece, str) or piece.tobytes() in starts
        return right if known else _wants(question, "yes")

    return Answerer(f"yes to pictures/1/{knows}", answer)


def looks_only(says: str = "") -> Answerer:
    """One that cannot be asked about texts. says: to every picture; what it shows if empty."""
    return Answerer(
        f"looks only/1/{says}",
        lambda _, question, right: _wants(question, says) if says else right,
        reads=False,
    )
