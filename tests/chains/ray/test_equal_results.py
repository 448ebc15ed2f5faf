"""What an actor's model gives counts as it does in a run in one process, in every role."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure, Sound, digest_text
from pytest_cepbench.artifacts.outcome import CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.ray.actor import (
    ActorSetup,
    ChainActor,
    RemoteModel,
    bind_here,
    with_images,
)
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    Battle,
    RoleName,
    StepLimit,
    VqaQuestion,
)
from pytest_cepbench.models.roles import ROLES
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import ArtifactRef, Store
from tests.artifacts.files import noise
from tests.chains.ray.actor_models import TONE

SPEC = "python:tests.chains.ray.actor_models:model"

WIDE, NARROW, BLACK = (
    Image.fromarray(pixels) for pixels in (noise(6, 12), noise(6, 8), np.zeros((6, 8, 3), np.uint8))
)

ASKED = (VqaQuestion("is it red?", ("yes",)),)

CALLS: dict[RoleName, tuple[list[Any], tuple[str, ...]]] = {
    "describer": ([WIDE, BLACK], ("describe", "say")),
    "generator": (["gray", "nan", "raise"], ("generate",)),
    "encoder": (["one", "two words", "and more than three"], ("encode_texts",)),
    "detector": ([(WIDE, ("a", "b")), (BLACK, ("a",))], ("detect",)),
    "judge": ([Battle(["q", WIDE], [WIDE], [NARROW]), Battle(["q"], [NARROW], [WIDE])], ("judge",)),
    "writer": ([["what", WIDE], ["what"]], ("write", "say")),
    "editor": ([(WIDE, "turn"), (NARROW, "turn")], ("edit",)),
    "interleaver": (
        [(["what"], StepLimit(2)), (["no"], StepLimit()), (["nan"], StepLimit())],
        ("interleave",),
    ),
    "vqa": ([(WIDE, ASKED * 2), ("a text", ASKED), ("odd", ASKED)], ("answer",)),
}
"""The inputs of each role, and its method with other arguments."""


def _in_actor(role: RoleName, spec: str) -> RemoteModel:
    """The model in an actor; what is sent there and back is pickled, as Ray does."""
    setup = ActorSetup(role, spec, force=False, threads=None, gpus=1.0)
    identity = bind_here(setup).identity  # type: ignore[union-attr] # it can be bound
    actor = ChainActor(replace(setup, identity=identity), "id1", "here")

    def ask(method: str, args: Any) -> Any:
        sent = pickle.loads(pickle.dumps(with_images(args)))
        answer = pickle.loads(pickle.dumps(actor.answer(method, sent)))
        if isinstance(answer, Exception):
            raise answer
        return answer

    return RemoteModel(actor.state().methods, ask)  # type: ignore[union-attr] # it was loaded


def _plain(result: Any) -> Any:
    return result.tolist() if isinstance(result, np.ndarray) else result


def _in_both(
    folder: Path, role: RoleName, method: str, values: list[Any], *shared: Any, spec: str = SPEC
) -> list[Any]:
    """What a model gives for some inputs; asserts that one in an actor gives the same.

    To the bit; what is kept of texts that were too long is the same too.
    """
    bound = bind(parse_spec(spec), role, BindContext(str))
    found: list[Any] = []
    for load in (bound.load, lambda: _in_actor(role, spec)):
        with Store(folder / str(len(found))) as store:
            runner = RoleRunner(replace(bound, load=load), store)  # type: ignore[arg-type]
            steps = [
                Step(digest_text(str(i)), i, lambda value=value: value)  # type: ignore[misc]
                for i, value in enumerate(values)
            ]
            with warnings.catch_warnings(record=True):  # the describer's own
                results = runner.ask(method, steps, *shared)
            texts = [value for value in values if isinstance(value, str)]
            found.append(([_plain(result) for result in results], runner.cut_texts(texts)))
    assert found[0] == found[1]
    return list(found[0][0])


@pytest.mark.parametrize("role", ROLES)
def test_results_and_failures_are_those_of_one_process(role: RoleName, tmp_path: Path) -> None:
    """Some inputs fail in four of the roles."""
    inputs, (method, *shared) = CALLS[role]
    results = _in_both(tmp_path, role, method, inputs, *shared)

    failures = [result for result in results if isinstance(result, Failure)]
    assert bool(failures) == (role in ("describer", "generator", "interleaver", "vqa"))


def test_a_judge_s_scores_are_those_of_one_process(tmp_path: Path) -> None:
    """An ability beyond the role: a number out of range fails its criterion alone."""
    answers = [AnsweredQuestion([WIDE], [NARROW]), AnsweredQuestion([NARROW], [WIDE])]
    results = _in_both(tmp_path, "judge", "score_answers", answers)

    scores = [CriteriaScores.from_json(str(text)) for text in results]
    assert [own.value("richness") for own in scores] == [8, None]


def test_sounds_are_those_of_one_process(tmp_path: Path) -> None:
    """Made, described and encoded; silence is a failure."""
    pytest.importorskip("soundfile")
    spec = "python:tests.chains.ray.actor_models:sounds"
    made = _in_both(tmp_path / "made", "generator", "generate", ["tone", "pair", "hush"], spec=spec)

    assert [type(result) for result in made] == [ArtifactRef, ArtifactRef, Failure]
    assert made[0] == made[1]
    tone = Sound(TONE, 8000)
    assert made[0].digest == tone.digest
    texts = _in_both(tmp_path / "texts", "describer", "describe", [tone], "say", spec=spec)
    assert texts == ["say 4 at 8000"]
    vectors = _in_both(tmp_path / "vectors", "encoder", "encode_sounds", [tone], spec=spec)
    assert vectors == [[4.0, 0.25]]
