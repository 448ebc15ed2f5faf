"""Role runners: results come from the store, and from the model in batches where missing.

A model is loaded when it is first asked; which of them lie on a device says `DeviceSwap`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_json
from pytest_cepbench.artifacts.outcome import CriteriaScores
from pytest_cepbench.chains.batching import Ask, BatchCaller, Call, CallCounts, in_batches
from pytest_cepbench.chains.steps import (
    Progress,
    Step,
    battle_inputs,
    find_truncations,
    key_of,
    load_truncations,
    loss_results,
)
from pytest_cepbench.errors import (
    CepError,
    DamagedInputsError,
    DeviceMemoryError,
    RoleError,
    in_words,
)
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import (
    CODE,
    CUT,
    ROLE_METHODS,
    AnswerScorer,
    Battle,
    Describer,
    Detector,
    Editor,
    Encoder,
    Generator,
    Interleaver,
    JsonDescriber,
    JsonWriter,
    Judge,
    Model,
    Movable,
    Reply,
    Vqa,
    Writer,
)
from pytest_cepbench.models.roles import (
    LONGEST_TEXT,
    TEXT_ROLES,
    AdmittedAnswer,
    admit_answer,
    admit_answers,
    admit_detections,
    admit_drawing,
    admit_reply,
    admit_scores,
    admit_text,
    admit_vectors,
    admit_winner,
    answer_in,
    shortened,
)
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory
from pytest_cepbench.store import ImageRef, Result, Store, StoredResult
from pytest_cepbench.store.answers import answer_results

_MOST_PROVENANCES = 1000
"""Different ones that are kept for warnings: a server may call itself anything."""

_QUICK = 0.001  # seconds of storing a result; a thread, which waits for its turns, takes longer

Results = Callable[[], list[Result]]
"""Waits until all results are stored, and returns one for each step."""


@dataclass
class RoleRunner:
    """A bound role; its model is loaded when the first result is not in the store.

    shared: the model, where other roles share it or other models are on its device.
    progress: counts every result, stored or made.
    tally: counts of the role.
    """

    bound: BoundRole
    store: Store
    shared: ModelHandle | None = None
    progress: Progress | None = None
    tally: CallCounts = field(default_factory=CallCounts)
    _answered: bool = field(init=False, default=False)
    _store_seconds: float = field(init=False, default=0.0)  # per result of the last batch

    @cached_property
    def handle(self) -> ModelHandle:
        """The model."""
        return self.shared or ModelHandle(self.bound, DeviceSwap())

    @cached_property
    def caller(self) -> BatchCaller:
        """Asks the model, in batches."""
        return BatchCaller.resume(self.bound, self.tally, self.store)

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded."""
        return self.handle.loaded

    @property
    def model(self) -> Model:
        """The loaded model.

        Raises CheckpointError or ModelError when it cannot be loaded, RoleError where it lacks a
        method of the role.
        """
        model = self.handle.model(self.tally)
        protocol, methods = ROLE_METHODS[self.bound.role]
        if not isinstance(model, protocol):  # else each batch would fail, as if the model had
            raise RoleError(
                f"{self.bound.spec} was loaded as a {type(model).__name__}, which cannot play the "
                f"{self.bound.role}: it lacks {' or '.join(methods)}"
            )
        return model

    def stored(self, steps: Sequence[Step]) -> list[Result | None]:
        """The results of steps that are in the store; nothing is counted, no model is called."""
        results = self.store.get(step.key for step in steps)
        return [self._answer(results[s.key]) if s.key in results else None for s in steps]

    def _answers(self, made: Results) -> Results:
        return lambda: [self._answer(result) for result in made()]

    def _answer(self, result: Result) -> Result:
        """What counts of a stored result: of a text with reasoning, or a very long one, a part."""
        answer = self._without_reasoning(result)
        role = self.bound.role
        return shortened(answer, role) if isinstance(answer, str) and role in TEXT_ROLES else answer

    def _without_reasoning(self, result: Result) -> Result:
        role = self.bound.role
        hides = role in TEXT_ROLES and self.bound.hides_reasoning
        return answer_in(result, role) if hides and isinstance(result, str) else result

    def provenance(self, keys: Iterable[str]) -> dict[str, dict[str, str]]:
        """How stored results came about, by key; those that are not stored are left out."""
        texts = self.store.provenance(keys)
        return {key: _read_provenance(text) for key, text in texts.items()}

    def text_notes(self, keys: Sequence[str], what: str) -> list[str]:
        """How many stored texts count in part, a sentence for people for each reason.

        keys: of their steps. what: the texts, in the plural.
        """
        stored = list(self.store.get(keys).values())
        answers = [self._without_reasoning(result) for result in stored]
        reasoned = sum(own is not result for own, result in zip(answers, stored, strict=True))
        role = self.bound.role
        long = sum(isinstance(own, str) and shortened(own, role) != own for own in answers)
        notes = []
        if reasoned:
            notes.append(
                f"{reasoned} of {len(stored)} {what} came with reasoning, which is no part of them "
                "(reasoning=keep in the spec makes it one)"
            )
        if long:
            notes.append(
                f"{long} of {len(stored)} {what} were longer than {LONGEST_TEXT:,} characters, and "
                "drawn and compared by their beginning"
            )
        return notes

    def cut_warning(self, keys: Sequence[str], what: str) -> list[str]:
        """How many stored texts ended at the limit of their length, as `text_notes`."""
        made = self.provenance(keys).values()
        count = sum(CUT.items() <= fields.items() for fields in made)
        if not count:
            return []
        warning = (
            f"{count} of {len(made)} {what} were cut at the limit of their length (max_tokens or "
            "max_new_tokens in the spec)"
        )
        return [warning]

    def key(self, prompt: str, seed: int, kind: str, digest: str) -> str:
        """Key of a step on one input artifact: everything its result depends on."""
        return key_of(self.bound, prompt, seed, [[kind, digest]])

    def describe(self, prompt: str, steps: Sequence[Step]) -> Results:
        """Ask for a text of each step; the results are texts and failures."""

        def ask(model: Describer, images: Sequence[Any], seeds: Sequence[int]) -> Call:
            return Call(partial(model.describe, images, prompt, seeds), _admit_texts)

        return self._answers(self._run(steps, ask))

    def json_key(
        self, prompt: str, schema: Mapping[str, Any], seed: int, inputs: Sequence[Sequence[str]]
    ) -> str:
        """Key of a step that asks for JSON: as other keys, and of the schema too."""
        return key_of(self.bound, prompt, seed, [*inputs, ["schema", digest_json(schema)]])

    def describe_json(self, schema: Mapping[str, Any], steps: Sequence[Step]) -> list[Result]:
        """A text or a failure for each step; keys are of `json_key`, steps load (image, prompt).

        schema: that the text should follow. A model that cannot be held to it is asked as always.
        """

        def ask(model: Describer, inputs: Sequence[Any], seeds: Sequence[int]) -> Call:
            images, prompts = zip(*inputs, strict=True)
            if isinstance(model, JsonDescriber):
                held = partial(model.describe_json, images, prompts, schema, seeds)
                return Call(held, _admit_texts)

            def make() -> Sequence[object]:
                answers: list[object] = [None] * len(images)
                for prompt in dict.fromkeys(prompts):
                    own = [i for i, other in enumerate(prompts) if other == prompt]
                    texts = model.describe(
                        [images[i] for i in own], prompt, [seeds[i] for i in own]
                    )
                    for i, text in zip(own, texts, strict=True):
                        answers[i] = text
                return answers

            return Call(make, _admit_texts)

        return self._answers(self._run(steps, ask))()

    def write_json(
        self, prompt: str, schema: Mapping[str, Any], steps: Sequence[Step]
    ) -> list[Result]:
        """As `describe_json`, of a writer; steps load the pieces of a question."""

        def ask(model: Writer, questions: Sequence[Any], seeds: Sequence[int]) -> Call:
            if isinstance(model, JsonWriter):
                held = partial(model.write_json, questions, prompt, schema, seeds)
                return Call(held, _admit_texts)
            return Call(partial(model.write, questions, prompt, seeds), _admit_texts)

        return self._answers(self._run(steps, ask))()

    def generate(self, steps: Sequence[Step]) -> Results:
        """Ask for an image of each step, whose input is the finished prompt, or a failure."""

        def ask(model: Generator, texts: Sequence[Any], seeds: Sequence[int]) -> Call:
            drawn = Call(partial(model.generate, texts, seeds))
            return self._noting_truncations(drawn, model, texts)

        return self._run(steps, ask, ahead=False)

    def encode(self, kind: str, steps: Sequence[Step]) -> list[Result]:
        """A vector or a failure for each step; kind is "image" or "text"."""

        def ask(model: Encoder, inputs: Sequence[Any], _: Sequence[int]) -> Call:
            encode = model.encode_images if kind == "image" else model.encode_texts
            # A tensor becomes an array inside of the call: its library does that.
            call = Call(
                lambda: np.asarray(encode(inputs)),
                lambda vectors: admit_vectors(vectors, len(inputs)),
            )
            return call if kind == "image" else self._noting_truncations(call, model, inputs)

        return self._run(steps, ask, ahead=kind == "image")()

    def _noting_truncations(self, call: Call, model: Model, texts: Sequence[str]) -> Call:
        """The call, which also stores the texts that the model did not read to the end."""
        truncated: list[StoredResult] = []

        def make() -> object:
            outputs = call.make()
            truncated.extend(find_truncations(self.bound, model, texts))
            return outputs

        def admit(outputs: Sequence[object]) -> Sequence[object]:
            admitted = call.admit(outputs)
            if truncated:
                self.store.put(truncated)
            return admitted

        return Call(make, admit)

    def cut_texts(self, texts: Iterable[str]) -> dict[str, str]:
        """The texts that were longer than the model reads, with "tokens of most tokens" of each.

        Known from when they were encoded or drawn, also by another run.
        """
        return load_truncations(self.bound, texts, self.store)

    def detect(self, steps: Sequence[Step]) -> list[Result]:
        """Detections or a failure for each step; steps load (image, queries)."""

        def ask(model: Detector, inputs: Sequence[Any], _: Sequence[int]) -> Call:
            images, queries = zip(*inputs, strict=True)
            admit = partial(admit_detections, queries=queries)
            return Call(partial(model.detect, images, queries), admit)

        return self._run(steps, ask)()

    def write(self, prompt: str, steps: Sequence[Step]) -> list[Result]:
        """A text or a failure for each step; steps load the pieces of a question."""

        def ask(model: Writer, questions: Sequence[Any], seeds: Sequence[int]) -> Call:
            return Call(partial(model.write, questions, prompt, seeds), _admit_texts)

        return self._answers(self._run(steps, ask))()

    def answer(self, steps: Sequence[Step]) -> list[Result]:
        """The probabilities of each step's answers, as canonical JSON, or a failure.

        Steps load (image or text, its questions).
        """

        def ask(model: Vqa, inputs: Sequence[Any], _: Sequence[int]) -> Call:
            pieces, questions = zip(*inputs, strict=True)

            def admit(replies: Sequence[object]) -> Sequence[object]:
                if len(replies) != len(questions):
                    return replies  # which is refused as it is for every role
                return [
                    admit_reply(reply, partial(admit_answers, questions=asked))
                    for reply, asked in zip(replies, questions, strict=True)
                ]

            return Call(partial(model.answer, pieces, questions), admit)

        return self._run(steps, ask)()

    def edit(self, steps: Sequence[Step]) -> list[Result]:
        """An image or a failure for each step; steps load (image, text)."""

        def ask(model: Editor, inputs: Sequence[Any], seeds: Sequence[int]) -> Call:
            images, texts = zip(*inputs, strict=True)
            return Call(partial(model.edit, images, texts, seeds))

        return self._run(steps, ask)()

    def interleave(self, steps: Sequence[Step]) -> list[Result]:
        """The canonical JSON of an answer, or a failure, for each step.

        Steps load (pieces of a question, StepLimit). The answers are stored by their digests too.
        """

        def ask(model: Interleaver, inputs: Sequence[Any], seeds: Sequence[int]) -> Call:
            questions, limits = zip(*inputs, strict=True)

            def admit(answers: Sequence[object]) -> Sequence[object]:
                if len(answers) != len(limits):
                    return answers  # which is refused as it is for every role
                own = partial(admit_answer, hides_reasoning=self.bound.hides_reasoning)
                return [
                    admit_drawing(answer, partial(own, most=limit.most))
                    for answer, limit in zip(answers, limits, strict=True)
                ]

            return Call(partial(model.interleave, questions, limits, seeds), admit)

        return self._answers(self._run(steps, ask))()

    def judge_steps(self, steps: Sequence[Step]) -> list[Result]:
        """A verdict (a `Winner`) or a failure for each step; steps load a `Battle`."""

        def ask(model: Judge, inputs: Sequence[Any], seeds: Sequence[int]) -> Call:
            return Call(partial(model.judge, inputs, seeds), _each(admit_winner))

        return self._run(steps, ask)()

    def score_steps(self, steps: Sequence[Step]) -> list[CriteriaScores]:
        """The scores of each step, all of them failures where the judge gave none.

        Steps load an `AnsweredQuestion`; the judge is one that `scores_answers`.
        """

        def ask(model: AnswerScorer, inputs: Sequence[Any], seeds: Sequence[int]) -> Call:
            return Call(partial(model.score_answers, inputs, seeds), _each(_scores_as_text))

        return [stored_scores(result) for result in self._run(steps, ask)()]

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Result]:
        """A verdict (a `Winner`) or a failure for each battle; equal battles are judged once.

        seeds: one for each battle, below 2**32.
        """

        def step(battle: Battle, seed: int) -> Step:
            key = key_of(self.bound, "", seed, battle_inputs(battle))
            return Step(key, seed, lambda: battle)

        return self.judge_steps([step(*pair) for pair in zip(battles, seeds, strict=True)])

    def _run(self, steps: Sequence[Step], ask: Ask, *, ahead: bool = True) -> Results:
        """The results of all steps, from the store or the model. ahead: read inputs on threads."""
        known = self.store.get(step.key for step in steps)
        # Steps of equal key (equal input, no seed) are asked once.
        missing = {
            step.key: i for i, step in reversed(list(enumerate(steps))) if step.key not in known
        }
        hits = len(steps) - len(missing)
        self.tally.hits += hits
        self._count(hits)
        self._note_provenances(known)
        numbered = [(i, steps[i]) for i in sorted(missing.values())]
        storing = self._make(numbered, ask, ahead=ahead) if numbered else []

        def results() -> list[Result]:
            for stored in storing:
                known.update(stored())
            return [known[step.key] for step in steps]

        return results

    def _make(
        self, numbered: Sequence[tuple[int, Step]], ask: Ask, *, ahead: bool
    ) -> list[Callable[[], dict[str, Result]]]:
        """Call the model for steps; returns what waits until each batch is stored."""
        damaged: list[int] = []  # of all batches: they are made again together

        def call(
            batch: Sequence[tuple[int, Step]], inputs: Sequence[Any]
        ) -> Callable[[], dict[str, Result]] | None:
            lost = [i for (i, _), value in zip(batch, inputs, strict=True) if value is None]
            if lost:
                damaged.extend(lost)
                return None
            steps = [step for _, step in batch]
            model = self.model
            # Some models read files at their first call, when a trainer may write there.
            files = None if self._answered else self.bound.files
            with nullcontext() if files is None else files.unchanged("the first answers were made"):
                outputs = self.caller.call(model, inputs, [step.seed for step in steps], ask)
            self._answered = True
            self._count(len(steps))
            return partial(self._store_results, steps, outputs)

        storing = in_batches(
            numbered,
            lambda: self.caller.size,
            self._writer if self._store_seconds > _QUICK else None,
            read=lambda item: item[1].load(),
            call=call,
            ahead=ahead,
        )
        self.caller.save(self.store)
        if damaged:
            raise DamagedInputsError(damaged)
        return storing

    @cached_property
    def _writer(self) -> Executor:
        """The thread that stores results, in the order in which they were made."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"store-{self.bound.role}")

    def _count(self, results: int) -> None:
        if self.progress is not None:
            self.progress.add(results)

    def _store_results(self, steps: Sequence[Step], outputs: Sequence[object]) -> dict[str, Result]:
        """Store outputs and lasting failures, and return all; another run may do better."""
        batch = {"batch": str(len(steps)), "model": self.bound.short_fingerprint}
        provenance = {**self.bound.provenance, **batch}
        started = time.thread_time()  # without the time that a thread waits for its turns
        transient: dict[str, Result] = {}
        entries = []
        for step, output in zip(steps, outputs, strict=True):
            # Here, where it may be a thread of its own: it looks at every pixel.
            drawn = self.bound.role in ("generator", "editor")
            admitted = admit_drawing(output) if drawn else output
            reply = admitted if isinstance(admitted, Reply) else Reply(admitted)
            value = reply.value
            if reply.passing and isinstance(value, Failure):
                transient[step.key] = value
                continue
            if isinstance(value, ImageArtifact):
                value = ImageRef(self.store.put_image(value))
            elif isinstance(value, AdmittedAnswer):
                answer = value.store(self.store)
                entries += answer_results(answer, provenance)
                entries += loss_results(step.key, value.lost, value.cut)
                value = answer.to_json()
            entries.append(StoredResult(step.key, value, provenance | dict(reply.provenance)))
        if self.bound.warn is not None:
            self._add_provenances(
                json.dumps(dict(entry.provenance), sort_keys=True) for entry in entries
            )
        results = self.store.put(entries) | transient
        self._store_seconds = (time.thread_time() - started) / len(steps)
        return results

    # -- where results come from -----------------------------------------------------------------

    @property
    def warnings(self) -> list[str]:
        """Sentences about results, also of earlier runs: the adapter's, on other code, and on
        trained parts that change nothing.
        """
        own = self.bound.provenance.get(CODE)
        provenances = map(_read_provenance, list(self.tally.provenances))
        warn = self.bound.warn
        adapter = () if warn is None else warn([fields for fields in provenances if fields])
        idle = [f"{remark}. Has its training begun?" for remark in self.bound.idle().remarks]
        return [*adapter, *idle] + [
            f"the {self.bound.role}'s answers were made by {code} and come out of the store; it is "
            f"{own} now, under the same fingerprint: give the model another one if the change can "
            "change an answer"
            for code in self.tally.codes
        ]

    def _note_provenances(self, keys: Iterable[str]) -> None:
        """Note other versions of the user's code, and what the adapter warns of, in stored results.

        Neither is looked up for a model that has no such code and gives no such warnings.
        """
        own = self.bound.provenance.get(CODE)
        if own is None and self.bound.warn is None:
            return
        texts = self.store.provenance(keys).values()
        if own is not None:
            codes = {_read_provenance(text).get(CODE, own) for text in set(texts)}
            self.tally.codes |= dict.fromkeys(sorted(codes - {own}))
        if self.bound.warn is not None:
            self._add_provenances(texts)

    def _add_provenances(self, texts: Iterable[str]) -> None:
        known = self.tally.provenances
        for text in texts:
            if len(known) >= _MOST_PROVENANCES:
                return
            known[text] = None


def _each(admit: Callable[[object], object]) -> Callable[[Sequence[object]], Sequence[object]]:
    return lambda outputs: [admit_reply(output, admit) for output in outputs]


_admit_texts = _each(admit_text)


def _read_provenance(text: str) -> dict[str, str]:
    """The texts of a provenance, which may come from any store and hold anything."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(fields, dict):
        return {}
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def _scores_as_text(value: object) -> object:
    scores = admit_scores(value)
    return scores if isinstance(scores, Failure) else scores.to_json()


