"""One role at work: the store is asked first, the model in batches for what is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from typing import Any

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.chains.batching import Ask, BatchCaller, CallCounts, TransientFailure, in_words
from pytest_cepbench.chains.device_swap import DeviceSwap
from pytest_cepbench.chains.model_handle import ModelHandle
from pytest_cepbench.chains.pipeline import in_batches
from pytest_cepbench.chains.progress import Progress
from pytest_cepbench.chains.steps import Step, key_of, pieces
from pytest_cepbench.chains.throughput import Throughput, habit_of, note_habit
from pytest_cepbench.chains.truncation_log import known_cuts, note_cuts
from pytest_cepbench.chains.validation import (
    admit_detections,
    admit_image,
    admit_reply,
    admit_text,
    admit_vectors,
    admit_winner,
)
from pytest_cepbench.errors import CepError, DamagedInputsError
from pytest_cepbench.models.protocols import (
    CODE,
    Battle,
    BoundRole,
    Describer,
    Detector,
    Encoder,
    Generator,
    Judge,
    Model,
    Reply,
)
from pytest_cepbench.models.torch_runtime import device_memory
from pytest_cepbench.store import ImageRef, Result, Store, StoredResult

_MOST_PROVENANCES = 1000
"""Different ones that are kept for what people are told: a server may call itself anything."""

_NOTE_SECONDS = 20.0  # between notes of a role's pace

_QUICK = (
    0.001  # seconds of storing a result; on a thread, which waits for its turns, it takes longer
)

Results = Callable[[], list[Result]]
"""Waits until all results are stored, and gives one for each step. The model has been asked before."""


def codes_of(provenances: Mapping[str, str]) -> set[str]:
    """The code that results name in what is kept beside them; of earlier versions they name none."""
    every = map(_read_provenance, set(provenances.values()))
    return {said[CODE] for said in every if CODE in said}


def _read_provenance(text: str) -> dict[str, str]:
    """What a provenance says in texts; it may have come from anywhere."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    return {name: value for name, value in said.items() if isinstance(value, str)}


