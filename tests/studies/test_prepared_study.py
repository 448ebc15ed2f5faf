"""What a study refuses to be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CepError
from pytest_cepbench.studies.study import Named, StudySpec
from tests.studies.toy import COLORS, TOY, A, B, seeds, study

SHAPES = Named("world", "shapes:")
SUITE = Path("suite.toml")


@pytest.mark.parametrize(
    ("name", "models", "variants", "message"),
    [
        ("seeds", [A], seeds(3), "at least two: got 3; write --seeds="),
        ("generators", [A], [SHAPES], "at least two: got world; give several"),
        ("encoders", [A], [], "at least two: got none; give several"),
        ("seeds", [A, Named("b", A.spec)], [], "the model 'shapes:?miss=0.1' is given twice"),
        ("seeds", [A, Named("a", B.spec)], [], "two are called 'a', each model needs a name"),
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


def test_chains_made_elsewhere_have_one_seed(tmp_path: Path) -> None:
    """A replay cannot take part where the seed changes."""
    replay = Named("old", f"replay:{tmp_path}")
    with pytest.raises(CepError, match="cannot take part in a study of seeds"):
        study(tmp_path, "seeds", [replay], seeds(0, 1))


def test_chains_made_elsewhere_are_one_of_each_sample(tmp_path: Path) -> None:
    """A replay has no further chains for a suite that wants several of each sample."""
    text = TOY.replace("iterations = 2", "iterations = 2\nseeds = 2")
    replay = Named("old", f"replay:{tmp_path}")
    with pytest.raises(CepError, match="brings one chain of each sample, and suite 'toy' needs 2"):
        study(tmp_path, "encoders", [replay], [SHAPES, Named("c", COLORS)], text=text)


def test_models_under_test_play_one_role(tmp_path: Path) -> None:
    """A describer and an encoder are not two rows of one table."""
    with pytest.raises(CepError, match=r"have different roles \(a the describer, b the encoder\)"):
        study(tmp_path, "seeds", [A, Named("b", COLORS)], seeds(0, 1))


def test_an_encoder_that_no_metric_reads_is_refused(tmp_path: Path) -> None:
    """Exchanging a seat that nothing depends on would show perfect agreement."""
    text = TOY + '[encoders]\nspare = "shapes:"\n'
    with pytest.raises(CepError, match="reads the encoder 'spare'"):
        study(tmp_path, "encoders", [A], [SHAPES, Named("c", COLORS)], text=text, seat="spare")
