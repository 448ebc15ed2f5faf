"""What a study refuses to be asked, and its prompts in three lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import CepError
from pytest_cepbench.metrics.diversity import LENGTH_BANDS, LengthBand
from pytest_cepbench.studies.prepared_study import prompt_for, stated_length
from pytest_cepbench.studies.study_data import Named, StudySpec
from tests.studies.toy import COLORS, TOY, A, B, seeds, study

SHAPES = Named("world", "shapes:")
SUITE = Path("suite.toml")


@pytest.mark.parametrize(
    ("name", "models", "variants", "message"),
    [
        ("seeds", [], seeds(0, 1), "no model is given"),
        ("seeds", [A], seeds(3), "at least two: got 3; write --seeds="),
        ("generators", [A], [SHAPES], "at least two: got world; give --generator several times"),
        ("encoders", [A], [], "at least two: got none; give --encoder several times"),
        ("weighting", [A, Named("b", A.spec)], [], "the model 'shapes:?miss=0.1' is given twice"),
        ("weighting", [A, Named("a", B.spec)], [], "two are called 'a', each model needs a name"),
        ("seeds", [A], seeds(1, 1), "the seed '1' is given twice"),
    ],
)
def test_rows_and_columns_must_be_apart(
    name: Any, models: list[Named], variants: list[Named], message: str
) -> None:
    """Nothing to compare, and twins under one name or two, are refused with what to do."""
    with pytest.raises(CepError) as caught:
        StudySpec(name, SUITE, tuple(models), tuple(variants))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("seeds", {"metrics": ("gcc",)}, "unknown metric 'gcc'. Did you mean 'gc'?"),
        ("seeds", {"parts": ("crowd",)}, "unknown part 'crowd'. Did you mean 'crowded'?"),
        ("encoders", {"seat": "clip"}, "unknown encoder 'clip'"),
        (
            "encoders",
            {"role": "encoder"},
            "is the encoder, which the study of encoders exchanges",
        ),
        ("seeds", {"role": "detector"}, "the detector under test has no role"),
        ("generators", {"role": "generator"}, "is the generator, which the study"),
        ("weighting", {"metrics": ("failures",)}, "metric 'failures' has no weights to compare"),
    ],
)
def test_what_does_not_fit_the_suite_is_refused(
    name: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Names that the suite does not have and roles that leave nothing to study are told before any
    model is asked.
    """
    variants = {
        "seeds": seeds(0, 1),
        "generators": [SHAPES, B],
        "encoders": [SHAPES, Named("colors", COLORS)],
    }
    with pytest.raises(CepError) as caught:
        study(tmp_path, name, [A], variants.get(name, []), **settings)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["seeds", "lengths"])
def test_chains_made_elsewhere_have_one_seed_and_one_prompt(name: Any, tmp_path: Path) -> None:
    """A replay cannot take part where seed or prompt change."""
    replay = Named("old", f"replay:{tmp_path}")
    with pytest.raises(CepError, match=f"cannot take part in a study of {name}"):
        study(tmp_path, name, [replay], seeds(0, 1) if name == "seeds" else [])


def test_chains_made_elsewhere_are_one_of_each_sample(tmp_path: Path) -> None:
    """A replay has no further chains for a suite that wants several of each sample."""
    text = TOY.replace("iterations = 2", "iterations = 2\nseeds = 2")
    replay = Named("old", f"replay:{tmp_path}")
    with pytest.raises(CepError, match="brings one chain of each sample, and suite 'toy' needs 2"):
        study(tmp_path, "weighting", [replay], text=text)


def test_models_under_test_play_one_role(tmp_path: Path) -> None:
    """A describer and an encoder are not two rows of one table."""
    with pytest.raises(CepError, match=r"have different roles \(a the describer, b the encoder\)"):
        study(tmp_path, "seeds", [A, Named("b", COLORS)], seeds(0, 1))


def test_one_iteration_has_no_weights(tmp_path: Path) -> None:
    """GC@1 is s(1): their agreement would say nothing."""
    with pytest.raises(CepError, match="chains of two iterations or more"):
        study(tmp_path, "weighting", [A], text=TOY.replace("iterations = 2", "iterations = 1"))


def test_lengths_need_descriptions(tmp_path: Path) -> None:
    """A suite that only draws has no description whose length could be asked for."""
    text = TOY.replace("iterations = 2", 'start = "text"\ngenerations = 1')
    text = text.replace("[metrics.gc]\n", "")
    with pytest.raises(CepError, match="nothing is described"):
        study(tmp_path, "lengths", [A], text=text, role="generator")


def test_an_encoder_that_no_metric_reads_is_refused(tmp_path: Path) -> None:
    """Exchanging a seat that nothing depends on would show perfect agreement."""
    text = TOY + '[encoders]\nspare = "shapes:"\n'
    with pytest.raises(CepError, match="reads the encoder 'spare'"):
        study(tmp_path, "encoders", [A], [SHAPES, Named("c", COLORS)], text=text, seat="spare")


SHORT, MIDDLE, LONG = LENGTH_BANDS

FIGURE_16 = (
    "in as much detail as possible, and it should be between 20 to 60 words.\n# Output Format"
)

BANDS = st.sampled_from(LENGTH_BANDS)


def asked(prompt: str) -> list[str]:
    """The bands that a prompt asks for."""
    flat = " ".join(prompt.split())
    return [band.name for band in LENGTH_BANDS if band.constraint in flat]


@given(st.text(), BANDS)
def test_a_prompt_asks_for_its_band_and_no_other(prompt: str, band: LengthBand) -> None:
    """Whatever the suite's prompt is, that of a band asks for this length alone."""
    assert asked(prompt_for(prompt, band)) == [band.name]


@given(st.text(), BANDS, BANDS)
def test_a_band_replaces_another(prompt: str, first: LengthBand, second: LengthBand) -> None:
    """Asked for one length after another, a prompt holds the last one only."""
    twice = prompt_for(prompt_for(prompt, first), second)
    assert asked(twice) == [second.name]


def test_the_prompt_of_mmgenbench_stays_what_it_is_in_its_own_band() -> None:
    """20 to 60 words is its default: the study's column and the gate's number are the same."""
    for prompt in (FIGURE_16, FIGURE_16.replace(" between 20", "\nbetween  20")):
        assert prompt_for(prompt, MIDDLE) == prompt


def test_the_clause_of_mmgenbench_is_replaced() -> None:
    """The other bands change the clause and nothing else, also where a line breaks inside it."""
    expected = FIGURE_16.replace("be between 20 to 60 words", "be more than 60 words")
    assert prompt_for(FIGURE_16, LONG) == expected
    assert prompt_for(FIGURE_16.replace(" between 20", "\nbetween  20"), LONG) == expected


def test_a_prompt_without_a_length_gets_a_sentence() -> None:
    """The sentence comes last, after the prompt as it stands."""
    assert prompt_for("Describe the image.\n", SHORT) == (
        "Describe the image. "
        "As for the length of the description, it should be fewer than 20 words."
    )


@pytest.mark.parametrize(
    ("prompt", "stated"),
    [
        ("Be thorough. You must use less than 500 words.", "You must use less than 500 words"),
        ("Describe the image.", None),
        ("Describe the 3 dogs in words.", None),
        (FIGURE_16, None),
        (prompt_for("Describe.", LONG), None),
    ],
)
def test_a_length_of_another_kind_is_noticed(prompt: str, stated: str | None) -> None:
    """GenCeption's "less than 500 words" is told to the reader; a band's own clause is not."""
    assert stated_length(prompt) == stated
