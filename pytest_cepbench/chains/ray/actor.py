"""The actor's side: one model in a process of its own, bound, loaded and asked where it runs."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench._version import __version__
from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.stamps import FileStamp
from pytest_cepbench.chains.batching import in_words
from pytest_cepbench.chains.ray.messages import (
    ActorFault,
    ActorReady,
    ActorReply,
    ActorRequest,
    ActorSetup,
    fault_of,
    not_here,
)
from pytest_cepbench.chains.validation import (
    admit_detections,
    admit_image,
    admit_reply,
    admit_text,
    admit_vectors,
    admit_winner,
)
from pytest_cepbench.errors import CepError
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.fingerprint_check import CoveredFiles
from pytest_cepbench.models.protocols import (
    Battle,
    BindContext,
    BoundRole,
    CountsTokens,
    Model,
    Reply,
)
from pytest_cepbench.models.registry import bind
from pytest_cepbench.models.torch_runtime import release_memory

_HIDE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


_FIRST = "the first answers were made"


class ChainActor:
    """A model and how it is asked. node: the name of the node, for people."""

    def __init__(self, order: ActorSetup, node: str) -> None:
        self._order = order
        self._node = node
        self._model: Model | None = None
        self._unread: CoveredFiles | None = None  # files that the first answers may read
        self._digests: dict[str, str] = dict(order.digests)
        if order.gpus == 0:  # Ray may leave them visible to those that asked for none
            os.environ.update(dict.fromkeys(_HIDE, ""))
        if order.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(order.threads)

    def bind(self) -> ActorReady | ActorFault:
        """Resolve the spec here. Gives what a user has to know as a fault."""
        try:
            return self._ready(self._bound())
        except Exception as error:  # noqa: BLE001 - it is raised again in the driver
            return fault_of(error)

    def load(self) -> ActorReady | ActorFault:
        """Resolve the spec and load the model."""
        started = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                bound = self._bound()
                self._model = bound.load()
                self._unread = bound.files
        except Exception as error:  # noqa: BLE001 - as above
            fault = fault_of(error)
        else:
            ready = self._ready(bound)
            counts = isinstance(self._model, CountsTokens)
            return replace(ready, counts=counts, seconds=time.perf_counter() - started)
        release_memory()
        return fault

    def answer(self, asked: ActorRequest) -> ActorReply | ActorFault:
        """What the model makes of a batch, checked, and made plain."""
        assert self._model is not None
        try:
            with nullcontext() if self._unread is None else self._unread.unchanged(_FIRST):
                answer = _answer(self._model, asked)
        except Exception as error:  # noqa: BLE001 - an outcome; the caller in the driver tells which
            fault = fault_of(error)
        else:
            self._unread = None
            return answer
        if fault.memory:
            release_memory()  # not before the error and the tensors in its traceback are gone
        return fault

    def _bound(self) -> BoundRole:
        order = self._order
        context = BindContext(self._hash, order.threads)
        return bind(order.spec, order.role, context, force=order.force)

    def _ready(self, bound: BoundRole) -> ActorReady:
        return ActorReady(
            replace(bound, load=not_here, files=None),
            self._node,
            f"{__version__} {platform.python_version()}",
            digests=dict(self._digests),
        )

    def _hash(self, path: Path) -> str:
        stamp = FileStamp.of(path)
        name = stamp_of(path, stamp)
        if name not in self._digests:
            with open_regular(path) as stream:
                found = file_digest(stream, "sha256").hexdigest()
            if stamp != FileStamp.of(path) or not stamp.settled:
                return found
            self._digests[name] = found
        return self._digests[name]


def stamp_of(path: Path, stamp: FileStamp) -> str:
    """What a file has in common with none of other content: nobody sets its change time at will."""
    return f"{path.resolve()} {stamp}"


def _answer(model: Any, asked: ActorRequest) -> ActorReply:
    act = _ACTS[asked.method]
    inputs = [_as_given(one) for one in asked.inputs]
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as in process: a library's deprecation is no failed step
        value = act(model, inputs, *asked.rest)
        lengths = None
        if asked.method in ("generate", "encode_texts") and isinstance(model, CountsTokens):
            lengths = model.text_lengths(inputs)
    return ActorReply(value, lengths, time.perf_counter() - started)


def _as_given(one: Any) -> Any:
    """An input as roles take it: pixels are Pillow images."""
    if isinstance(one, Battle):
        pieces = (
            [_as_given(piece) for piece in part] for part in (one.question, one.first, one.second)
        )
        return Battle(*pieces)
    return Image.fromarray(one) if isinstance(one, np.ndarray) else one


def _describe(model: Any, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[Any]:
    texts = model.describe(images, prompt, seeds)
    return [admit_reply(text, _plain_text) for text in texts]


def _plain_text(text: object) -> str | Failure:
    admitted = admit_text(text)
    return admitted if isinstance(admitted, Failure) else str.__str__(admitted)


def _generate(model: Any, texts: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
    return [_plain_drawing(drawn) for drawn in model.generate(texts, seeds)]


def _plain_drawing(drawn: object) -> object:
    """Pixels, a failure, or a reply around one; an exception of a drawing is a passing failure."""
    try:
        return admit_reply(drawn, _pixels)
    except CepError:
        raise
    except Exception as error:  # noqa: BLE001 - a picture of a user's model may raise anything
        return Reply(Failure("exception", in_words(error)), passing=True)


def _pixels(drawn: object) -> npt.NDArray[np.uint8] | Failure:
    admitted = admit_image(drawn)
    return admitted.pixels if isinstance(admitted, ImageArtifact) else admitted


def _encode_images(model: Any, images: Sequence[Any]) -> npt.NDArray[np.float32]:
    return _rows(model.encode_images(images), len(images))


def _encode_texts(model: Any, texts: Sequence[Any]) -> npt.NDArray[np.float32]:
    return _rows(model.encode_texts(texts), len(texts))


def _rows(value: object, expected: int) -> npt.NDArray[np.float32]:
    admit_vectors(value, expected)  # raises where they are none
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(np.float32)


def _detect(model: Any, images: Sequence[Any], queries: Sequence[Sequence[str]]) -> list[Any]:
    return list(admit_detections(model.detect(images, queries), queries))


def _judge(model: Any, battles: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
    return [admit_reply(one, admit_winner) for one in model.judge(battles, seeds)]


def _text_lengths(model: Any, texts: Sequence[Any]) -> tuple[list[int], int]:
    lengths, most = model.text_lengths(texts)
    return list(lengths), most


_ACTS: Mapping[str, Callable[..., Any]] = {
    "describe": _describe,
    "generate": _generate,
    "encode_images": _encode_images,
    "encode_texts": _encode_texts,
    "detect": _detect,
    "judge": _judge,
    "text_lengths": _text_lengths,
}
