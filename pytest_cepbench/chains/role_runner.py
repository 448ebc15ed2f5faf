"""Role runners: results come from the store, and from the model in batches where missing.

A model is loaded when it is first asked; which of them lie on a device says `DeviceSwap`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import MODALITIES, Artifact, Failure, canonical_json, digest_json
from pytest_cepbench.artifacts.modality import modality_of
from pytest_cepbench.chains.batching import BatchCaller, CallCounts, in_batches
from pytest_cepbench.chains.steps import Progress, Step, key_of, length_key, losses_key
from pytest_cepbench.errors import (
    CepError,
    DamagedInputsError,
    DeviceMemoryError,
    ModelError,
    RoleError,
    in_words,
)
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import CODE, CUT, CountsTokens, Model, Movable, Reply
from pytest_cepbench.models.roles import (
    LONGEST_TEXT,
    METHODS,
    ROLES,
    CheckedAnswer,
    Method,
    Role,
    check_drawn,
)
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory
from pytest_cepbench.store import ArtifactRef, Result, Store, StoredResult
from pytest_cepbench.store.answers import answer_results

_MOST_PROVENANCES = 1000
"""Different ones that are kept for warnings: a server may call itself anything."""


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
    _dimensions: dict[str, int] = field(init=False, default_factory=dict)  # of vectors, by method
    # Of stored texts by key, since every case asks anew.
    _faults: dict[str, tuple[bool, bool, bool]] = field(init=False, default_factory=dict)

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
        if not isinstance(model, self._role.protocol):  # each batch would fail, as if it had
            raise RoleError(
                f"{self.bound.spec} was loaded as a {type(model).__name__}, which cannot play the "
                f"{self.bound.role}: it lacks {' or '.join(map(str, self._role.required))}"
            )
        return model

    @property
    def _role(self) -> Role:
        return ROLES[self.bound.role]

    def stored(self, steps: Sequence[Step]) -> list[Result | None]:
        """The results of steps that are in the store; nothing is counted, no model is called."""
        results = self.store.get(step.key for step in steps)
        for key in _unfit(results, self._role.methods[0]):
            del results[key]
        return [self._answer(results[s.key]) if s.key in results else None for s in steps]

    def _answer(self, result: Result) -> Result:
        """What counts of a stored result: of a text with reasoning, or a very long one, a part."""
        answer = self._without_reasoning(result)
        texts = isinstance(answer, str) and self._role.answer_in is not None
        return self._role.beginning(str(answer)) if texts else answer

    def _without_reasoning(self, result: Result) -> Result:
        answer_in = self._role.answer_in
        if answer_in is None or not isinstance(result, str) or not self.bound.hides_reasoning:
            return result
        return answer_in(result)

    def text_notes(self, keys: Sequence[str], what: str) -> tuple[list[str], list[str]]:
        """How many stored texts count in part, and how many ended at the limit of their length.

        Sentences for people, notes and then warnings. keys: of their steps. what: the texts, in the
        plural.
        """
        new = [key for key in dict.fromkeys(keys) if key not in self._faults]
        made = self.store.provenance(new)
        for key, stored in self.store.get(new).items():
            answer = self._without_reasoning(stored)
            long = isinstance(answer, str) and self._role.beginning(answer) != answer
            cut = CUT.items() <= _read_provenance(made.get(key, "")).items()
            self._faults[key] = answer is not stored, long, cut
        known = [self._faults[key] for key in dict.fromkeys(keys) if key in self._faults]
        reasoned, long_texts, cut_texts = (sum(own[which] for own in known) for which in range(3))
        notes, of_all = [], f"of {len(known)} {what}"
        if reasoned:
            notes.append(
                f"{reasoned} {of_all} came with reasoning, which is no part of them "
                "(reasoning=keep in the spec makes it one)"
            )
        if long_texts:
            notes.append(
                f"{long_texts} {of_all} were longer than {LONGEST_TEXT:,} characters, and drawn "
                "and compared by their beginning"
            )
        limit = "the limit of their length (max_tokens or max_new_tokens in the spec)"
        return notes, [f"{cut_texts} {of_all} were cut at {limit}"] if cut_texts else []

    def key(self, prompt: str, seed: int, kind: str, digest: str) -> str:
        """Key of a step on one input artifact: everything its result depends on."""
        return key_of(self.bound, prompt, seed, [[kind, digest]])

    def json_key(
        self, prompt: str, schema: Mapping[str, Any], seed: int, inputs: Sequence[Sequence[str]]
    ) -> str:
        """Key of a step that asks for JSON: as other keys, and of the schema too."""
        return key_of(self.bound, prompt, seed, [*inputs, ["schema", digest_json(schema)]])

    def cut_texts(self, texts: Iterable[str]) -> dict[str, str]:
        """The texts that were longer than the model reads, with "tokens of most tokens" of each.

        Known from when they were encoded or drawn, also by another run.
        """
        keys = {length_key(self.bound, text): text for text in texts}
        return {keys[key]: str(lengths) for key, lengths in self.store.get(keys).items()}

    def ask(self, method: str, steps: Sequence[Step], *shared: Any) -> list[Result]:
        """The result of each step, a failure where the model gave none.

        method: name of one of the role's `METHODS`; steps load its inputs. shared: its other
        arguments. Raises DamagedInputsError for inputs that the store has lost, what loading the
        model raises, ModelError, StoreError.
        """
        asked = METHODS[method]
        assert asked in self._role.methods, f"a {self.bound.role} is not asked to {method}"
        known = self.store.get(step.key for step in steps)
        if unfit := _unfit(known, asked):
            self.store.forget(unfit, why=f"no result of a {self.bound.role}")
            known = {key: result for key, result in known.items() if key not in unfit}
        # Steps of equal key (equal input, no seed) are asked once.
        missing = {
            step.key: i for i, step in reversed(list(enumerate(steps))) if step.key not in known
        }
        hits = len(steps) - len(missing)
        self.tally.hits += hits
        if self.progress is not None:
            self.progress.add(hits)
        self._note_provenances(known)
        numbered = [(i, steps[i]) for i in sorted(missing.values())]
        for stored in self._make(numbered, asked, shared) if numbered else ():
            known.update(stored())
        for length in {len(own) for own in known.values() if isinstance(own, np.ndarray)}:
            if self._dimensions.setdefault(method, length) != length:
                raise ModelError(
                    f"{self.bound.spec} gives vectors of {self._dimensions[method]} and of {length}"
                    " numbers: an encoder has one dimension, and another fingerprint where that "
                    "has changed since it was stored"
                )
        return [self._answer(known[step.key]) for step in steps]

    def _make(
        self, numbered: Sequence[tuple[int, Step]], method: Method, shared: Sequence[Any]
    ) -> list[Callable[[], dict[str, Result]]]:
        """Call the model for steps; returns what waits until each batch is stored."""
        damaged: list[int] = []  # of all batches: they are made again together
        truncated: list[StoredResult] = []
        made_by = {"model": self.bound.short_fingerprint}

        def ask(model: Any, inputs: Sequence[Any], seeds: Sequence[int]) -> Callable[[], object]:
            arguments, of_model = method.arguments(inputs, shared, seeds), method.of(model)

            def call() -> object:
                outputs = method.convert(of_model(*arguments))
                if method.reads_texts and isinstance(model, CountsTokens):
                    lengths, most = model.text_lengths(inputs)
                    truncated.extend(
                        StoredResult(length_key(self.bound, text), f"{length} of {most}", made_by)
                        for text, length in zip(inputs, lengths, strict=True)
                        if length > most
                    )
                return outputs

            return call

        def check(outputs: Sequence[object], inputs: Sequence[Any]) -> Sequence[object]:
            checked = method.check(outputs, inputs, self.bound)
            if truncated:  # stored before the outputs: those are not asked for again
                self.store.put(truncated)
                truncated.clear()
            return checked

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
                seeds = [step.seed for step in steps]
                spent = self.tally.usage.cost
                outputs = self.caller.call(model, inputs, seeds, ask, check)
            self._answered = True
            if self.progress is not None:
                self.progress.add(len(steps), self.tally.usage.cost - spent)
            return partial(self._store_results, method, steps, outputs)

        storing = in_batches(
            numbered,
            lambda: self.caller.size,
            self._writer if method.draws else None,  # images take their time
            read=lambda item: item[1].load(),
            call=call,
            ahead=not method.reads_texts,
        )
        self.caller.save(self.store)
        if damaged:
            raise DamagedInputsError(damaged)
        return storing

    @cached_property
    def _writer(self) -> Executor:
        """The thread that stores results, in the order in which they were made."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"store-{self.bound.role}")

    def _store_results(
        self, method: Method, steps: Sequence[Step], outputs: Sequence[object]
    ) -> dict[str, Result]:
        """Store outputs and lasting failures, keep the others for the run, and return all."""
        batch = {"batch": str(len(steps)), "model": self.bound.short_fingerprint}
        provenance = {**self.bound.provenance, **batch}
        passing: dict[str, Failure] = {}
        entries = []
        for step, output in zip(steps, outputs, strict=True):
            # Here, where it may be a thread of its own: it looks at every pixel.
            checked = check_drawn(output) if method.draws else output
            reply = checked if isinstance(checked, Reply) else Reply(checked)
            value = reply.value
            if reply.passing and isinstance(value, Failure):
                passing[step.key] = value
                self.tally.passing += 1
                continue
            if isinstance(value, Artifact):
                kind = modality_of(value)
                if kind != self.bound.makes:
                    raise ModelError(
                        f"{self.bound.spec} is to make {MODALITIES[self.bound.makes].made}, and "
                        f"returned a {type(value).__name__}"
                    )
                value = ArtifactRef(self.store.put_artifact(value), kind)
            elif isinstance(value, CheckedAnswer):
                answer = value.store(self.store)
                entries += answer_results(answer, provenance)
                if value.lost or value.cut:
                    lost = [[failure.kind, failure.detail] for failure in value.lost]
                    losses = canonical_json([value.cut, lost])
                    entries.append(StoredResult(losses_key(step.key), losses))
                value = answer.to_json()
            entries.append(StoredResult(step.key, value, provenance | dict(reply.provenance)))
        if self.bound.warn is not None:
            self._add_provenances(
                json.dumps(dict(entry.provenance), sort_keys=True) for entry in entries
            )
        return self.store.put(entries) | self.store.keep_failures(passing)

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


