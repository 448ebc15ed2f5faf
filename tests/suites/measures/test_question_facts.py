"""Facts that questions ask for: checked by a VQA model and by a detector, along chains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.datasets.questions import questions_of
from pytest_cepbench.datasets.shapes import parse_caption, parse_image
from pytest_cepbench.datasets.shapes.questions import answer_question
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.store import Store
from tests.suites.world import TASKS, Staged, stage

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


def test_detector_and_model_agree_in_this_world(tmp_path: Path, store: Store) -> None:
    """Both see every object exactly; what differs is how a relation is judged."""
    kinds = 'kinds = ["object", "count", "color"]\n[metrics.geneval]'
    texts = {
        "detector": BY_DETECTOR,
        "model": BY_DETECTOR.replace('pictures = "detector"', 'pictures = "vqa"'),
    }
    seen, told = (
        stage(tmp_path / name, ASKED + text.replace("[metrics.geneval]", kinds), store)
        for name, text in texts.items()
    )
    # Questions depend on presence, demands of a detector contain it.
    assert seen.measure("overall-facts").value == pytest.approx(
        told.measure("overall-facts").value, abs=0.02
    )


@pytest.mark.parametrize("knob", ["yes=1", "yes=0.7"])
def test_a_model_that_says_yes_to_all_measures_nothing(
    tmp_path: Path, store: Store, knob: str
) -> None:
    """Its answers would be perfect facts; the control questions show it."""
    text = ASKED.replace('vqa = "shapes:"', f'vqa = "shapes:?{knob}"')
    staged = stage(tmp_path / "suite", text + BY_MODEL, store)
    with pytest.raises(MeasurementError, match=r"too few control questions rightly: 0 of .*--vqa"):
        staged.measure("overall-facts")


def test_a_fact_without_a_question_is_named(tmp_path: Path, store: Store) -> None:
    """Facts of the scene have none: the sentence says which facts have."""
    text = ASKED + BY_MODEL.replace('facts = "questions"', 'facts = "scene"')
    with pytest.raises(
        MeasurementError, match=r"no question that asks for its fact .*\"metadata\""
    ):
        stage(tmp_path / "suite", text, store).measure("overall-facts")


def test_a_detector_knows_the_facts_of_geneval_alone(tmp_path: Path, store: Store) -> None:
    """Those of questions are none of its rules."""
    text = ASKED + BY_DETECTOR.replace('facts = "geneval"', 'facts = "questions"')
    with pytest.raises(MeasurementError, match=r"facts of GenEval's metadata alone.*\"geneval\""):
        stage(tmp_path / "suite", text, store).measure("overall-facts")


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
