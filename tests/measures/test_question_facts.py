"""Facts that questions ask for: checked by a VQA model and by a detector, along chains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.datasets.questions import questions_of
from pytest_cepbench.datasets.shapes import parse_caption, parse_image
from pytest_cepbench.datasets.shapes.questions import answer_question
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from tests.suites.world import TASKS, Staged, stage, uneven_tasks

ASKED = (
    TASKS.replace('uneven_tasks"', 'uneven_tasks"\nquestions = "metadata"') + 'vqa = "shapes:"\n'
)

BY_MODEL = '[metrics.facts]\nfacts = "questions"\ntexts = "vqa"\npictures = "vqa"\n'

BY_DETECTOR = """\
[metrics.facts]
facts = "geneval"
texts = "vqa"
pictures = "detector"
colors = "detector"
[metrics.geneval]
colors = "detector"
"""


def _share_right(staged: Staged) -> dict[str, float]:
    """The mean share of right answers over kinds and generations, read from the chains here."""
    data = staged.run.chain_data
    shares = {}
    for name, chain in data.chains("text", data.dataset.samples).items():
        questions = questions_of(chain.sample)
        places = {question.id: place for place, question in enumerate(questions)}
        columns = []
        for link in chain.links[1:]:
            if link.text is not None:
                scene = parse_caption(link.text)
            else:
                image = data.store.get_image(link.digest)
                assert image is not None
                scene = parse_image(image)
            right: list[bool] = []
            for question in questions:
                held = all(right[places[parent]] for parent in question.depends_on)
                right.append(held and answer_question(scene, question.text) == question.answer)
            kinds = sorted({question.kind for question in questions})
            columns.append(
                np.mean(
                    [
                        np.mean([r for r, q in zip(right, questions, strict=True) if q.kind == k])
                        for k in kinds
                    ]
                )
            )
        shares[name] = float(np.mean(columns))
    return shares


def test_a_vqa_model_checks_texts_and_pictures(tmp_path: Path, store: Store) -> None:
    """The score is the recall of the questions' facts, as the world's own rules see them."""
    staged = stage(tmp_path / "suite", ASKED + BY_MODEL, store)
    measured = staged.measure("overall-facts")
    scores = {name: score for part in measured.scores.values() for name, score in part.items()}
    assert measured.label == "facts recall"
    assert scores == pytest.approx(_share_right(staged), abs=1e-6)
    assert 0.2 < np.mean([*scores.values()]) < 0.95
    assert any("checkers can be asked" in note for note in measured.notes)


def test_a_detector_checks_pictures_by_the_rules_of_geneval(tmp_path: Path, store: Store) -> None:
    """Where all facts of the first picture hold its prompt is met, in this world of plain rules."""
    staged = stage(tmp_path / "suite", ASKED + BY_DETECTOR, store)
    facts, right = staged.measure("overall-facts"), staged.measure("overall-geneval")
    assert facts.curve[0] >= right.value
    perfect = ASKED.replace("?miss=0.3&recolor=0.2", "").replace("?move=0.2", "")
    whole = stage(tmp_path / "perfect", perfect + BY_DETECTOR, store)
    assert whole.measure("overall-facts").value == pytest.approx(1.0)


ANSWERERS = "python:tests.measures.answerers"

SCENES = """\
name = "scenes"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 3 }
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


def _by(model: str, text: str = SCENES) -> str:
    return text.replace('vqa = "shapes:"', f'vqa = "{model}"')


FROM_TEXTS = SCENES.replace('"image"\niterations', '"text"\ngenerations')


YES, NO, HALF = "shapes:?yes=1", f"{ANSWERERS}:says_no", f"{ANSWERERS}:half"


@pytest.mark.parametrize("suite", [SCENES, FROM_TEXTS], ids=["images", "texts"])
@pytest.mark.parametrize(
    ("model", "shares"),
    [
        (YES, r"\d+ of \d+ about what is present .* and 0 of \d+ about what is absent"),
        ("shapes:?yes=0.7", r"and 0 of \d+ about what is absent"),
        (NO, r"0 of \d+ about what is present"),
        (HALF, r"0 of \d+ about what is present .* and 0 of"),
    ],
)
def test_a_model_that_says_the_same_to_all_measures_nothing(
    tmp_path: Path, store: Store, model: str, shares: str, suite: str
) -> None:
    """Yes to all would be perfect facts, no to all lost ones, one half neither: all are errors."""
    staged = stage(tmp_path / "suite", _by(model, suite) + BY_MODEL, store)
    for part in ("overall", "crowded"):
        with pytest.raises(MeasurementError, match=rf"too few control .* rightly: .*{shares}"):
            staged.measure(f"{part}-facts")


def test_a_usable_model_is_measured_whatever_the_group(tmp_path: Path, store: Store) -> None:
    """Right three times of four, it is judged by the starts of the whole suite in every case."""
    staged = stage(tmp_path / "suite", _by(f"{ANSWERERS}:noisy") + BY_MODEL, store)
    notes = {
        staged.measure(case).notes[0].partition(";")[0] for case in staged.cases if "facts" in case
    }
    assert len(staged.cases) == 9
    assert len(notes) == 1
    shares = re.findall(r"\((\d+)\.\d%\)", notes.pop())
    assert all(68 <= int(share) <= 82 for share in shares)
    assert len(shares) == 2


