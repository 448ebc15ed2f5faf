"""Failed steps: counted where they happen, zeros from there on, and no other chain is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pytest_cepbench
from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.chains import ChainPlan, RoleRunner, Step, Trace
from pytest_cepbench.chains.batching import BatchCaller, CallCounts
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.errors import ModelError, RoleError
from pytest_cepbench.models.protocols import Reply
from pytest_cepbench.store import Result, Store
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    SmallDescriber,
    SmallEncoder,
    SmallGenerator,
    bound,
    describe_image,
    draw_text,
    grow_and_trace,
    make_runners,
    outcomes,
    samples,
    vector_of,
)
from tests.models.api.fake_server import Answer, Seen, chat_answer, fault, serving
from tests.models.binding import bind_text
from tests.plugin.project import PHOTOS, Project

VICTIM = "s01"


def explode(*_: object) -> Any:
    """What a model does on an input that it cannot take."""
    raise RuntimeError("cannot take this")


DESCRIBER_FAULTS: dict[str, Callable[..., Any]] = {
    "empty-text": lambda *_: "",
    "empty-text, blank": lambda *_: " \n",
    "exception": explode,
    "bad-image": lambda *_: Failure("bad-image", "the model said so"),
}
GENERATOR_FAULTS: dict[str, Callable[..., Any]] = {
    "blank-image": lambda *_: np.zeros((4, 4, 3), np.uint8),
    "blank-image, Pillow": lambda *_: Image.new("RGB", (4, 4)),
    "nan-image": lambda *_: np.full((4, 4, 3), np.nan, np.float32),
    "bad-image, type": lambda *_: np.ones((4, 4, 3), np.int64),
    "bad-image, shape": lambda *_: np.ones((4, 4), np.uint8),
    "exception": explode,
}
ENCODER_FAULTS: dict[str, Callable[..., Any]] = {
    "nan-vector": lambda *_: np.full(5, np.nan, np.float32),
    "nan-vector, one": lambda *_: np.array([1, 2, np.inf, 4, 5], np.float32),
    "nan-vector, zero": lambda *_: np.zeros(5, np.float32),
    "exception": explode,
}


@cache
def healthy(plan: ChainPlan) -> list[Trace]:
    """The same samples with roles that never fail, on another store."""
    with TemporaryDirectory() as folder, Store(Path(folder)) as store:
        return grow_and_trace(plan, samples(4), make_runners(store, SmallDescriber(seeded=True)))


def check(traces: list[Trace], plan: ChainPlan, kind: str, at: int, steps: int) -> None:
    """The victim failed at a generation after this many good similarities; the others are well."""
    actual, expected = outcomes(traces), outcomes(healthy(plan))
    _, similarities, failure, failed_at = actual.pop(VICTIM)
    _, full, _, _ = expected.pop(VICTIM)
    assert actual == expected
    assert (failure.kind, failed_at) == (kind.partition(",")[0], at)
    assert similarities == (*full[:steps], *[0.0] * (2 - steps))


PLANS = (PLAN, TEXT_PLAN)


@pytest.mark.parametrize(
    ("plan", "describes", "fault", "turn"),
    [
        *((plan, own, "exception", k) for plan in PLANS for own in (True, False) for k in (0, 1)),
        *((PLAN, True, name, 0) for name in DESCRIBER_FAULTS if name != "exception"),
        *((TEXT_PLAN, False, name, 1) for name in GENERATOR_FAULTS if name != "exception"),
    ],
)
def test_a_step_fails(
    store: Store, plan: ChainPlan, *, turn: int, describes: bool, fault: str
) -> None:
    """At any generation and in any way: the chain stops there, what came before still counts."""
    at = [g for g in range(1, 5) if plan.describes(g) == describes][turn]
    faults = DESCRIBER_FAULTS if describes else GENERATOR_FAULTS
    seed = derive_seed(plan.seed, VICTIM, at)

    def tell(image: Image.Image, prompt: str, own: int | None) -> Any:
        answer = faults[fault] if own == seed else describe_image
        return answer(image, prompt, own)

    def paint(text: str, own: int | None) -> Any:
        answer = faults[fault] if own == seed else draw_text
        return answer(text, own)

    runners = make_runners(store, SmallDescriber(tell, seeded=True), SmallGenerator(paint))
    check(grow_and_trace(plan, samples(4), runners), plan, fault, at, (at - 1) // 2)


@pytest.mark.parametrize(
    ("plan", "at", "fault"),
    [
        *((plan, at, "exception") for plan in PLANS for at in (0, 2, 4)),
        *zip(PLANS * 2, (0, 2, 4), ENCODER_FAULTS, strict=False),
    ],
)
def test_an_artifact_cannot_be_encoded(store: Store, plan: ChainPlan, at: int, fault: str) -> None:
    """The start or a later artifact: no similarity from there on, only zeros for the start."""
    victim = next(trace for trace in healthy(plan) if trace.chain.sample.id == VICTIM)
    link = victim.chain.links[at]

    def faulty(value: Image.Image | str) -> Any:
        same = (
            value == link.text
            if isinstance(value, str)
            else ImageArtifact.from_pil(value).digest == link.digest
        )
        return (ENCODER_FAULTS[fault] if same else vector_of)(value)

    runners = make_runners(store, SmallDescriber(seeded=True), encoder=SmallEncoder(faulty))
    check(grow_and_trace(plan, samples(4), runners), plan, fault, at, max(at // 2 - 1, 0))


def test_an_earlier_failure_is_the_one_that_is_told(store: Store) -> None:
    """Where growing fails late and encoding fails early, the trace says encoding."""
    late = derive_seed(0, "s00", 3)
    describer = SmallDescriber(
        lambda i, p, s: "" if s == late else describe_image(i, p, s), seeded=True
    )
    encoder = SmallEncoder(lambda _: np.zeros(5, np.float32))
    (trace,) = grow_and_trace(PLAN, samples(1), make_runners(store, describer, encoder=encoder))
    assert trace.chain.failure == Failure("empty-text", "no text at all")
    assert (trace.failure, trace.failed_at) == (Failure("nan-vector", "features are all zero"), 0)
    assert trace.similarities == (0.0, 0.0)


def test_a_failure_is_remembered_and_an_exception_is_not(store: Store) -> None:
    """An empty answer or a refusal is the model's; an exception may have been the machine's."""
    refusal = Failure("exception", "for good")
    answers: list[tuple[Callable[..., Any], int]] = [
        (lambda *_: "", 0), (lambda *_: Reply(refusal), 0),
        (explode, 1), (lambda *_: Reply(refusal, passing=True), 1),
    ]  # fmt: skip
    for number, (answer, asked_again) in enumerate(answers):
        weights: Any = {"describer": {"fingerprint": f"weights {number}"}}
        victim = samples(4)[1]
        digest = victim.image.load().digest  # type: ignore[union-attr] # it has an image

        def tell(image: Image.Image, *rest: Any, answer: Any = answer, digest: str = digest) -> Any:
            spoilt = ImageArtifact.from_pil(image).digest == digest
            return (answer if spoilt else describe_image)(image, *rest)

        spoiling = make_runners(store, SmallDescriber(tell), only=weights)
        assert grow_and_trace(PLAN, samples(4), spoiling)[1].failed_at == 1
        runners = make_runners(store, only=weights)
        second = grow_and_trace(PLAN, samples(4), runners)
        assert runners.asked[0] == 2 * asked_again
        assert (second[1].failure is None) == bool(asked_again)


def test_all_processes_of_a_run_have_one_result_of_a_step(tmp_path: Path) -> None:
    """A server refuses an input once, and answers it to the worker that asks next: one of two cases
    had a score of it, and the other one a failure. The next run asks anew.
    """
    pytest.importorskip("httpx2")
    replies = [chat_answer("a square"), fault(400, "cannot read this"), chat_answer("a disk")]

    def ask(run: str) -> list[Result]:
        """What a worker of its own gets, whose server answers one request after the other."""
        steps = [Step(name, 0, lambda: Image.new("RGB", (4, 4))) for name in ("good", "refused")]
        with Store(tmp_path, run=run) as store:
            runner = RoleRunner(bind_text(server.spec("concurrency=1"), "describer"), store)
            return runner.ask("describe", steps, "what is it?")

    with serving() as server:
        server.answer = lambda _: replies.pop(0)
        refused = ["a square", Failure("exception", "400: cannot read this")]
        assert [ask("run 1"), ask("run 1")] == [refused] * 2
        assert [ask("run 2"), ask("run 3")] == [["a square", "a disk"]] * 2
        assert ask("run 1") == refused  # one that is slow
    assert replies == []


def test_so_have_all_cases(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two suites that share their steps, scores and failure rates rest on the same answers."""
    pytest.importorskip("httpx2").AsyncClient()  # before a run here forgets what it imported
    monkeypatch.delenv("CEPBENCH_DESCRIBER", raising=False)
    project.suite(PHOTOS)
    again = PHOTOS.replace('name = "photos"', 'name = "again"')
    project.suite(again.replace('path = "photos"', 'path = "../photos"'), "again")
    project.photos({f"{i}.png": (40 * i, 10, 90) for i in range(4)})
    refused: list[str] = []

    def answer(seen: Seen) -> Answer:
        color = " ".join(map(str, seen.images[0].getpixel((0, 0))))  # type: ignore[arg-type] # RGB
        if color == "40 10 90" and not refused:
            refused.append(color)
            return fault(400, "cannot read this")
        return chat_answer(color)

    with serving() as server:
        server.answer = answer
        project.run_here(f"--model={server.spec()}", "--snapshot-update")
        assert len(server.seen) == 4
    values = {
        f"{case['suite']}-{case['metric']}": case["value"] for case in project.report()["cases"]
    }
    assert values == {
        "photos-gc": 0.75, "photos-failures": 0.25, "again-gc": 0.75, "again-failures": 0.25
    }  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "returned 0 results for 2 inputs"),
        (["a"] * 3, "returned 3 results for 2 inputs"),
        (None, "returned a NoneType for 2 inputs"),
        ([3, 3], "returns str"),
        ("ab", "returned a str for 2 inputs"),
        ({"a", "b"}, "returned a set for 2 inputs"),
        (frozenset("ab"), "returned a frozenset for 2 inputs"),
        ({0: "a", 1: "b"}, "returned a dict for 2 inputs"),
    ],
)
def test_what_is_no_answer_for_each_input_is_an_error(store: Store, texts: Any, words: str) -> None:
    """A wrong plug-in: none is given to any sample."""

    class Wrong(SmallDescriber):
        def describe(self, *_: Any) -> Any:
            return texts

    with pytest.raises(ModelError, match=words):
        grow_and_trace(PLAN, samples(2), make_runners(store, Wrong()))
    assert len(store) == 0
    runners = make_runners(store, generator=SmallGenerator(lambda *_: "x"))
    with pytest.raises(ModelError, match="returns Pillow"):
        grow_and_trace(PLAN, samples(2), runners)