def _unfit(results: Mapping[str, Result], method: Method) -> list[str]:
    """Keys of results that no step of this method has; a store may hold anything under a key."""
    kinds = (method.kept, Failure)
    return [key for key, result in results.items() if not isinstance(result, kinds)]


def _read_provenance(text: str) -> dict[str, str]:
    """The texts of a provenance, which may come from any store and hold anything."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(fields, dict):
        return {}
    return {name: value for name, value in fields.items() if isinstance(value, str)}


class DeviceSwap:
    """The models on each device.

    swap: one model at a time on each device, where it cannot hold several.
    """

    def __init__(self, *, swap: bool = False) -> None:
        self.swap = swap
        self._resident: list[ModelHandle] = []

    def make_room(self, handle: ModelHandle) -> None:
        """Unload others where a model needs the device; called before it is loaded or moved."""
        for other in list(self._resident) if self.swap else ():
            # A model whose parts a library placed lies on all accelerators of the process.
            divided = handle.dispatched or other.dispatched
            beside = divided and "cpu" not in (handle.device, other.device)
            if other is not handle and (other.device == handle.device or beside):
                other.unload()
                self._resident.remove(other)
        if handle not in self._resident:
            self._resident.append(handle)


class ModelHandle:
    """A model of one role, or of several that share it: loaded when it is first asked for.

    bound: how it is loaded, and where it works; of roles that share one model any will do.
    residency: the models that are on the device.
    """

    def __init__(self, bound: BoundRole, residency: DeviceSwap) -> None:
        self.residency = residency
        self._bound = bound
        self.device, self.dispatched = bound.device, bound.resources.dispatched
        self._model: Model | None = None
        self._in_host_memory = False
        self._fault: CepError | None = None

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
            try:
                with tally.timed():
                    self._model = self._bound.load()
            except DeviceMemoryError:
                raise  # there may be room another time
            except CepError as error:
                self._fault = error.with_traceback(None)
                raise
            tally.loads += 1
        elif self._in_host_memory and isinstance(self._model, Movable):
            try:
                with tally.timed():
                    self._model.move(self.device)
            except Exception as error:
                # Another process took the memory; whatever else a library raises is a bug.
                if not is_out_of_memory(error):
                    raise
                raise DeviceMemoryError(
                    f"{self._bound.spec} has no room on {self.device} any more ({in_words(error)})."
                    " Give it a device of its own (device=, --cep-devices-per-worker), device_map= "
                    "or offload="
                ) from error
        self._in_host_memory = False
        return self._model

    def unload(self) -> None:
        """Free the device: the weights wait in host memory, or are loaded again."""
        if self._model is None or self._in_host_memory:
            return
        stays = self.device == "cpu" or self.dispatched
        if isinstance(self._model, Movable) and not stays:
            self._model.move("cpu")
            self._in_host_memory = True
        elif not self._bound.resources.lasting:
            self._model = None
        release_memory()
