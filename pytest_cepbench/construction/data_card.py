"""The card of a frozen data set: where it comes from, who labelled it, and how to use it.

Of a set that was passed on without its images, they are written where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.construction.folder import (
    ConstructionFolder,
    ModelRecord,
    NearDuplicates,
    PatternCounts,
)
from pytest_cepbench.construction.frozen_set import (
    CARD,
    MANIFEST,
    FrozenImage,
    FrozenSet,
    image_list_name,
    label_index_name,
    manifest_with_images,
    read_manifest,
    shown_members,
    table_path,
    written_table,
)
from pytest_cepbench.construction.source_images import load_image
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.escapes import quote_toml, visible
from pytest_cepbench.files import digest_bytes
from pytest_cepbench.metrics.judge_agreement import RatedThings, alpha_estimate
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.report.markdown import escaped

_WITH_IMAGES = "the images are in the table; their licences are those of their source"

_WITHOUT_IMAGES = (
    "the images are not in it: paths and digests stand for them; their licences are those of their "
    "source"
)

_ADD_IMAGES = (
    "The table with the images is written where they are: "
    "`cepbench dataset freeze FOLDER --copy --images DIR`."
)


def write_card(
    frozen: FrozenSet, counts: PatternCounts | None, near: NearDuplicates | None, *, copy: bool
) -> str:
    """The card as Markdown; names and texts of models stand in it as they are, and do nothing.

    counts: of extraction, where it was done. near: where an encoder has looked for duplicates.
    copy: whether the images are in the table.
    """
    lines = [f"# {escaped(frozen.name)}", ""]
    lines += [f"- {escaped(line, 500)}" for line in _facts(frozen, counts, near, copy=copy)]
    lines += ["", "## Patterns", "", *_patterns(frozen)]
    lines += [
        "",
        "## Labels of people",
        "",
        *(f"- {escaped(line, 500)}" for line in _votes(frozen)),
    ]
    lines += ["", "## Models", ""]
    for stage, model in frozen.labelled.construction.models.items():
        lines += _model(stage, model)
    lines += ["## Use", "", *_use(frozen, copy=copy)]
    return "\n".join(lines).rstrip() + "\n"


def card_with_images(card: str) -> str:
    """The card of a set without its images, once they are in the table."""
    with_images = card.replace(f"\n- {_WITHOUT_IMAGES}\n", f"\n- {_WITH_IMAGES}\n", 1)
    return with_images.replace(f"\n{_ADD_IMAGES}\n\n", "\n", 1)


def _facts(
    frozen: FrozenSet, counts: PatternCounts | None, near: NearDuplicates | None, *, copy: bool
) -> Iterator[str]:
    labelled = frozen.labelled
    chosen, construction = labelled.chosen, labelled.construction
    every = labelled.source.records
    yield (
        f"{len(labelled.records)} images in {len(frozen.members)} patterns, an image may be in "
        f"several; chosen of {len(every)}"
    )
    if chosen.sampling == "quota":
        yield (
            f"chosen by quotas of {chosen.per_pattern} images for each pattern, the rarest first, "
            "in order of digests: a larger set contains a smaller one"
        )
    else:
        yield (
            f"each image of a pattern of N drawn with the probability {chosen.per_pattern} / N, "
            f"seed {chosen.seed}; {chosen.expected:g} images were to be expected"
        )
    same = sum(len(record.same) for record in every)
    yield f"{same} files of the source were left out, since another has the same pixels"
    if construction.unreadable:
        yield f"{len(construction.unreadable)} files held no image that can be read"
    if near is None:
        yield "nobody looked for near duplicates (--encoder)"
    else:
        yield (
            f"{near.count} pairs of images have a cosine above {near.limit:g}: near duplicates, "
            "none of which was left out"
        )
    yield f"prompts: {construction.prompts}, examples in them: {construction.examples}"
    if counts is not None:
        failed = ", ".join(f"{kind} {number}" for kind, number in counts.failures.items())
        yield (
            f"extraction: {len(counts.patterns)} names in {counts.annotations} annotations of "
            f"{counts.images} images; failures: {failed or 'none'}"
        )
        held = "held all of them" if counts.examples == "paper" else "held none of them"
        yield (
            f"{100 * counts.example_share:.1f} % of the annotations are example names of the "
            f"paper; the prompt {held}"
        )
    yield _WITH_IMAGES if copy else _WITHOUT_IMAGES


def _patterns(frozen: FrozenSet) -> Iterator[str]:
    sentences = {pattern.name: pattern.sentence for pattern in frozen.labelled.patterns}
    yield "| pattern | images | changed by people | what it is |"
    yield "|---|---:|---:|---|"
    for name, images, changed in shown_members(frozen):
        yield f"| {escaped(name)} | {images} | {changed} | {escaped(sentences[name], 500)} |"
    bare = sum(not label.patterns for label in frozen.labels.values())
    if bare:
        yield ""
        yield f"{bare} images have no pattern that is left: they count in the whole alone."
    without = [name for name in sentences if name not in frozen.members]
    if without:
        yield ""
        yield f"Without an image: {escaped(', '.join(without), 500)}."


def _votes(frozen: FrozenSet) -> Iterator[str]:
    labels = list(frozen.labels.values())
    annotators = {name for people in frozen.people.labels.values() for name in people}
    verified = len(labels) - frozen.unverified
    yield (
        f"{verified} of {len(labels)} images were checked, by {len(annotators)} people; final "
        "labels are the majority of the model and those who looked, and of the latter where it "
        "is a tie"
    )
    if frozen.unverified:
        yield f"{frozen.unverified} images have the labels of the model alone"
    changed = sum(label.changed for label in labels)
    disputed = sum(bool(label.disputed) for label in labels)
    yield f"{changed} images have other labels than the model gave; on {disputed} not all agreed"
    yield from _agreement(frozen)
    if frozen.people.outside:
        yield f"{frozen.people.outside} ticks are of names that have left the list: dropped"
    yield from frozen.people.remarks


def _agreement(frozen: FrozenSet) -> Iterator[str]:
    """Krippendorff's alpha of labels, yes or no for each image and pattern, by image."""
    names = frozen.labelled.names
    people = sorted({name for labels in frozen.people.labels.values() for name in labels})
    ratings = np.full((len(people) + 1, len(frozen.labels) * len(names)), np.nan)
    for place, image in enumerate(frozen.labels):
        own = slice(place * len(names), (place + 1) * len(names))
        model = frozen.labelled.labels.get(image, ())
        ratings[0, own] = [name in model for name in names]
        for person, labels in frozen.people.labels.get(image, {}).items():
            ratings[1 + people.index(person), own] = [name in labels for name in names]
    owners = np.repeat(np.arange(len(frozen.labels)), len(names))
    for who, rows in (("people", ratings[1:]), ("people and the model", ratings)):
        alpha = alpha_estimate(RatedThings(rows, owners), "nominal")
        if alpha.value is not None and alpha.low is not None and alpha.high is not None:
            yield (
                f"agreement of {who}: Krippendorff's alpha {alpha.value:.2f}, 95 % interval "
                f"{alpha.low:.2f} to {alpha.high:.2f}, over {alpha.items} images"
            )


