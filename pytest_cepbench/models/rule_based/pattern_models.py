"""What the rule-based describer and writer reply where a data set is constructed: JSON.

The describer names the patterns of a scene by their rules, and mislabels as its knob says; the
writer summarizes names of patterns by how often they were given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.datasets.shapes import Scene, SceneKnobs, caption
from pytest_cepbench.datasets.shapes.samples import (
    PATTERN_NAMES,
    PATTERN_SENTENCES,
    scene_patterns,
)
from pytest_cepbench.models.json_objects import read_objects
from pytest_cepbench.models.protocols import Question

_STREAM = 5  # apart from the draws of scenes, answers and verdicts, which may have the same seeds


@dataclass(frozen=True)
class DescriberKnobs(SceneKnobs):
    """The knobs of scenes, and one of labels; probabilities in [0, 1].

    mislabel: that a pattern of the world which an image has is left out, and that one which it has
        not is named. Of each pattern by itself; of captions nothing changes.
    """

    mislabel: float = 0.0


def name_patterns(scene: Scene, mislabel: float, schema: Mapping[str, Any], seed: int) -> str:
    """The JSON reply on an image of a scene: its caption, its patterns, and a reason for each.

    schema: with an `enum` of names, no other name is given; capitals do not count.
    """
    names: Iterable[str] = labelled_patterns(scene, mislabel, seed)
    closed = _enum_of(schema)
    if closed is not None:
        known = {name.casefold(): name for name in closed}
        names = [known[name.casefold()] for name in names if name.casefold() in known]
    reasons = {name: PATTERN_SENTENCES.get(name, name) for name in names}
    return _reply({"description": caption(scene)}, "image_pattern", reasons, schema)


def labelled_patterns(scene: Scene, mislabel: float, seed: int) -> tuple[str, ...]:
    """The patterns of a scene, each turned into its opposite with the probability `mislabel`."""
    patterns = scene_patterns(scene)
    if not mislabel:
        return patterns
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAM))))
    wrong = source.random(len(PATTERN_NAMES)) < mislabel
    return tuple(
        name
        for name, turned in zip(PATTERN_NAMES, wrong, strict=True)
        if (name in patterns) != turned
    )


def summarize_patterns(question: Question, schema: Mapping[str, Any]) -> str | Failure:
    """The JSON reply to a question for a summary: the most frequent names, at most so many.

    question: one of its texts holds `{"frequencies": {name: count}, "most": number}`.
    A failure for any other question.
    """
    for piece in question:
        for document in read_objects(piece) if isinstance(piece, str) else ():
            counts, most = document.get("frequencies"), document.get("most")
            if isinstance(counts, dict) and isinstance(most, int):
                ordered = sorted(counts, key=lambda name: (-counts[name], name))[:most]
                sentences = {name: PATTERN_SENTENCES.get(name, name) for name in ordered}
                return _reply({}, "image_pattern", sentences, schema)
    return Failure("refused", "no frequencies of patterns in the question")


def _reply(
    head: Mapping[str, str], field: str, words: Mapping[str, str], schema: Mapping[str, Any]
) -> str:
    """A reply in the form of a schema: names and their words in objects, or in two fields."""
    if "pattern_detail" in schema.get("properties", {}):
        return json.dumps({**head, field: list(words), "pattern_detail": dict(words)})
    fields: Mapping[str, Any] = schema["properties"][field]["items"]["properties"]
    word = next(name for name in fields if name not in ("name", "merged_from"))
    more: dict[str, Any] = {"merged_from": []} if "merged_from" in fields else {}
    return json.dumps(
        {**head, field: [{"name": name, word: text, **more} for name, text in words.items()]}
    )


def _enum_of(schema: Any) -> Sequence[str] | None:
    """The closed list of names somewhere in a schema; None where it has none."""
    if not isinstance(schema, Mapping):
        return None
    if "enum" in schema:
        names: Sequence[str] = schema["enum"]
        return names
    within = (_enum_of(value) for value in schema.values())
    return next((names for names in within if names is not None), None)
