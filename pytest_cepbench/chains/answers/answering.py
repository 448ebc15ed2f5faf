"""The answers to many questions: by one model, or by a writer with a generator and an editor.

Of a pipeline each part is a step of its own in the store: another generator finds every text, and a
run that dies between two steps loses neither.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.answer import (
    Answer,
    StoredStep,
    only_reasoning,
    steps_without_reasoning,
)
from pytest_cepbench.chains.answers.answer_plan import (
    TOLD,
    AnswerPlan,
    PieceRefs,
    parts_of,
    refer_to_question,
)
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step, key_of, losses_key
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DamagedInputsError, DatasetError, ImageError, StoreError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import StepLimit
from pytest_cepbench.store import ArtifactRef, Store
from pytest_cepbench.store.answers import get_answers, put_answers

if TYPE_CHECKING:
    from pytest_cepbench.datasets.opening.answers import RecordedAnswers

_MOST_REPAIRS = 4  # each makes lost images again; more means a dying disk


@dataclass(frozen=True)
class AnswerModels:
    """The models that make answers, all on one store: an interleaver, or a writer and others.

    recorded: answers that another tool has made, in the place of models. Without those, and without
    an interleaver and a writer, answers are the samples' own.
    generator: draws the steps of a writer's text; None where answers have no images.
    editor: draws a step from the image before it, where there is one.
    """

    store: Store
    interleaver: RoleRunner | None = None
    writer: RoleRunner | None = None
    generator: RoleRunner | None = None
    editor: RoleRunner | None = None
    recorded: RecordedAnswers | None = None

    @property
    def bound(self) -> list[BoundRole]:
        """All of them."""
        runners = (self.interleaver, self.writer, self.generator, self.editor)
        return [runner.bound for runner in runners if runner is not None]


@dataclass
class SampleAnswer:
    """The answer to one sample's question.

    question: its pieces.
    answer: None where there is none.
    failure: why there is none.
    blamed: the role that failed.
    lost_images: the failures of single images, of steps that have a text alone now.
    keys: of the steps that made it; forgetting them makes it anew.
    cut: steps that were left out because the answer was too long.
    """

    sample: Sample
    question: PieceRefs
    answer: Answer | None = None
    failure: Failure | None = None
    blamed: str | None = None
    lost_images: list[Failure] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    cut: int = 0

    @property
    def digest(self) -> str:
        """Of the answer; empty where there is none."""
        return "" if self.answer is None else self.answer.digest


def make_answers(
    plan: AnswerPlan, samples: Sequence[Sample], models: AnswerModels
) -> list[SampleAnswer]:
    """The answer to each sample's question, from the store or the models, with all of its images.

    Answers of which the store has lost an image are made again. Raises DatasetError for questions
    that cannot be used; ModelError, CheckpointError, StoreError.
    """
    store = models.store
    questions = {sample.id: refer_to_question(sample, store) for sample in samples}
    made: dict[str, SampleAnswer] = {}
    for _ in range(_MOST_REPAIRS):
        missing = [sample for sample in samples if sample.id not in made]
        asked = [SampleAnswer(sample, questions[sample.id]) for sample in missing]
        try:
            if models.recorded is not None:
                for own in asked:
                    _read(own, models.recorded, store)
            elif models.interleaver is not None:
                _interleave(plan, asked, models.interleaver)
            elif models.writer is not None:
                _compose(plan, asked, models)
            else:
                for own in asked:
                    _take(own, store)
        except DamagedInputsError:  # what made the damaged image was forgotten
            continue
        answers = [own.answer for own in asked if own.answer is not None]
        # An interleaver's are stored, but for those that are read out of a text with reasoning.
        made_by = {"model": models.bound[0].short_fingerprint} if models.bound else {}
        put_answers(store, answers, made_by)
        whole = get_answers(store, (answer.digest for answer in answers))
        for own in asked:
            if own.answer is None or own.digest in whole:
                made[own.sample.id] = own
            else:  # a pipeline's text comes first, and is whole
                lost = own.keys[1:] or own.keys
                store.forget(lost, why="an image of the answer is damaged or gone")
        if len(made) == len(samples):
            return [made[sample.id] for sample in samples]
    raise StoreError(f"images in the store {store.root} keep getting lost: is the disk failing?")


def foresee_answers(
    plan: AnswerPlan, samples: Sequence[Sample], models: AnswerModels
) -> list[SampleAnswer]:
    """The answers as the models' runners have them; nothing is stored and nothing made again.

    models: with runners that ask no model, as for an estimate.
    """
    asked = [SampleAnswer(sample, refer_to_question(sample, models.store)) for sample in samples]
    if models.interleaver is not None:
        _interleave(plan, asked, models.interleaver)
    elif models.writer is not None:
        _compose(plan, asked, models)
    return asked


# -- another tool has made them --------------------------------------------------------------------


def _read(own: SampleAnswer, recorded: RecordedAnswers, store: Store) -> None:
    answer = recorded.answer(own.sample)
    if isinstance(answer, Failure):
        own.failure, own.blamed = answer, "replay"
        return
    own.cut = answer.cut
    steps: list[StoredStep] = []
    parts = steps_without_reasoning([(step.text, step) for step in answer.steps])
    for text, step in filter(None, parts):
        image = None if step is None else step.load_image()
        if isinstance(image, Failure):
            own.lost_images.append(image)
            image = None
        if text.strip() or image is not None:
            steps.append(StoredStep(text, None if image is None else store.put_artifact(image)))
    if not steps:
        text = "\n".join(step.text for step in answer.steps).strip()
        empty = Failure("empty-text", "an answer without steps")
        own.failure = [*own.lost_images, only_reasoning(text) if text else empty][0]
        own.blamed = "replay"
        return
    own.answer = Answer(tuple(steps))


def _take(own: SampleAnswer, store: Store) -> None:
    """The answer that the data set has. Raises DatasetError where it has none."""
    if not own.sample.answer:
        raise DatasetError(
            f"{own.sample.id}: has no answer of its own, which judges are measured on"
        )
    steps: list[StoredStep] = []
    for step in own.sample.answer:
        try:
            image = None if step.image is None else step.image.load()
        except ImageError as error:
            raise DatasetError(f"{own.sample.id}, its answer: {error}") from error
        steps.append(StoredStep(step.text, None if image is None else store.put_artifact(image)))
    own.answer = Answer(tuple(steps))


# -- one model makes texts and images --------------------------------------------------------------


def _interleave(plan: AnswerPlan, asked: Sequence[SampleAnswer], runner: RoleRunner) -> None:
    store = runner.store

    def load(limit: StepLimit, question: PieceRefs) -> Any:
        return question.load(store), limit

    steps = []
    for own in asked:
        limit, seed = plan.limit(own.sample), derive_seed(plan.seed, own.sample.id, 0)
        told = "free" if limit.told is None else str(limit.told)
        inputs = [*map(list, own.question.inputs), ["limit", f"{told} of {limit.most}"]]
        key = key_of(runner.bound, "", seed, inputs)
        steps.append(Step(key, seed, partial(load, limit, own.question)))
    results = runner.ask("interleave", steps)
    losses = store.get(losses_key(step.key) for step in steps)
    for own, step, result in zip(asked, steps, results, strict=True):
        own.keys = [step.key]
        if losses_key(step.key) in losses:
            own.cut, lost = json.loads(str(losses[losses_key(step.key)]))
            own.lost_images = [Failure(kind, detail) for kind, detail in lost]
        if isinstance(result, Failure):
            own.failure, own.blamed = result, "interleaver"
        else:
            assert isinstance(result, str)
            own.answer = Answer.from_json(result)


# -- a writer, a generator and an editor -----------------------------------------------------------


@dataclass
class _Draft:
    """An answer in the making: its texts, which of them are to be drawn, and the images so far."""

    own: SampleAnswer
    parts: list[tuple[str, bool]]
    images: dict[int, ArtifactRef] = field(default_factory=dict)

    def before(self, number: int) -> ArtifactRef | int | None:
        """The image that a step changes: of the step before, or the question's first, by place."""
        earlier = [self.images[k] for k in range(number) if k in self.images]
        if earlier:
            return earlier[-1]
        kinds = [kind for kind, _ in self.own.question.inputs]
        return kinds.index("image") if "image" in kinds else None