def _model(stage: str, model: ModelRecord) -> Sequence[str]:
    lines = [
        f"### {escaped(stage)}",
        "",
        f"- {escaped(model.role)}: {escaped(model.spec, 500)} ({escaped(model.what)})",
        f"- adapter {escaped(model.adapter)}, fingerprint {model.fingerprint}",
    ]
    if model.prompt:
        what = "prompt, with the frequencies of counts.json," if stage == "summary" else "prompt,"
        lines += [f"- {what} digest {model.prompt_digest}:", ""]
        lines += [f"      {visible(line)}" for line in model.prompt.splitlines()]
    return [*lines, ""]


def _use(frozen: FrozenSet, *, copy: bool) -> Iterator[str]:
    if not copy:
        yield _ADD_IMAGES
        yield ""
    table, labels = quote_toml(f"{frozen.name}.tsv"), quote_toml(label_index_name(frozen.name))
    yield "In a suite:"
    yield ""
    yield "    [data]"
    yield '    loader = "mmgenbench"'
    yield f"    options = {{ file = {table}, labels = {labels} }}"


def add_images(folder: Path, images: Path) -> list[Path]:
    """Write the table of images into a frozen set that has none; returns what was written.

    images: the folder in which they lie by the paths of the set's list.
    Raises DatasetError where the set is of another kind, has its images already or is damaged, and
    for an image that is not there or has other pixels; WriteError.
    """
    manifest = read_manifest(folder)
    name: str = manifest["name"]
    if manifest.get("kind") != "patterns" or unsafe(name) or "/" in name or "\\" in name:
        raise DatasetError(
            f"{str(folder)!r} is no set of patterns: only such sets are frozen without images"
        )
    if manifest.get("images_copied"):
        raise DatasetError(
            f"{str(folder)!r} has its images already, in {table_path(folder, name).name}"
        )
    for file in (label_index_name(name), image_list_name(name)):
        _check_file(folder / file, manifest["files"].get(file))
    listed = ConstructionFolder(folder).read_lines(image_list_name(name), FrozenImage)
    table = table_path(folder, name)
    with written_table(_load(folder, listed, images), table) as digest:
        text = manifest_with_images((folder / MANIFEST).read_text("utf-8"), name, digest)
    contents: dict[Path, bytes | None] = {folder / MANIFEST: text.encode()}
    card = folder / CARD
    if card.is_file():
        contents[card] = card_with_images(card.read_text("utf-8")).encode()
    replace_files(folder, contents)
    return [table, *reversed(contents)]


def _check_file(path: Path, digest: object) -> None:
    try:
        same = digest_bytes(path.read_bytes()) == digest
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    if not same:
        raise DatasetError(
            f"{str(path)!r} is not the file that was frozen ({MANIFEST}): get the set anew"
        )


def _load(
    folder: Path, listed: list[FrozenImage], images: Path
) -> Iterator[tuple[int, ImageArtifact]]:
    for record in listed:
        reason = unsafe(record.path)
        if reason is not None:
            raise DatasetError(f"{str(folder)!r}, image {record.index}: {reason}")
        yield record.index, load_image(images, record.path, record.image)