def stored_scores(result: Result) -> CriteriaScores:
    """The scores of a stored result; all of them failures where it is one, or no scores."""
    if isinstance(result, Failure):
        return CriteriaScores.failed(result)
    try:
        return CriteriaScores.from_json(str(result))
    except ValueError as error:  # a shared store may hold anything under a key
        return CriteriaScores.failed(Failure("no-score", str(error)))


class DeviceSwap:
    """The models on each device.

    swap: one model at a time on each device, where it cannot hold several.
    begin: called once, before the first model is loaded.
    """

    def __init__(self, *, swap: bool = False, begin: Callable[[], None] | None = None) -> None:
        self.swap = swap
        self._begin = begin
        self._resident: dict[str, list[ModelHandle]] = {}

    def make_room(self, handle: ModelHandle) -> None:
        """Unload others where a model needs the device; called before it is loaded or moved."""
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()
        resident = self._resident.setdefault(handle.device, [])
        if self.swap:
            for neighbours in self._resident.values():
                for neighbour in [other for other in neighbours if other.meets(handle)]:
                    neighbour.unload()
                    neighbours.remove(neighbour)
            resident[:] = [handle]
        elif not any(neighbour is handle for neighbour in resident):
            resident.append(handle)

    def unload_all(self) -> None:
        """Free all devices; models come back when they are asked again."""
        for resident in self._resident.values():
            for handle in resident:
                handle.unload()
            resident.clear()


