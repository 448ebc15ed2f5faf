"""The actor's side in this process, and models as the driver's threads hold them.

At the end results, which count as they do in a run in one process, in every role.
"""

from __future__ import annotations

import os
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pytest_cepbench
from pytest_cepbench import __version__
from pytest_cepbench.artifacts import Failure, Sound, digest_text
from pytest_cepbench.artifacts.outcome import CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.ray.actor import (
    ASKED,
    ActorAnswer,
    ActorReady,
    ActorSetup,
    ChainActor,
    RemoteModel,
    bind_here,
    methods_of,
    portable,
    with_images,
)
from pytest_cepbench.chains.ray.pools import ServedModel
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.errors import (
    CheckpointError,
    DeviceMemoryError,
    IdentityError,
    ModelError,
    SpecError,
    StoppedError,
)
from pytest_cepbench.models.binding import BindContext, BoundRole, IdleParts, bind
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    AnswerScorer,
    Battle,
    CountsTokens,
    JsonDescriber,
    JsonWriter,
    RoleName,
    StepLimit,
    VqaQuestion,
)
from pytest_cepbench.models.roles import ROLES
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import ArtifactRef, Store
from tests.artifacts.files import noise
from tests.chains.ray.actor_models import TONE
from tests.tiny.encoders import build_clip

MODELS = "python:tests.chains.ray.actor_models"
OURS = (CheckpointError, ModelError, DeviceMemoryError)
PIXELS = noise(6, 8)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an actor sets is put back."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "5")


def _setup(role: RoleName, spec: str = f"{MODELS}:AllRoles", **changes: Any) -> ActorSetup:
    fields: dict[str, Any] = {"force": False, "threads": None, "gpus": 0.0}
    return ActorSetup(role, spec, **(fields | changes))


def _loading(role: RoleName, spec: str = f"{MODELS}:AllRoles", **changes: Any) -> ChainActor:
    """An actor whose model has to be what the spec is now, but for the changes."""
    bound = bind_here(_setup(role, spec))
    assert isinstance(bound, BoundRole), bound
    return ChainActor(_setup(role, spec, identity=bound.identity | changes), "id1", "here")


def _actor(role: RoleName, spec: str = f"{MODELS}:AllRoles") -> ChainActor:
    actor = _loading(role, spec)
    assert isinstance(actor.state(), ActorReady), actor.state()
    return actor


def test_a_ready_actor_says_what_it_loaded() -> None:
    """Identity, node, abilities, seconds; the driver cannot load what it gets."""
    bound, ready = bind_here(_setup("encoder")), _actor("encoder").state()

    assert isinstance(bound, BoundRole)
    assert isinstance(ready, ActorReady)
    assert (ready.node_id, ready.node) == ("id1", "here")
    assert bound.identity["fingerprint"] == "all-roles/1"
    assert bound.files is None
    assert set(ready.methods) == set(ASKED) - {"describe_json", "write_json", "encode_sounds"}
    assert 0 < ready.seconds < 60
    with pytest.raises(AssertionError, match="loaded by an actor"):
        bound.load()