def _writer_step(plan: AnswerPlan, own: SampleAnswer, runner: RoleRunner) -> Step:
    """The step that writes the texts of an answer. Raises DatasetError as `AnswerPlan.limit`."""
    told, question = plan.limit(own.sample).told, own.question
    preface = "" if told is None else TOLD.format(number=told)
    seed = derive_seed(plan.seed, own.sample.id, 0)
    inputs = [["text", digest_text(preface)]] if preface else []
    key = key_of(runner.bound, plan.system, seed, [*inputs, *map(list, question.inputs)])

    def load() -> Any:
        pieces = question.load(runner.store)
        return [preface, *pieces] if preface and pieces is not None else pieces

    return Step(key, seed, load)


def _compose(plan: AnswerPlan, asked: Sequence[SampleAnswer], models: AnswerModels) -> None:
    assert models.writer is not None  # the suite assigns one where there is no interleaver
    steps = [_writer_step(plan, own, models.writer) for own in asked]
    drafts: list[_Draft] = []
    texts = models.writer.ask("write", steps, plan.system)
    for own, step, text in zip(asked, steps, texts, strict=True):
        own.keys.append(step.key)
        if isinstance(text, Failure):
            own.failure, own.blamed = text, "writer"
            continue
        parts, own.cut = parts_of(str(text), plan.limit(own.sample))
        if parts:
            drafts.append(_Draft(own, parts))
        else:
            own.failure = Failure("empty-text", "the writer's text has no step")
            own.blamed = "writer"
    if models.editor is None:
        _draw(plan, models, [(draft, k) for draft in drafts for k in _drawn(draft)])
    else:
        # An edit needs the image before it: the first step of all answers, then the second, ...
        for number in range(max((len(draft.parts) for draft in drafts), default=0)):
            _draw(plan, models, [(draft, number) for draft in drafts if number in _drawn(draft)])
    for draft in drafts:
        draft.own.answer = Answer(
            tuple(
                StoredStep(text, draft.images[k].digest if k in draft.images else None)
                for k, (text, _) in enumerate(draft.parts)
            )
        )