class ModelHandle:
    """A model of one role, or of several that share it: loaded when it is first asked for.

    bound: how it is loaded, and where it works; of roles that share one model any will do.
    residency: the models that are on the device.
    """

    def __init__(self, bound: BoundRole, residency: DeviceSwap) -> None:
        self.residency = residency
        self._bound = bound
        self._model: Model | None = None
        self._in_host_memory = False
        self._fault: CepError | None = None

    @property
    def device(self) -> str:
        """Where the model works."""
        return self._bound.device

    def meets(self, other: ModelHandle) -> bool:
        """Whether it is another model that lies on a device of that one.

        A model whose parts a library placed lies on all accelerators of the process.
        """
        if other is self or self.device == other.device:
            return other is not self
        divided = self._bound.dispatched or other._bound.dispatched
        return divided and "cpu" not in (self.device, other.device)

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded."""
        return self._model is not None

    def model(self, tally: CallCounts) -> Model:
        """The loaded model, on its device.

        tally: counts of the role that asks. Raises CheckpointError or ModelError when the model
        cannot be loaded: the same error every time, since what is wrong with a checkpoint or a
        server would cost every case its time.
        """
        if self._fault is not None:
            raise self._fault
        self.residency.make_room(self)
        if self._model is None:
            self._model = self._load(tally)
        elif self._in_host_memory and isinstance(self._model, Movable):
            self._move_back(self._model, tally)
        self._in_host_memory = False
        return self._model

    def unload(self) -> None:
        """Free the device: the weights wait in host memory, or are loaded again."""
        if self._model is None or self._in_host_memory:
            return
        stays = self.device == "cpu" or self._bound.dispatched
        if isinstance(self._model, Movable) and not stays:
            self._model.move("cpu")
            self._in_host_memory = True
        elif not self._bound.lasting:
            self._model = None
        release_memory()

    def _load(self, tally: CallCounts) -> Model:
        try:
            with tally.timed():
                model = self._bound.load()
        except DeviceMemoryError:
            raise  # there may be room another time
        except CepError as error:
            self._fault = error.with_traceback(None)
            raise
        tally.loads += 1
        return model

    def _move_back(self, model: Movable, tally: CallCounts) -> None:
        try:
            with tally.timed():
                model.move(self.device)
        except Exception as error:
            # Another process took the memory; whatever else a library raises is a bug.
            if not is_out_of_memory(error):
                raise
            raise DeviceMemoryError(
                f"{self._bound.spec} has no room on {self.device} any more ({in_words(error)}). "
                "Give it a device of its own (device=, --cep-devices-per-worker), device_map= or "
                "offload="
            ) from error