@pytest.mark.models
def test_what_is_said_of_a_checkpoint_can_be_sent(tmp_path: Path) -> None:
    """Without the functions that its binding has; what they find is sent."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        checkpoint = build_clip(tmp_path)
    bound = bind_here(_setup("encoder", str(checkpoint)))
    assert isinstance(bound, BoundRole), bound

    sent = pickle.loads(pickle.dumps(bound))

    assert sent.identity == bound.identity
    assert sent.idle() == IdleParts()


def test_what_cannot_be_bound_or_loaded_is_a_fault() -> None:
    """Raised again in the driver, with the same words; an actor's fault names its node. One of
    another version plays nothing: nodes may join a cluster after the run began.
    """
    fault = bind_here(_setup("describer", f"{MODELS}:nothing"))
    assert str(fault).startswith("model spec 'python:tests.chains.ray.actor_models:no")
    actor = ChainActor(_setup("describer", f"{MODELS}:nothing"), "id1", "here")
    assert type(actor.state()) is type(fault) is SpecError
    assert str(actor.state()) == f"node here: {fault}"
    full = ChainActor(_setup("describer", f"{MODELS}:full"), "id1", "here").state()
    assert isinstance(full, Exception)
    assert "CUDA out of memory" in str(full)
    assert actor.answer("describe", [[PIXELS], "say", [1]]) is None
    other = ChainActor(_setup("encoder", version="0"), "id1", "here").state()
    words = f"node here has pytest-cepbench {__version__}, this process 0: install the same "
    assert type(other) is ModelError
    assert str(other).startswith(words)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        (
            "fingerprint",
            "weights-1",
            "fingerprint all-roles/1 on node here, weights-1 elsewhere: the",
        ),
        (
            "fingerprint",
            "a" * 64,
            "fingerprint all-roles/1 on node here, aaaaaaaaaaaaaaaa elsewhere",
        ),
        ("adapter", "test/2", "adapter python/1 on node here, test/2 elsewhere: install the same "),
        (
            "params",
            {"a": 1},
            'params {"model":{},"spec":{}} on node here, {"a":1} elsewhere: give device= and ',
        ),
    ],
)
def test_an_actor_plays_no_other_model_than_the_run_s(part: str, value: object, words: str) -> None:
    """What differs, where, and what to do; it answers nothing."""
    changes: dict[str, Any] = {part: value}
    actor = _loading("encoder", **changes)

    error = actor.state()
    assert type(error) is ModelError
    assert str(error).startswith(f"encoder {MODELS}:AllRoles: {words}")
    assert actor.answer("encode_texts", [["a"]]) is None


def test_an_actor_without_gpus_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a part of one sees what Ray leaves it; threads are set where they are known. Models
    are bound where accelerators are seen: Ray hides them from a task that asks for none, and the
    model's actors will have some.
    """
    ChainActor(_setup("encoder", gpus=0.5), "id1", "n")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"]) == ("5", "5")
    ChainActor(_setup("encoder", threads=3), "id1", "n")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["HIP_VISIBLE_DEVICES"]) == ("", "")
    assert os.environ["OMP_NUM_THREADS"] == "3"
    for gpus, visible, left in ((0.5, "", None), (0.5, "3", "3"), (0.0, "", ""), (0.0, "3", "")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert isinstance(bind_here(_setup("encoder", gpus=gpus)), BoundRole)
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == left


def test_a_file_that_changes_before_the_first_answers_is_a_fault(tmp_path: Path) -> None:
    """After these it has been read: a trainer may go on writing."""
    path = tmp_path / "weights"
    path.write_text("A")
    request: Any = ("encode_texts", [["a"]])
    early = _actor("encoder", f"{MODELS}:Late?path={path}")
    late = _actor("encoder", f"{MODELS}:Late?path={path}")
    assert isinstance(late.answer(*request), ActorAnswer)
    path.write_text("B, longer")

    assert isinstance(late.answer(*request), ActorAnswer)
    assert type(early.answer(*request)) is IdentityError


class LocalError(CheckpointError):
    """Known where it is raised alone."""


@pytest.mark.parametrize(
    ("raised", "name", "base"),
    [
        *((kind("what, why, how"), kind.__name__, kind) for kind in OURS),
        # The driver knows the classes of `errors` alone: the nearest base of another one.
        (LocalError("gone"), "CheckpointError", CheckpointError),
        # What is stored of a failed input has the words that it has in a run in one process.
        (ArithmeticError("no sum"), "ArithmeticError", Exception),
        # Where memory ran out the batch is halved in the driver, as in one process.
        (RuntimeError("CUDA out of memory"), "RuntimeError", MemoryError),
    ],
)
def test_an_exception_arrives_with_its_name_and_words(
    raised: Exception, name: str, base: type[Exception]
) -> None:
    """Ray pickles classes of no module by value."""
    ray = pytest.importorskip("ray")
    error = pickle.loads(ray.cloudpickle.dumps(portable(raised)))

    assert (type(error).__name__, str(error)) == (name, str(raised))
    assert isinstance(error, base)
    assert isinstance(error, MemoryError) == (base is MemoryError)
    assert type(error) is base or base in (Exception, MemoryError)


def test_ray_is_imported_in_its_folder_alone_and_late() -> None:
    """Inside functions of chains/ray, so that the package can be used without it."""
    package = Path(pytest_cepbench.__file__).parent
    line = re.compile(r"^( *)(?:import|from) ray\b", re.MULTILINE)
    importing = {
        path.relative_to(package).as_posix(): indents
        for path in package.rglob("*.py")
        if (indents := line.findall(path.read_text(encoding="utf-8")))
    }
    assert importing
    assert all(name.startswith("chains/ray/") and all(importing[name]) for name in importing)


def test_a_remote_model_has_the_abilities_of_its_methods() -> None:
    """Those of the model and no other: else it would be asked another way than in one process."""
    able: Any = RemoteModel(ASKED, lambda _, __: ActorAnswer(None))
    abilities = (JsonDescriber, JsonWriter, AnswerScorer, CountsTokens)
    assert all(isinstance(able, ability) for ability in abilities)
    plain: Any = RemoteModel(["describe", "write", "judge"], lambda _, __: ActorAnswer(None))
    assert not any(isinstance(plain, ability) for ability in abilities)
    assert methods_of(able) == tuple(ASKED)
    assert set(methods_of(plain)) == {"describe", "write", "judge"}


class _Server:
    """Answers with what it is asked."""

    def describe(self, *asked: Any) -> Any:
        """As a describer."""
        return asked

    generate = describe


def _never() -> bool:
    return False


def test_a_model_behind_a_server_is_loaded_once() -> None:
    """However many threads and roles hold it; its time is counted, and no call follows the end."""
    loads: list[str] = []

    def load() -> _Server:
        loads.append("load")
        return _Server()

    shared = ServedModel(load)
    for _ in range(2):
        shared.start(_never)
    assert shared.ask("describe", (["a"], "p", (2,)), _never).value == (["a"], "p", (2,))
    assert shared.methods == ("describe", "generate")
    assert (loads, shared.used[0]) == (["load"], 1)
    assert 0 < shared.used[1] < 5
    with pytest.raises(StoppedError):
        shared.ask("describe", (["a"], "p", (2,)), lambda: True)


# -- results ---------------------------------------------------------------------------------------

WIDE, NARROW, BLACK = (
    Image.fromarray(pixels) for pixels in (noise(6, 12), noise(6, 8), np.zeros((6, 8, 3), np.uint8))
)

QUESTIONS = (VqaQuestion("is it red?", ("yes",)),)

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
    "vqa": ([(WIDE, QUESTIONS * 2), ("a text", QUESTIONS), ("odd", QUESTIONS)], ("answer",)),
}
"""The inputs of each role, and its method with other arguments."""