RAISED = {
    "an assertion": ("assert not 1", AssertionError, "describers/adapter.py", True),
    "a name": ("no_such_name", NameError, "describers/adapter.py", True),
    "an attribute": ("(1).no_such_name", AttributeError, "describers/adapter.py", True),
    "a number of the model's": ("[][0]", IndexError, "describers/adapter.py", False),
    "a request": ("[][0]", IndexError, "api/roles.py", True),
}


@pytest.mark.parametrize("case", RAISED)
def test_a_bug_of_an_adapter_is_no_failure_of_its_model(store: Store, case: str) -> None:
    """What this package gets wrong ends the run; nothing of it is counted or stored."""
    source, kind, file, ours = RAISED[case]
    package = Path(pytest_cepbench.__file__).parent
    # As a line of an adapter raises it: where it was raised is what the code says.
    adapter = compile(source, str(package / "models" / file), "exec")
    runners = make_runners(store, SmallDescriber(batch=lambda _: exec(adapter)))
    if ours:
        with pytest.raises(kind):
            grow_and_trace(PLAN, samples(2), runners)
        assert len(store) == 0
    else:
        traces = grow_and_trace(PLAN, samples(2), runners)
        assert {trace.failure.kind for trace in traces if trace.failure} == {"exception"}


def test_a_role_that_the_model_lacks_is_no_failure_of_the_model(store: Store) -> None:
    """A wrong model in a role is a bug of the caller: it was a failure of every input, silently."""
    runners = make_runners(store, SmallGenerator())  # type: ignore[arg-type] # that is the bug
    with pytest.raises(RoleError, match=r"it lacks describe\(images, prompt, seeds\)"):
        grow_and_trace(PLAN, samples(2), runners)


def test_a_generator_s_exception_is_the_model_s(store: Store) -> None:
    """It is raised as the results are taken."""

    class Lazy(SmallDescriber):
        def describe(self, images: Sequence[Any], *_: Any) -> Any:
            for image in images:
                yield "a text" if len(images) == 1 else explode(image)

    traces = grow_and_trace(replace(PLAN, generations=2), samples(2), make_runners(store, Lazy()))
    assert [trace.failure for trace in traces] == [None, None]


@pytest.mark.parametrize("stage", ["inputs", "outputs"])
def test_code_around_a_call_is_not_the_model(stage: str) -> None:
    """Whatever is raised where inputs are unpacked and outputs are checked: no call is repeated."""
    asked: list[int] = []

    def ask(_: object, inputs: Sequence[Any], __: Sequence[int]) -> Callable[[], object]:
        def make() -> Sequence[Any]:
            asked.append(len(inputs))
            return inputs

        if stage == "inputs":
            explode()
        return make

    caller = BatchCaller(bound("describer", SmallDescriber()), CallCounts(), 4)
    with pytest.raises(RuntimeError, match="cannot take this"):
        caller.call(SmallDescriber(), [1, 2], [0, 0], ask, explode)
    assert asked == ([2] if stage == "outputs" else [])