def _drawn(draft: _Draft) -> list[int]:
    return [number for number, (_, drawn) in enumerate(draft.parts) if drawn]


def _draw(plan: AnswerPlan, models: AnswerModels, places: Sequence[tuple[_Draft, int]]) -> None:
    """Draw steps of answers, each by the editor where there is an image to change."""
    edited = [models.editor is not None and draft.before(k) is not None for draft, k in places]
    for edits, role, method, runner in (
        (False, "generator", "generate", models.generator),
        (True, "editor", "edit", models.editor),
    ):
        own = [place for place, edit in zip(places, edited, strict=True) if edit is edits]
        if not own or runner is None:
            continue
        steps = [_image_step(plan, draft, k, runner) for draft, k in own]
        try:
            results = runner.ask(method, steps)
        except DamagedInputsError as damage:
            # The image before was lost: it is made again by what made it.
            lost = [key for i in damage.indices for key in own[i][0].own.keys[1:]]
            models.store.forget(lost, why="the image it made is damaged or gone")
            raise
        for (draft, number), step, result in zip(own, steps, results, strict=True):
            draft.own.keys.append(step.key)
            if isinstance(result, Failure):
                draft.own.lost_images.append(Failure(result.kind, f"{role}: {result.detail}"))
            else:
                assert isinstance(result, ArtifactRef)
                draft.images[number] = result


def _image_step(plan: AnswerPlan, draft: _Draft, number: int, runner: RoleRunner) -> Step:
    """The step that draws a step of an answer; an editor changes the image before it."""
    sample, question, store = draft.own.sample, draft.own.question, runner.store
    before = draft.before(number) if runner.bound.role == "editor" else None
    wording = plan.image if before is None else plan.edit
    prompt = plan.drawing_prompt(wording, draft.parts[number][0], sample)
    seed = derive_seed(plan.seed, sample.id, number + 1)
    # The finished prompt is the input: equal prompts are drawn once, whatever question they answer.
    text = ["text", digest_text(prompt)]
    if before is None:
        return Step(key_of(runner.bound, "", seed, [text]), seed, lambda: prompt)
    digest = before.digest if isinstance(before, ArtifactRef) else question.inputs[before][1]

    def load() -> Any:
        if isinstance(before, ArtifactRef):
            image = store.get_image(before.digest)
            return None if image is None else (image.to_pil(), prompt)
        pieces = question.load(store)
        return None if pieces is None else (pieces[before], prompt)

    return Step(key_of(runner.bound, "", seed, [["image", digest], text]), seed, load)
