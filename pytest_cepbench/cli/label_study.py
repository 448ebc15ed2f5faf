"""The ratings folder of drawn battles: what people see, without a word on which model made what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains.answers.answer_plan import PieceRefs
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.gate.labels.label_file import DrawnBattle
from pytest_cepbench.ratings.items import make_item, write_study
from pytest_cepbench.ratings.known_items import known_items
from pytest_cepbench.ratings.records import Item, Part, Source, Study
from pytest_cepbench.store import ImageRef, Store
from pytest_cepbench.suites.answer_data import Opponents
from pytest_cepbench.suites.answer_run import AnswerRun


def write_label_study(
    folder: Path,
    run: AnswerRun,
    opponents: Opponents,
    drawn: Mapping[str, DrawnBattle],
    annotators: tuple[str, ...],
    overlap: int,
) -> None:
    """Write a study of pairs: the drawn battles whose answers differ, with practice and checks.

    annotators: names of the people. overlap: how many of them judge each battle.
    The candidate's answer is the first option of its item; pages show it on either side.
    Raises DatasetError for people or images that cannot be used, and WriteError.
    """
    samples = [s for s in run.data.dataset.samples if s.id in drawn]
    open_samples = [s for s in samples if not drawn[s.id].battle.decided]
    items: list[Item] = []
    sources: list[Source] = []
    images: dict[str, ImageArtifact] = {}
    made = ((run.model_record()["spec"], "candidate"), (opponents.identity, "opponent"))
    for pair in run.data.pairs(open_samples, opponents):
        assert pair.candidate is not None
        assert pair.opponent is not None
        sides = [pair.candidate, pair.opponent]
        names = [spec for spec, _ in made]
        item = make_item(
            "pair",
            _parts(pair.question),
            [_parts(side) for side in sides],
            probability=drawn[pair.sample].probability,
        )
        items.append(item)
        sources += [
            Source(
                item=item.item,
                option=option.option,
                model=name,
                sample=pair.sample,
                suite=run.suite.name,
            )
            for option, name in zip(item.options, names, strict=True)
        ]
        images |= _images((pair.question, *sides), run.data.store)
    count = len(run.data.dataset.samples)
    study = Study(
        kind="pair",
        suite=run.suite.name,
        annotators=annotators,
        overlap=overlap,
        share=1.0,
        probability=len(drawn) / count,
        population=count,
    )
    known, known_images = known_items(study, items, images)
    write_study(folder, study, [*items, *known], images | known_images, sources)


def _parts(refs: PieceRefs) -> list[Part]:
    return [
        Part(text=piece) if isinstance(piece, str) else Part(image=digest)
        for piece, (_, digest) in zip(refs.pieces, refs.inputs, strict=True)
    ]


def _images(every: Iterable[PieceRefs], store: Store) -> dict[str, ImageArtifact]:
    """Every image that pieces name, by digest. Raises DatasetError for one that is gone."""
    images: dict[str, ImageArtifact] = {}
    for refs in every:
        for piece, (_, digest) in zip(refs.pieces, refs.inputs, strict=True):
            if isinstance(piece, str) or digest in images:
                continue
            image = store.get_image(digest) if isinstance(piece, ImageRef) else piece.load()
            if image is None:
                raise DatasetError(
                    f"{refs.name}: an image is damaged or gone: run the command again"
                )
            images[digest] = image
    return images
