"""An interleaver of the user's own: the example of the documentation, plugged in by its spec."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.binding import detect
from pytest_cepbench.models.protocols import AnswerStep, Interleaver, StepLimit
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import bind_text

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The example as a user names it, with a checkpoint of two colors."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "interleaver", raising=False)
    (tmp_path / "colors.txt").write_text("red blue")
    return f"python:interleaver:load?path={tmp_path}"


def test_the_example_answers_in_steps(spec: str) -> None:
    """As many as it is told, at most as many as may be, from its own seed."""
    bound = bind_text(spec, "interleaver")
    model = bound.load()
    assert isinstance(model, Interleaver)
    limits = [StepLimit(3), StepLimit(5, most=2), StepLimit()]

    answers = list(model.interleave([["what", Image.new("RGB", (4, 4))]] * 3, limits, [1, 2, 3]))

    assert detect(parse_spec(spec)).roles == ("interleaver",)
    assert (bound.adapter, bound.seeded, bound.batch_size) == ("python/1", True, 4)
    lengths = []
    for answer in answers:
        assert not isinstance(answer, Failure)
        steps = list(answer)  # type: ignore[arg-type]
        assert all(isinstance(step, AnswerStep) for step in steps)
        lengths.append(len(steps))
    assert lengths[:2] == [3, 2]
    assert 1 <= lengths[2] <= 2


def test_other_weights_are_another_model(spec: str, tmp_path: Path) -> None:
    """Its fingerprint follows the files that it reads."""
    before = bind_text(spec, "interleaver")
    (tmp_path / "colors.txt").write_text("green")
    after = bind_text(f"{spec}/.", "interleaver")

    assert before.fingerprint != after.fingerprint


def test_it_plays_no_other_role(spec: str) -> None:
    """The message names the method that is missing."""
    with pytest.raises(RoleError, match=r"needs the method write\(questions, prompt, seeds\)"):
        bind_text(spec, "writer")