@pytest.mark.parametrize(
    "suite", [SCENES, FROM_TEXTS.replace("= 2\n", "= 4\n")], ids=["images", "texts"]
)
def test_a_collapse_is_measured_and_not_blamed_on_the_model(
    tmp_path: Path, store: Store, suite: str
) -> None:
    """What chains end in may show what controls ask about: a note, with all the tables."""
    text = suite.replace('describer = "shapes:"', 'describer = "shapes:?collapse=0.5"')
    staged = stage(tmp_path / "suite", text + BY_MODEL, store)
    for part in ("overall", "crowded"):
        measured = staged.measure(f"{part}-facts")
        assert 0 < measured.value < 0.9
        known, _, later = measured.notes[0].partition("; ")
        assert known.count("(100.0%)") == 2
        assert later.startswith("of what models made, which may show it by now: d")
        assert measured.facts is not None
        assert measured.facts.every.half_life is not None
    assert "(100.0%)" not in staged.measure("overall-facts").notes[0].partition("; ")[2]


def test_yes_to_what_no_start_shows_is_refused(tmp_path: Path, store: Store) -> None:
    """Starts that are texts say nothing of pictures: there controls about drawings decide."""
    text = _by(f"{ANSWERERS}:yes_to_pictures", FROM_TEXTS)
    staged = stage(tmp_path / "suite", text + BY_MODEL, store)
    with pytest.raises(MeasurementError, match=r"rightly: 0 of \d+ .* in drawings, where at least"):
        staged.measure("overall-facts")


ONE_DRAWING = FROM_TEXTS.replace("= 2\n", "= 1\n")

DRAWS = RoleChoices(model="shapes:", role="generator")


def test_a_model_that_reads_no_texts_is_judged_by_drawings(tmp_path: Path, store: Store) -> None:
    """No start can be asked about in chains from texts: the note says what decides instead."""
    seeing, blind = (
        stage(tmp_path / name, _by(model, ONE_DRAWING) + "[metrics.soft_tifa_am]\n", store, DRAWS)
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
    staged = stage(tmp_path / "suite", _by(YES) + BY_MODEL + "controls = 0\n", store)
    measured = staged.measure("overall-facts")
    assert measured.notes[0].startswith("no control questions were asked: a model that says yes")
    required = staged.run.measures["facts"].required_features(None)
    assert all(0 not in features.generations for features in required)


def test_a_fact_without_a_question_is_named(tmp_path: Path, store: Store) -> None:
    """Facts of GenEval's metadata are asked in its own words: other questions ask for others."""
    text = ASKED.replace('"metadata"', '"q.jsonl"') + BY_MODEL.replace('"questions"', '"geneval"')
    question = {
        "id": "a",
        "question": "Is there a circle in the image?",
        "kind": "object",
        "answer": "yes",
    }
    lines = [json.dumps({"sample": sample.id, **question}) for sample in uneven_tasks().samples]
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "q.jsonl").write_text("\n".join(lines))
    staged = stage(tmp_path / "suite", text, store)
    with pytest.raises(
        MeasurementError, match=r"no question that asks for its fact .*\"metadata\""
    ):
        staged.measure("overall-facts")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('facts = "questions"', 'texts = "scene" cannot check facts = "questions": give "vqa"'),
        ('texts = "vqa"', 'texts = "vqa" cannot check facts = "scene": give "scene"'),
        (
            'facts = "geneval"\ntexts = "vqa"',
            'pictures = "scene" cannot check facts = "geneval": give "vqa" or "detector"',
        ),
        ('facts = "geneval"\ntexts = "vqa"\npictures = "vqa"', "is none of GenEval's form"),
    ],
)
def test_what_does_not_go_together_is_refused_at_once(
    tmp_path: Path, store: Store, settings: str, message: str
) -> None:
    """When the suite is read, in one line that names the setting and what fits."""
    with pytest.raises(SuiteError, match=re.escape(message)) as raised:
        stage(tmp_path / "suite", f"{SCENES}[metrics.facts]\n{settings}\n", store)
    assert str(raised.value).startswith("suite 'scenes', metric 'facts': ")


@pytest.mark.parametrize("source", ["questions", "geneval"])
def test_a_vqa_model_needs_questions(tmp_path: Path, store: Store, source: str) -> None:
    """When the suite is read; the sentence says which key names them."""
    text = ASKED.replace('questions = "metadata"\n', "")
    metric = BY_MODEL.replace('"questions"', f'"{source}"')
    with pytest.raises(SuiteError, match=r"has no questions .* \[data\] questions = FILE"):
        stage(tmp_path / "suite", text + metric, store)


def test_only_the_checkers_that_are_at_work_have_to_fit(tmp_path: Path, store: Store) -> None:
    """Chains of one picture have no text to check."""
    metric = '[metrics.facts]\nfacts = "questions"\npictures = "vqa"\n'
    staged = stage(tmp_path / "suite", ONE_DRAWING + metric, store, DRAWS)
    assert staged.measure("overall-facts").value == 1.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('pictures = "vqa"', 'pictures = "vqq"', "unknown checker of pictures 'vqq'.*'vqa'"),
        ('texts = "vqa"', 'texts = "detector"', "unknown checker of texts 'detector'"),
        ('facts = "questions"', 'facts = "question"', "unknown source of facts.*'questions'"),
        ("[metrics.facts]", '[metrics.facts]\nprompt = "?"', "prompt = '\\?' does not hold"),
        ("[metrics.facts]", "[metrics.facts]\ncontrols = 9", "controls = 9: 0 to 4"),
        ("[metrics.facts]", "[metrics.facts]\nleast_control = 0.5", "over 0.5, which a coin"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    tmp_path: Path, store: Store, old: str, new: str, message: str
) -> None:
    """One line that names the setting and what could be."""
    with pytest.raises(SuiteError, match=message):
        stage(tmp_path / "suite", ASKED + BY_MODEL.replace(old, new), store)
