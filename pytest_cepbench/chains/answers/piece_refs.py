"""Questions and answers by kind and digest of their pieces, and as models take them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.chains.chain import load_image
from pytest_cepbench.chains.growth import digest_of_image
from pytest_cepbench.datasets.opening.answers import RecordedAnswer
from pytest_cepbench.datasets.sample import FileImage, Sample, SeedImage
from pytest_cepbench.errors import DatasetError, ImageError
from pytest_cepbench.models.protocols import Piece
from pytest_cepbench.store import ImageRef, Store


@dataclass(frozen=True)
class PieceRefs:
    """Texts and images in reading order, images not loaded.

    name: of what they are, for errors.
    pieces: texts, images of a data set, and images in the store.
    inputs: kind and digest of each.
    """

    name: str
    pieces: tuple[str | SeedImage | ImageRef, ...]
    inputs: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """Digest of all pieces, in order."""
        return digest_json(self.inputs)

    def load(self, store: Store) -> list[Piece] | None:
        """The pieces as models take them; None where a stored image is damaged or gone.

        Raises ImageError for an image of the data set that has changed.
        """
        loaded: list[Piece] = []
        for piece, (_, digest) in zip(self.pieces, self.inputs, strict=True):
            if isinstance(piece, str):
                loaded.append(piece)
                continue
            source = None if isinstance(piece, ImageRef) else piece
            image = load_image(digest, source, self.name, store)
            if image is None:
                return None
            loaded.append(image)
        return loaded


def refer_to_question(sample: Sample, store: Store) -> PieceRefs:
    """The question of a sample. Raises DatasetError where it has none, or an image that is none."""
    if not sample.question:
        raise DatasetError(f"{sample.id}: has no question: the suite asks for interleaved answers")
    return _refer(f"{sample.id}, its question", sample.question, store)


def refer_to_gold(sample: Sample, store: Store) -> PieceRefs | None:
    """The reference answer of a sample, where it has one. Raises DatasetError as above."""
    pieces = _pieces((step.text, step.image) for step in sample.gold)
    return _refer(f"{sample.id}, its reference answer", pieces, store) if pieces else None


def refer_to_answer(answer: Answer, sample_id: str) -> PieceRefs:
    """A stored answer."""
    pieces: list[str | ImageRef] = []
    for step in answer.steps:
        pieces += [step.text] if step.text else []
        pieces += [ImageRef(step.image)] if step.image is not None else []
    inputs = tuple(
        ("text", digest_text(piece)) if isinstance(piece, str) else ("image", piece.digest)
        for piece in pieces
    )
    return PieceRefs(f"{sample_id}, an answer", tuple(pieces), inputs)


def refer_to_recorded(answer: RecordedAnswer, sample_id: str, store: Store) -> PieceRefs:
    """An answer that another tool has made, its images in their files, with those that are there.

    Its digest is that of the same answer in the store. Raises DatasetError for an image that is
    none.
    """
    files = (s.image if isinstance(s.image, FileImage) else None for s in answer.steps)
    pieces = _pieces(zip((step.text for step in answer.steps), files, strict=True))
    return _refer(f"{sample_id}, an answer", pieces, store)


def _pieces(steps: Iterable[tuple[str, SeedImage | None]]) -> tuple[str | SeedImage, ...]:
    """The texts and images of steps in reading order, without those that are not there."""
    return tuple(
        piece for text, image in steps for piece in (text or None, image) if piece is not None
    )


def _refer(name: str, pieces: tuple[str | SeedImage, ...], store: Store) -> PieceRefs:
    try:
        inputs = tuple(
            ("text", digest_text(piece))
            if isinstance(piece, str)
            else ("image", digest_of_image(piece, store))
            for piece in pieces
        )
    except ImageError as error:
        raise DatasetError(f"{name}: {error}") from error
    return PieceRefs(name, pieces, inputs)