def _in_actor(role: RoleName, spec: str) -> RemoteModel:
    """The model in an actor; what is sent there and back is pickled, as Ray does."""
    actor = _actor(role, spec)

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
    folder: Path,
    role: RoleName,
    method: str,
    values: list[Any],
    *shared: Any,
    spec: str = f"{MODELS}:AllRoles",
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


def test_other_results_are_those_of_one_process(tmp_path: Path) -> None:
    """What is no sequence arrives as it is, and the driver refuses it then; of a mapping its keys
    were taken. Of a judge's scores, an ability beyond its role, a number out of range fails its
    criterion alone.
    """
    model: Any = _in_actor("encoder", f"{MODELS}:AllRoles")
    assert model.encode_texts(["by name"]) == {"by name": [1.0, 1.0]}
    model = _in_actor("generator", f"{MODELS}:AllRoles")
    assert isinstance(model.generate(["by name"], [0]), dict)
    answers = [AnsweredQuestion([WIDE], [NARROW]), AnsweredQuestion([NARROW], [WIDE])]
    results = _in_both(tmp_path, "judge", "score_answers", answers)

    scores = [CriteriaScores.from_json(str(text)) for text in results]
    assert [own.value("richness") for own in scores] == [8, None]


def test_sounds_are_those_of_one_process(tmp_path: Path) -> None:
    """Made, described and encoded; silence is a failure."""
    pytest.importorskip("soundfile")
    spec = f"{MODELS}:Sounds"
    made = _in_both(tmp_path / "made", "generator", "generate", ["tone", "pair", "hush"], spec=spec)

    assert [type(result) for result in made] == [ArtifactRef, ArtifactRef, Failure]
    assert made[0] == made[1]
    tone = Sound(TONE, 8000)
    assert made[0].digest == tone.digest
    texts = _in_both(tmp_path / "texts", "describer", "describe", [tone], "say", spec=spec)
    assert texts == ["say 4 at 8000"]
    vectors = _in_both(tmp_path / "vectors", "encoder", "encode_sounds", [tone], spec=spec)
    assert vectors == [[4.0, 0.25]]
