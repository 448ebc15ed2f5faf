"""Small roles for the chains' tests: real plug-ins whose answers follow from their inputs alone.

`answer` (one input) or `batch` (all of them) makes one misbehave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, ImageArtifact, digest_text
from pytest_cepbench.chains import ChainModels, ChainPlan, Modality, RoleRunner, Trace
from pytest_cepbench.chains.features import trace
from pytest_cepbench.chains.growth import ChainGroup
from pytest_cepbench.chains.steps import Step, key_of
from pytest_cepbench.datasets.sample import DrawnImage, Sample
from pytest_cepbench.models.binding import BoundRole, Resources
from pytest_cepbench.models.protocols import Battle, Model, RoleName
from pytest_cepbench.store import Result, Store
from tests.artifacts.files import noise

PLAN = ChainPlan("image", 4, "describe", "draw: {description}")
TEXT_PLAN = ChainPlan("text", 4, "describe", "draw: {description}")


def describe_image(image: Image.Image, prompt: str, seed: int | None) -> Any:
    """A text that names pixels, prompt and seed."""
    return f"{ImageArtifact.from_pil(image).digest[:16]} {prompt} {seed}"


def draw_text(text: str, seed: int | None) -> Any:
    """Pixels that name text and seed."""
    return noise(6, 8, seed=int.from_bytes(sha256(f"{text}\0{seed}".encode()).digest()[:8], "big"))


def vector_of(value: Image.Image | str) -> Any:
    """A vector that names an image or a text."""
    name = value if isinstance(value, str) else ImageArtifact.from_pil(value).digest
    seed = int.from_bytes(sha256(name.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).normal(size=5).astype(np.float32)


def find_all(image: Image.Image, queries: Sequence[str]) -> Any:
    """A box of the image's size for every query; the scores name image and query."""
    digest = ImageArtifact.from_pil(image).digest
    scores = [sha256(f"{digest}{query}".encode()).digest()[0] / 255 for query in queries]
    box = (0.0, 0.0, float(image.width), float(image.height))
    return Detections.sort([Detection(*item, box) for item in zip(queries, scores, strict=True)])


@dataclass
class SmallRole:
    """Answers each input by itself.

    calls: the inputs of each call, images by their digests. seeded: whether answers name the seed.
    """

    answer: Callable[..., Any]
    batch: Callable[[Sequence[Any]], object] = lambda _: None
    seeded: bool = False
    calls: list[list[Any]] = field(default_factory=list)

    @property
    def asked(self) -> list[Any]:
        """The inputs of all calls."""
        return [own for call in self.calls for own in call]

    @property
    def batches(self) -> list[int]:
        """How many inputs each call had."""
        return [len(call) for call in self.calls]

    def reply(
        self, inputs: Sequence[Any], *others: Sequence[Any], noted: Iterable[Any] | None = None
    ) -> list[Any]:
        """An answer for each input and what belongs to it; noted: as what the inputs are kept."""
        names = (
            ImageArtifact.from_pil(own).digest if isinstance(own, Image.Image) else own
            for own in inputs
        )
        self.calls.append(list(names if noted is None else noted))
        self.batch(inputs)
        return [self.answer(*row) for row in zip(inputs, *others, strict=True)]

    def own(self, seeds: Sequence[int]) -> list[int | None]:
        """The seeds, as far as they count."""
        return [seed if self.seeded else None for seed in seeds]


@dataclass
class SmallDescriber(SmallRole):
    """A describer."""

    answer: Callable[..., Any] = describe_image

    def describe(self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]) -> Any:
        """One text per image."""
        return self.reply(images, [prompt] * len(images), self.own(seeds))


@dataclass
class SmallGenerator(SmallRole):
    """A generator whose pictures depend on the seed."""

    answer: Callable[..., Any] = draw_text
    seeded: bool = True

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """One picture per text."""
        return self.reply(texts, self.own(seeds))


@dataclass
class SmallEncoder(SmallRole):
    """An encoder of images and texts. most: words of a text that it reads."""

    answer: Callable[..., Any] = vector_of
    most: int = 1000

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """One vector per image."""
        return np.stack(self.reply(images))

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """One vector per text, of its beginning."""
        read = [" ".join(text.split(" ")[: self.most]) for text in texts]
        return np.stack(self.reply(read, noted=texts))