@dataclass
class RoleRunner:
    """A bound role, loaded when the first input is not in the store.

    given: the model, where other roles share it or others are on its device. progress: told of
    every result, found or made.
    """

    bound: BoundRole
    store: Store
    given: ModelHandle | None = None
    progress: Progress | None = None
    tally: CallCounts = field(default_factory=CallCounts)
    _answered: bool = field(init=False, default=False)
    _noted: float = field(init=False, default=-inf)
    _storing: float = field(init=False, default=0.0)  # seconds per result of the last batch

    @cached_property
    def holding(self) -> ModelHandle:
        """Its model."""
        return self.given or ModelHandle(self.bound, DeviceSwap())

    @cached_property
    def caller(self) -> BatchCaller:
        """Asks the model; begins with the batch that fitted in an earlier run."""
        habit = habit_of(self.bound, self.store)
        size = self.bound.batch_size if habit is None else habit.batch_size
        if not self.bound.grows:
            size = min(size, self.bound.batch_size)
        room = device_memory(self.bound.device) if self.bound.grows else None
        return BatchCaller(self.bound, self.tally, size, room)

    @property
    def batch_size(self) -> int:
        """Most inputs in one call, as it stands."""
        return self.caller.size

    @property
    def loaded(self) -> bool:
        """Whether the model is at hand."""
        return self.holding.loaded

    @property
    def model(self) -> Model:
        """The loaded model. Raises CheckpointError or ModelError when it cannot be loaded."""
        return self.holding.model(self.tally)

    def look(self, steps: Sequence[Step]) -> list[Result | None]:
        """What the store has of the steps; nothing is counted, no model is asked."""
        found = self.store.get(step.key for step in steps)
        return [found.get(step.key) for step in steps]

    def key(self, prompt: str, seed: int, kind: str, digest: str) -> str:
        """Key of a step on one input artifact: everything its result depends on."""
        return key_of(self.bound, prompt, seed, [[kind, digest]])

    def describe(self, prompt: str, steps: Sequence[Step]) -> Results:
        """Ask for a text of each step; the results are texts and failures."""

        def ask(model: Model, images: Sequence[Any], seeds: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Describer)
            texts = model.describe(images, prompt, seeds)
            return [admit_reply(text, admit_text) for text in texts]

        return self._run(steps, ask)

    def generate(self, steps: Sequence[Step]) -> Results:
        """Ask for an image of each step, which loads the finished prompt; images in the store, failures."""

        def ask(model: Model, texts: Sequence[Any], seeds: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Generator)
            images = model.generate(texts, seeds)
            note_cuts(self.bound, model, texts, self.store)
            return images

        return self._run(steps, ask, ahead=False)

    def encode(self, kind: str, steps: Sequence[Step]) -> list[Result]:
        """A vector or a failure for each step; kind is "image" or "text"."""

        def ask(model: Model, inputs: Sequence[Any], _: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Encoder)
            encode = model.encode_images if kind == "image" else model.encode_texts
            vectors = admit_vectors(encode(inputs), len(inputs))
            if kind == "text":
                note_cuts(self.bound, model, inputs, self.store)
            return vectors

        return self._run(steps, ask, ahead=kind == "image")()

    def cut_texts(self, texts: Iterable[str]) -> dict[str, str]:
        """Those of the texts that were longer than the model reads -> "tokens of most tokens".

        Known from when they were encoded or drawn, also by another run.
        """
        return known_cuts(self.bound, texts, self.store)

    def detect(self, steps: Sequence[Step]) -> list[Result]:
        """Detections or a failure for each step; steps load (image, queries)."""

        def ask(model: Model, inputs: Sequence[Any], _: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Detector)
            images, queries = zip(*inputs, strict=True)
            return admit_detections(model.detect(images, queries), queries)

        return self._run(steps, ask)()

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Result]:
        """A verdict (a `Winner`) or a failure for each battle; equal ones are judged once.

        seeds: one for each battle, below 2**32.
        """

        def ask(model: Model, inputs: Sequence[Any], seeds: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Judge)
            return [admit_reply(one, admit_winner) for one in model.judge(inputs, seeds)]

        def step(battle: Battle, seed: int) -> Step:
            return Step(key_of(self.bound, "", seed, pieces(battle)), seed, lambda: battle)

        return self._run([step(*pair) for pair in zip(battles, seeds, strict=True)], ask)()

    def _run(self, steps: Sequence[Step], ask: Ask, *, ahead: bool = True) -> Results:
        """The results of all steps, out of the store or of the model. ahead: inputs are read on threads."""
        found = self.store.get(step.key for step in steps)
        # Steps of equal key (equal input, no seed) are asked once.
        missing = {
            step.key: i for i, step in reversed(list(enumerate(steps))) if step.key not in found
        }
        self._did(hits=len(steps) - len(missing))
        self._compare_code(found)
        self._note_provenances(found)
        places = [(i, steps[i]) for i in sorted(missing.values())]
        storing = self._make(places, ask, ahead=ahead) if places else []

        def results() -> list[Result]:
            for part in storing:
                found.update(part())
            return [found[step.key] for step in steps]

        return results

    def _ask(self, inputs: Sequence[Any], seeds: Sequence[int], ask: Ask) -> list[Any]:
        """What the model says. Some read files at their first answers, when a trainer may write there."""
        model, files = self.model, self.bound.files
        if files is None or self._answered:
            return self.caller.call(model, inputs, seeds, ask)
        with files.unchanged("the first answers were made"):
            outputs = self.caller.call(model, inputs, seeds, ask)
        self._answered = True
        return outputs

    def _compare_code(self, found: Iterable[str]) -> None:
        """Note under which other code of the user's stored answers were made."""
        own = self.bound.provenance.get(CODE)
        if own is not None:
            self.tally.codes |= dict.fromkeys(codes_of(self.store.provenance(found)) - {own})

    def _note_provenances(self, found: Iterable[str]) -> None:
        """Keep what people are told of stored results."""
        if self.bound.warn is not None:
            self._add_provenances(self.store.provenance(found).values())

    def _add_provenances(self, texts: Iterable[str]) -> None:
        known = self.tally.provenances
        for text in texts:
            if len(known) >= _MOST_PROVENANCES:
                return
            known[text] = None

    def _told(self) -> Sequence[str]:
        """What the adapter has to tell of its results, also of those of earlier runs."""
        if self.bound.warn is None:
            return ()
        every = [said for text in list(self.tally.provenances) if (said := _read_provenance(text))]
        return self.bound.warn(every)

    @property
    def warnings(self) -> list[str]:
        """What the adapter tells of results, and that stored ones were made by other code than the
        model's; a sentence for each.
        """
        own = self.bound.provenance.get(CODE)
        return [*self._told()] + [
            f"the {self.bound.role}'s answers were made by {code} and come out of the store; it is {own} "
            "now, under the same fingerprint: give the model another one if the change can change an "
            "answer"
            for code in self.tally.codes
        ]

    def _make(
        self, places: Sequence[tuple[int, Step]], ask: Ask, *, ahead: bool
    ) -> list[Callable[[], dict[str, Result]]]:
        damaged: list[int] = []  # of all batches: they are made again together
        before = self.caller.size

        def call(
            batch: Sequence[tuple[int, Step]], inputs: Sequence[Any]
        ) -> Callable[[], dict[str, Result]] | None:
            gone = [i for (i, _), value in zip(batch, inputs, strict=True) if value is None]
            if gone:
                damaged.extend(gone)
                return None
            steps = [step for _, step in batch]
            outputs = self._ask(inputs, [step.seed for step in steps], ask)
            self._did(made=len(steps))
            return partial(self._keep, steps, outputs)

        storing = in_batches(
            places,
            lambda: self.caller.size,
            self._keeper if self._storing > _QUICK else None,
            read=lambda place: place[1].load(),
            call=call,
            ahead=ahead,
        )
        self._note_habit(before)
        if damaged:
            raise DamagedInputsError(damaged)
        return storing

    @cached_property
    def _keeper(self) -> Executor:
        """The thread that stores results, in the order in which they were made."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"keep-{self.bound.role}")

    def _did(self, *, hits: int = 0, made: int = 0) -> None:
        self.tally.hits += hits
        if self.progress is not None:
            self.progress.did(hits + made)

    def _note_habit(self, before: int) -> None:
        """Keep what was learned: at once where the size changed, else now and then."""
        caller, now = self.caller, time.monotonic()
        if caller.pace is None or (caller.size == before and now - self._noted < _NOTE_SECONDS):
            return
        self._noted = now
        note_habit(self.bound, Throughput(caller.size, caller.pace), self.store)

    def _keep(self, steps: Sequence[Step], outputs: Sequence[object]) -> dict[str, Result]:
        """Store what counts; failures by exception are passing and may go better another time."""
        provenance = dict(self.bound.provenance) | {
            "batch": str(len(steps)),
            "model": self.bound.short_fingerprint,
        }
        started = time.thread_time()  # a thread's turns are waited for, and not to be counted
        passing: dict[str, Result] = {}
        entries = []
        for step, output in zip(steps, outputs, strict=True):
            reply = output if isinstance(output, Reply) else Reply(output)
            made = self._admit(reply.value) if self.bound.role == "generator" else reply.value
            if reply.passing and isinstance(made, Failure):
                made = TransientFailure(made)
            if isinstance(made, TransientFailure):
                passing[step.key] = made.failure
                continue
            if isinstance(made, ImageArtifact):
                made = ImageRef(self.store.put_image(made))
            told = provenance | dict(reply.provenance) if reply.provenance else provenance
            entries.append(StoredResult(step.key, made, told))
        if self.bound.warn is not None:
            self._add_provenances(
                json.dumps(dict(one.provenance), sort_keys=True) for one in entries
            )
        kept = self.store.put(entries) | passing
        self._storing = (time.thread_time() - started) / len(steps)
        return kept

    def _admit(self, drawn: object) -> ImageArtifact | Failure | TransientFailure:
        """A drawing, checked; on a thread, since it looks at every pixel."""
        if isinstance(drawn, TransientFailure):
            return drawn
        try:
            return admit_image(drawn)
        except CepError:
            raise
        except Exception as error:  # noqa: BLE001 - a picture of a user's model may raise anything
            return TransientFailure(Failure("exception", in_words(error)))
