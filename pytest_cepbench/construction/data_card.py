"""The card of a frozen data set: where it comes from, who labelled it, and how to use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_cepbench.construction.frozen_set import FrozenSet, label_index_name, shown_members
from pytest_cepbench.construction.records import (
    ModelRecord,
    NearDuplicates,
    PatternCounts,
)
from pytest_cepbench.escapes import quote_toml, visible
from pytest_cepbench.metrics.arena.rater_agreement import RatedThings, alpha_estimate
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