@dataclass
class TruncatingEncoder(SmallEncoder):
    """An encoder that says how many words texts have."""

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Words of each text, and the most that are read."""
        return [len(text.split()) for text in texts], self.most


@dataclass
class SmallDetector(SmallRole):
    """A detector that finds every query once, with a score that follows from image and query."""

    answer: Callable[..., Any] = find_all

    def detect(self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]) -> Any:
        """One answer per image."""
        return self.reply(images, queries, noted=map(tuple, queries))


def bound(role: RoleName, model: Any, **changes: Any) -> BoundRole:
    """A model bound to a role; fields can be changed by name."""

    def load() -> Model:
        loaded: Model = model
        return loaded

    fields: dict[str, Any] = {
        "role": role,
        "spec": f"python:tests:{role}",
        "what": type(model).__name__,
        "fingerprint": "weights-1",
        "adapter": "test/1",
        "load": load,
        "seeded": getattr(model, "seeded", True),
    }
    resources = {name: changes.pop(name) for name in vars(Resources()) if name in changes}
    return BoundRole(**(fields | changes), resources=Resources(**resources))


@dataclass(frozen=True)
class RunnerSet:
    """Runners that grow and compare chains."""

    describer: RoleRunner
    generator: RoleRunner
    encoder: RoleRunner
    store: Store

    @property
    def asked(self) -> list[int]:
        """Inputs that describer, generator and encoder answered."""
        return [own.tally.inputs for own in (self.describer, self.generator, self.encoder)]

    def models(self, stand_ins: Mapping[tuple[Modality, int], RoleRunner] = {}) -> ChainModels:
        """Those that grow chains, with others at some hops."""
        return ChainModels(self.describer, self.generator, self.store, stand_ins)


def grow_and_trace(plan: ChainPlan, samples: Sequence[Sample], runners: RunnerSet) -> list[Trace]:
    """Grow the chain of every sample and trace it over the generations of its start's modality."""
    generations = range(2, plan.generations + 1, 2)
    group = ChainGroup(plan, samples, runners.models())
    return group.read(lambda chains: trace(chains, generations, runners.encoder, runners.store))


def make_runners(
    store: Store,
    describer: SmallDescriber | None = None,
    generator: SmallGenerator | None = None,
    encoder: SmallEncoder | None = None,
    *,
    every: Mapping[str, Any] | None = None,
    only: Mapping[RoleName, Mapping[str, Any]] | None = None,
) -> RunnerSet:
    """Runners of three roles on one store; every, only: fields to change of all or single roles."""
    cast: dict[RoleName, SmallDescriber | SmallGenerator | SmallEncoder] = {
        "describer": describer or SmallDescriber(),
        "generator": generator or SmallGenerator(),
        "encoder": encoder or SmallEncoder(),
    }
    runners = {
        role: RoleRunner(
            bound(role, model, **{**(every or {}), **(only or {}).get(role, {})}), store
        )
        for role, model in cast.items()
    }
    return RunnerSet(**runners, store=store)


def samples(count: int) -> list[Sample]:
    """Samples with an image and a text, each of its own."""
    return [
        Sample(f"s{i:02}", ("c",), image=DrawnImage(partial(_draw, i)), text=f"text {i}")
        for i in range(count)
    ]


def _draw(number: int) -> ImageArtifact:
    return ImageArtifact(noise(6, 8, seed=number))


def outcomes(traces: Sequence[Trace]) -> dict[str, tuple[Any, ...]]:
    """What came of each sample: artifacts, similarities, failure."""
    return {
        trace.chain.sample.id: (
            tuple(link.digest for link in trace.chain.links),
            trace.similarities,
            trace.failure,
            trace.failed_at,
        )
        for trace in traces
    }


def inputs_of(*models: SmallRole) -> int:
    """How many inputs the models were asked about."""
    return sum(len(model.asked) for model in models)


def battle_inputs(battle: Battle) -> list[list[str]]:
    """The inputs of a verdict: every text and image, in order, and which part it belongs to."""
    parts = {"question": battle.question, "first": battle.first, "second": battle.second}
    return [
        [part, "text", digest_text(piece)]
        if isinstance(piece, str)
        else [part, "image", ImageArtifact.from_pil(piece).digest]
        for part, pieces in parts.items()
        for piece in pieces
    ]


def verdicts_of(
    runner: RoleRunner, battles: Sequence[Battle], seeds: Sequence[int]
) -> list[Result]:
    """A verdict or a failure for each battle."""

    def step(battle: Battle, seed: int) -> Step:
        return Step(key_of(runner.bound, "", seed, battle_inputs(battle)), seed, lambda: battle)

    return runner.ask("judge", [step(*pair) for pair in zip(battles, seeds, strict=True)])
