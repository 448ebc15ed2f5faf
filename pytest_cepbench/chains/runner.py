"""One role at work: the store is asked first, the model in batches for what is missing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_json, digest_text
from pytest_cepbench.chains.admit import (
    admit_detections,
    admit_image,
    admit_text,
    admit_vectors,
)
from pytest_cepbench.errors import CepError, ModelError
from pytest_cepbench.models.roles import (
    BoundRole,
    CountsTokens,
    Describer,
    Detector,
    Encoder,
    Generator,
    Model,
)
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory
from pytest_cepbench.store import ImageRef, Result, Store, StoredResult

STEP_VERSION = 1
"""Enters every key; raised when the same key would come to mean another result."""


@dataclass(frozen=True)
class Step:
    """One input of a role.

    key: names the result for ever. seed: of this step. load: gives the input when a model needs
    it: a Pillow image, a text, or an image with queries, or None when a stored image turned out to be
    damaged.
    """

    key: str
    seed: int
    load: Callable[[], Any]


@dataclass
class Tally:
    """What a role did in this process."""

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    seconds: float = 0.0


def total(tallies: Iterable[Tally]) -> Tally:
    """What several roles did together."""
    together = Tally()
    for tally in tallies:
        together.loads += tally.loads
        together.inputs += tally.inputs
        together.hits += tally.hits
        together.seconds += tally.seconds
    return together


class DamagedInputsError(Exception):
    """Stored images that steps start from are damaged; indices: which steps."""

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__(f"{len(indices)} stored inputs are damaged")
        self.indices = tuple(indices)


Ask = Callable[[Model, Sequence[Any], Sequence[int]], Sequence[object]]


@dataclass
class RoleRunner:
    """A bound role, loaded when the first input is not in the store.

    batch_size: most inputs in one call; starts as the role's, is halved when memory runs out.
    """

    bound: BoundRole
    store: Store
    tally: Tally = field(default_factory=Tally)
    batch_size: int = field(init=False)
    _model: Model | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.batch_size = self.bound.batch_size

    @property
    def model(self) -> Model:
        """The loaded model. Raises CheckpointError or ModelError when it cannot be loaded."""
        if self._model is None:
            with self._at_work():
                self._model = self.bound.load()
            self.tally.loads += 1
        return self._model

    def key(self, prompt: str, seed: int, kind: str, digest: str) -> str:
        """Key of a step on one input artifact: everything its result depends on."""
        return digest_json(
            {
                "step": STEP_VERSION,
                "role": self.bound.role,
                **self.bound.identity,
                "prompt": prompt,
                "seed": seed if self.bound.seeded else None,
                "inputs": [[kind, digest]],
            }
        )

    def describe(self, prompt: str, steps: Sequence[Step]) -> list[Result]:
        """A text or a failure for each step."""

        def ask(model: Model, images: Sequence[Any], seeds: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Describer)
            return [admit_text(text) for text in model.describe(images, prompt, seeds)]

        return self._run(steps, ask)

    def generate(self, steps: Sequence[Step]) -> list[Result]:
        """An image in the store or a failure for each step; steps load the finished prompt."""

        def ask(model: Model, texts: Sequence[Any], seeds: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Generator)
            images = [admit_image(image) for image in model.generate(texts, seeds)]
            self._note_cuts(model, texts)
            return images

        return self._run(steps, ask)

    def encode(self, kind: str, steps: Sequence[Step]) -> list[Result]:
        """A vector or a failure for each step; kind is "image" or "text"."""

        def ask(model: Model, inputs: Sequence[Any], _: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Encoder)
            encode = model.encode_images if kind == "image" else model.encode_texts
            vectors = admit_vectors(encode(inputs), len(inputs))
            if kind == "text":
                self._note_cuts(model, inputs)
            return vectors

        return self._run(steps, ask)

    def cut_texts(self, texts: Iterable[str]) -> dict[str, str]:
        """Those of the texts that were longer than the model reads -> "tokens of most tokens".

        Known from when they were encoded or drawn, also by another run.
        """
        keys = {self._cut_key(text): text for text in texts}
        return {keys[key]: str(found) for key, found in self.store.get(keys).items()}

    def _note_cuts(self, model: Model, texts: Sequence[str]) -> None:
        """Store which texts were cut, before what the model made of them: that is not asked again."""
        if not isinstance(model, CountsTokens):
            return
        lengths, most = model.text_lengths(texts)
        cut = [
            StoredResult(self._cut_key(text), f"{length} of {most}")
            for text, length in zip(texts, lengths, strict=True)
            if length > most
        ]
        if cut:
            self.store.put(cut)

    def _cut_key(self, text: str) -> str:
        return self.key("tokens", 0, "text", digest_text(text))

    def detect(self, steps: Sequence[Step]) -> list[Result]:
        """Detections or a failure for each step; steps load (image, queries)."""

        def ask(model: Model, inputs: Sequence[Any], _: Sequence[int]) -> Sequence[object]:
            assert isinstance(model, Detector)
            images, queries = zip(*inputs, strict=True)
            return admit_detections(model.detect(images, queries), queries)

        return self._run(steps, ask)

    def _run(self, steps: Sequence[Step], ask: Ask) -> list[Result]:
        found = self.store.get(step.key for step in steps)
        # Steps of equal key (equal input, no seed) are asked once.
        missing = {
            step.key: i for i, step in reversed(list(enumerate(steps))) if step.key not in found
        }
        self.tally.hits += len(steps) - len(missing)
        order = sorted(missing.values())
        low = 0
        damaged: list[int] = []  # of all batches: they are made again together
        while low < len(order):
            part = order[low : low + self.batch_size]
            try:
                found |= self._ask_batch([steps[i] for i in part], part, ask)
            except DamagedInputsError as damage:
                damaged += damage.indices
            low += len(part)
        if damaged:
            raise DamagedInputsError(damaged)
        return [found[step.key] for step in steps]

    def _ask_batch(
        self, steps: Sequence[Step], indices: Sequence[int], ask: Ask
    ) -> dict[str, Result]:
        inputs = [step.load() for step in steps]
        damaged = [i for i, value in zip(indices, inputs, strict=True) if value is None]
        if damaged:
            raise DamagedInputsError(damaged)
        outputs = self._call(inputs, [step.seed for step in steps], ask)
        return self._keep(steps, outputs)

    def _call(self, inputs: Sequence[Any], seeds: Sequence[int], ask: Ask) -> list[object]:
        """Ask the model; halve the batch when it does not fit or when one input spoils it."""
        model = self.model
        try:
            with self._at_work():
                outputs = list(ask(model, inputs, seeds))
        except CepError:
            raise
        except Exception as error:  # noqa: BLE001 - any exception of a model is an outcome (design 4)
            # The exception itself is let go: its traceback holds the tensors that did not fit.
            no_memory, words = is_out_of_memory(error), f"{type(error).__name__}: {error}"[:300]
        else:
            if len(outputs) != len(inputs):
                msg = f"{self.bound.spec} returned {len(outputs)} results for {len(inputs)} inputs"
                raise ModelError(msg)
            self.tally.inputs += len(inputs)
            return outputs
        if no_memory:
            release_memory()
        if len(inputs) == 1:
            return [self._single_failure(words, no_memory=no_memory)]
        half = (len(inputs) + 1) // 2
        if no_memory:
            self.batch_size = half
        halves = (slice(0, half), slice(half, None))
        return [output for part in halves for output in self._call(inputs[part], seeds[part], ask)]

    def _single_failure(self, words: str, *, no_memory: bool) -> _Passing:
        if no_memory:
            msg = (
                f"{self.bound.spec} runs out of memory on a single input: use a smaller dtype, "
                f"smaller images, or a larger device ({words})"
            )
            raise ModelError(msg)
        return _Passing(Failure("exception", words))

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Count the time of a model's own code, and keep its libraries' warnings warnings.

        Under a user's `-W error` a deprecation inside a library would be a failed step otherwise.
        """
        started = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                yield
        finally:
            self.tally.seconds += time.perf_counter() - started

    def _keep(self, steps: Sequence[Step], outputs: Sequence[object]) -> dict[str, Result]:
        """Store what counts; failures by exception are passing and may go better another time."""
        provenance = dict(self.bound.provenance) | {"batch": str(len(steps))}
        passing: dict[str, Result] = {}
        entries = []
        for step, output in zip(steps, outputs, strict=True):
            if isinstance(output, _Passing):
                passing[step.key] = output.failure
                continue
            if isinstance(output, ImageArtifact):
                output = ImageRef(self.store.put_image(output))  # noqa: PLW2901 - the image, now by name
            entries.append(StoredResult(step.key, output, provenance))  # type: ignore[arg-type] # admit_* return results
        return self.store.put(entries) | passing


@dataclass(frozen=True)
class _Passing:
    """A failure that is counted now and not stored."""

    failure: Failure
