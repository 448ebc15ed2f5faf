"""GenEval's prompts as samples: the built-in suite, or a file of GenEval's or GenEval-Rewritten's form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.geneval.generator import PUBLISHED_SEED, write_prompts
from pytest_cepbench.datasets.json_files import read_json_lines
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval import COLORS, Prompt, parse_prompt, prompt_metadata

VERSION = 1

PUBLISHED_FILE = Path(__file__).with_name("published.jsonl")
"""The published suite of 553 prompts, as its authors released it."""

_TEXT_FIELDS: Mapping[str, str] = {"prompt": "prompt", "detailed": "detailed_caption"}

_INDEX = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True)
class _Entry:
    """One prompt. index: five digits. text: what the chain starts from."""

    index: str
    prompt: Prompt
    text: str


def load_geneval(
    path: Path | None = None,
    captions: str = "prompt",
    images_per_prompt: int = 1,
    seed: int = PUBLISHED_SEED,
) -> Dataset:
    """GenEval's prompts for text-first chains; a sample's one category is its task.

    path: a metadata file, one JSON object per line, as GenEval publishes it or with the long
    captions of GenEval-Rewritten (BLIP3-o); the built-in suite where there is none.
    captions: "prompt", or "detailed" for the file's long captions.
    images_per_prompt: samples of each prompt (GenEval draws four images). With one the id is the
    file's "index" or else the line's place ("00000"), with more "00000-0", "00000-1", ...; images
    of one prompt are a cluster: they tell less than as many prompts.
    seed: of the built-in suite; 43 is the published one.
    metadata: "tag", "include" and, where there is one, "exclude" (see `parse_prompt`).
    Raises DatasetError naming file, line and field for what cannot be used, and for options that
    do not fit.
    """
    _check_options(path, captions, images_per_prompt, seed)
    if path is None and seed != PUBLISHED_SEED:
        written = enumerate(write_prompts(seed))
        entries = [_Entry(f"{i:05d}", generated.prompt, generated.text) for i, generated in written]
    else:
        entries = _read(path or PUBLISHED_FILE, _TEXT_FIELDS[captions])
    samples = [
        Sample(
            name,
            (entry.prompt.task,),
            text=entry.text,
            metadata=prompt_metadata(entry.prompt),
            cluster=entry.index if images_per_prompt > 1 else None,
        )
        for entry in entries
        for name in _ids(entry.index, images_per_prompt)
    ]
    content = [[entry.index, entry.text, prompt_metadata(entry.prompt)] for entry in entries]
    identity = {
        "loader": "geneval",
        "version": VERSION,
        "captions": captions,
        "images_per_prompt": images_per_prompt,
        "prompts": digest_json(content)[:16],
    }
    return Dataset("geneval", identity, tuple(sorted(samples, key=lambda sample: sample.id)))


def _check_options(path: Path | None, captions: str, images_per_prompt: int, seed: int) -> None:
    if captions not in _TEXT_FIELDS:
        known = " or ".join(map(repr, _TEXT_FIELDS))
        msg = f"captions of the GenEval prompts: {known} is expected, got {captions!r}"
        raise DatasetError(msg)
    if not 1 <= images_per_prompt <= 100:
        msg = f"images_per_prompt must be in 1..100, got {images_per_prompt}"
        raise DatasetError(msg)
    if path is None and captions == "detailed":
        msg = (
            "the built-in GenEval prompts have no detailed captions: give the metadata file of "
            "GenEval-Rewritten as the data set's path"
        )
        raise DatasetError(msg)
    if path is not None and seed != PUBLISHED_SEED:
        msg = f"seed {seed} is for the built-in GenEval prompts, but they come from {str(path)!r}"
        raise DatasetError(msg)


def _ids(index: str, images: int) -> list[str]:
    return [index] if images == 1 else [f"{index}-{number}" for number in range(images)]


def _read(path: Path, text_field: str) -> list[_Entry]:
    places: dict[str, str] = {}
    entries = []
    for number, (place, fields) in enumerate(read_json_lines(path)):
        try:
            entry = _entry(fields, number, text_field)
        except ValueError as error:
            msg = f"{place}: {error}"
            raise DatasetError(msg) from error
        if entry.index in places:
            msg = f"{place}: index: {entry.index!r} is taken by {places[entry.index]}"
            raise DatasetError(msg)
        places[entry.index] = place
        entries.append(entry)
    if not entries:
        msg = f"{str(path)!r} has no prompts: one JSON object per line is expected"
        raise DatasetError(msg)
    return entries


def _entry(fields: Mapping[str, Any], number: int, text_field: str) -> _Entry:
    prompt = parse_prompt(fields)
    for place, clause in enumerate(prompt.include):
        if clause.color is not None and clause.color not in COLORS:
            msg = f"include[{place}]: color: {clause.color!r} is none of {', '.join(COLORS)}"
            raise ValueError(msg)
    names = [clause.name for clause in prompt.include]
    names += [exclusion.name for exclusion in prompt.exclude]
    for name in names:
        _check_encodable("class", name)
    text = fields.get(text_field)
    if not isinstance(text, str) or not text.strip():
        actual = "missing" if text_field not in fields else f"got {text!r}"
        msg = f"{text_field}: a text is expected, {actual}"
        raise ValueError(msg)
    _check_encodable(text_field, text)
    return _Entry(_index(fields.get("index", number)), prompt, text)


def _check_encodable(field: str, text: str) -> None:
    """JSON can escape half of a surrogate pair, which no tokenizer and no file takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        msg = f"{field}: half of a surrogate pair at character {error.start}"
        raise ValueError(msg) from error


def _index(given: object) -> str:
    if isinstance(given, bool) or not _INDEX.fullmatch(str(given)):
        msg = f"index: up to five digits are expected, got {given!r}"
        raise ValueError(msg)
    return f"{int(str(given)):05d}"
