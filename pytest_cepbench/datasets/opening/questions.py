"""OpenING's questions and gold answers, as its authors released them.

`test_data.jsonl` has 2,160 questions and `dev_data.jsonl` 3,240, with images in `images/TASK/`:
inputs `INSTANCE-i-1.jpg`, ..., gold answers `INSTANCE-o-1.jpg`, .... Source: Zhou et al., OpenING,
section 3, and the authors' repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pytest_cepbench.datasets.sample import Dataset, FileImage, GoldStep, Sample, SeedImage
from pytest_cepbench.datasets.sources.files import find_file, refuse_outside, require_folder
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json_lines
from pytest_cepbench.errors import DatasetError, unknown_name

# The names are the paper's, and ids count: the released file misspells two tasks (Story Writting,
# Visual Traffic Forcasting), gives one task of meta-topic 02 a meta-topic of its own, and writes
# "and" for the "&" of meta-topic 10.
META_TOPICS = {
    "01": "Storybook Creation",
    "02": "Multimodal Report Generation",
    "03": "Multimodal Content Completion",
    "04": "Multimodal Layout Generation",
    "05": "GUI Navigation",
    "06": "Interactive Image Editing",
    "07": "Interactive Visual Design",
    "08": "Multimodal Exam",
    "09": "Graph Generation",
    "10": "Event Reasoning & Deductive Simulation",
    "11": "2D Image Reasoning",
    "12": "Image-based 3D Reasoning",
    "13": "Multimodal Information Summary",
    "14": "Multimodal Information Recommendation",
    "15": "Multimodal Brainstorming",
    "16": "Multimodal Time Series Forecasting",
    "17": "Geographical Tasks",
    "18": "Social Media Tasks",
    "19": "Fashion Tasks",
    "20": "Cooking Tasks",
    "21": "Educational Tasks",
    "22": "Healthcare Tasks",
    "23": "Embodied-AI Tasks",
}
"""The first two digits of a question's id."""

TASKS = {
    "0101": "Story Writing",
    "0102": "Fiction Writing",
    "0201": "Travel Guide Generation",
    "0202": "Museum Guide Book Generation",
    "0203": "Dynamic Biography Generation",
    "0301": "Storybook Completion",
    "0302": "Multimodal Report Completion",
    "0401": "Document with Layout Generation",
    "0402": "Slide with Note Generation",
    "0501": "Website GUI Navigation",
    "0502": "In-APP GUI Navigation",
    "0503": "Cross-APP GUI Navigation",
    "0504": "OS GUI Navigation",
    "0601": "Interactive Portrait Image Editing",
    "0602": "Interactive Landscape Image Editing",
    "0701": "Interior Design",
    "0702": "Architectural Design",
    "0703": "Art and Exhibition Design",
    "0704": "Product Design",
    "0705": "Interactive Graphic Advertisement Editing",
    "0801": "Geometric Problem Test",
    "0802": "Circuit Problem Test",
    "0901": "Mind Map Generation",
    "0902": "Figure Relationship Diagram Generation",
    "1001": "Multi-view News Generation",
    "1002": "Dynamic Sports Event Analysis",
    "1003": "Interactive Historical Interpretation",
    "1004": "Unsolved Mysteries Exploration",
    "1005": "Dream Analysis and Scene Reconstruction",
    "1101": "Multimodal Biological Reasoning",
    "1102": "Multimodal Landscape Reasoning",
    "1103": "Multimodal Analogy Reasoning",
    "1104": "Interactive Jigsaw Puzzle",
    "1201": "Interactive Novel View Synthesis",
    "1301": "Interactive Multi-concept Image Composition",
    "1401": "Interactive Film and Television Recommendation",
    "1402": "Interactive Goods Recommendation",
    "1403": "Interactive Food Recommendation",
    "1501": "Business Scenarios Brainstorming",
    "1502": "Academic Scenarios Brainstorming",
    "1601": "Multimodal Action Anticipation",
    "1602": "Visual Traffic Forecasting",
    "1701": "Interactive Remote Sensing Image Rendering",
    "1702": "Interactive Street View Image Rendering",
    "1703": "Urban Planning and Development Simulation",
    "1801": "Plog and Social Media Content Generation",
    "1802": "Chat with Memes",
    "1901": "Interactive Virtual Try-on",
    "1902": "Multimodal Dressing Suggestion",
    "1903": "Fashion Trend Forecasting",
    "2001": "Multimodal Recipe Generation",
    "2002": "Multimodal Cooking Assistant",
    "2101": "Interactive Tutorial Generation",
    "2102": "Interactive Science Popularization",
    "2201": "Fitness and Health Consulting",
    "2301": "Autonomous Driving and In-door Navigation",
}
"""The first four digits of a question's id."""

IMAGE_MARKER = "<image>"
"""Stands in a text where the image of its step belongs."""

BEGIN_MARKER = "<BEGIN>"
"""Stands once in each question, between the task's prompt and the annotator's own text."""


class RecordedPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of an input or an output as it is written.

    text: with its markers.
    image: the name that it gives its image; None where it has none.
    """

    text: str
    image: str | None


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    input: tuple[RecordedPart, ...]


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    output: tuple[RecordedPart, ...]


_TwoDigits = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,2}\Z")]


class OpeningRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record whose fields are checked; ids are digits as they are written.

    total_uid: says the other ids once more, where it is there.
    """

    meta_task_id: _TwoDigits
    meta_task_name: str
    subtask_id: _TwoDigits
    subtask_name: str
    data_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,3}\Z")]
    conversations: tuple[_Question, _Answer]
    total_uid: Any = msgspec.UNSET

    @property
    def uid(self) -> str:
        """Id of the question, seven digits: meta-topic, task in it, instance."""
        return f"{int(self.meta_task_id):02}{int(self.subtask_id):02}{int(self.data_id):03}"

    @property
    def question(self) -> tuple[RecordedPart, ...]:
        """Its input."""
        return self.conversations[0].input

    @property
    def answer(self) -> tuple[RecordedPart, ...]:
        """Its output."""
        return self.conversations[1].output


def parse_record(place: str, value: Any) -> OpeningRecord:
    """The record in a JSON value: a question, and the answer to it of people or of a model.

    `{"total_uid", "meta_task_id", "meta_task_name", "subtask_id", "subtask_name", "data_id",
    "conversations": [{"input": [step, ...]}, {"output": [step, ...]}]}`, where a step is
    `{"image": path or null, "text"}`. The questions are records of one line each; a model's answer
    is the question's record with its own output, perhaps without `total_uid`.

    place: file and line, for messages.
    Raises DatasetError for missing and unknown fields, wrong types, and ids that contradict one
    another.
    """
    record = convert_record(place, value, OpeningRecord)
    if record.total_uid not in (record.uid, msgspec.UNSET):
        raise DatasetError(
            f"{place}: total_uid is {record.total_uid!r:.60}, and its ids give {record.uid!r}: "
            "they name one instance"
        )
    return record


VERSION = 1

SPLITS = ("test", "dev")


def load_opening(path: Path, *, split: str = "test") -> Dataset:
    """The questions of a split with their gold answers, by the ids of the release.

    path: the folder that holds `test_data.jsonl` and `images/`, whatever its name.
    split: test or dev.
    The categories of a sample are its task and its meta-topic. Its `metadata` has the record's
    fields as they are written, and its `input`; without those no answer can be exported.
    Raises DatasetError, with file and line, for missing and unknown fields, ids that contradict one
    another or are there twice, unknown tasks, an image without its marker and the reverse, and
    paths out of the folder; for an unknown split, a folder that is none of the release, and images
    that are missing.
    """
    if split not in SPLITS:
        raise DatasetError(f"OpenING: {unknown_name('split', str(split), SPLITS)}")
    table = path / f"{split}_data.jsonl"
    require_folder(path, f"the folder that holds {table.name}", "OpenING's folder ")
    if not table.is_file():
        raise DatasetError(f"{str(path)!r} holds no {table.name}: give the folder in which it lies")
    refuse_outside(table.parent, table, "OpenING")
    samples: list[Sample] = []
    missing: list[str] = []
    named = 0
    for place, value in read_json_lines(table):
        record = parse_record(place, value)
        if record.uid[:4] not in TASKS:
            raise DatasetError(
                f"{place}: {record.uid!r} is of a task {record.uid[:4]!r} that OpenING has not"
            )
        for side, parts in (("input", record.question), ("output", record.answer)):
            if not parts:
                raise DatasetError(f"{place}, {side} has no step")
            for number, part in enumerate(parts, 1):
                markers = part.text.count(IMAGE_MARKER)
                if markers != (part.image is not None):
                    raise DatasetError(
                        f"{place}, {side} {number}: {markers} {IMAGE_MARKER} in the text, and "
                        f"image is {part.image!r:.200}"
                    )
                if part.image is None and not _without_markers(part.text):
                    raise DatasetError(f"{place}, {side} {number}: neither a text nor an image")
        images = {
            part.image: find_file(table.parent, part.image, place)
            for part in (*record.question, *record.answer)
            if part.image is not None
        }
        named += len(images)
        absent = [f"{name!r} ({place})" for name, file in images.items() if file is None]
        missing += absent
        if not absent:
            samples.append(_sample(record, images))
    if missing:
        raise DatasetError(
            f"{str(table.parent)!r}: {len(missing):,} of {named:,} images are missing, the first "
            f"{missing[0]}: give the whole archive"
        )
    # Baselines have the last field since sets were read in part, too.
    identity = {"loader": "opening", "version": VERSION, "split": split, "partial": False}
    return Dataset("opening", identity, tuple(samples))


def _sample(record: OpeningRecord, images: Mapping[str, Path | None]) -> Sample:
    def image_of(part: RecordedPart) -> FileImage | None:
        file = None if part.image is None else images[part.image]
        return None if file is None else FileImage(file)

    question: list[str | SeedImage] = []
    for part in record.question:
        before, _, after = part.text.partition(IMAGE_MARKER)
        pieces = (_without_markers(before), image_of(part), _without_markers(after))
        question += [piece for piece in pieces if piece]
    names = ("meta_task_id", "meta_task_name", "subtask_id", "subtask_name", "data_id")
    metadata: dict[str, Any] = {name: getattr(record, name) for name in names}
    metadata["input"] = [{"image": part.image, "text": part.text} for part in record.question]
    return Sample(
        id=record.uid,
        categories=(TASKS[record.uid[:4]], META_TOPICS[record.uid[:2]]),
        metadata=metadata,
        question=tuple(question),
        gold=tuple(GoldStep(_without_markers(part.text), image_of(part)) for part in record.answer),
    )


def _without_markers(text: str) -> str:
    """A text without markers: in the place of each is a space, or the line end that was beside it.

    White space at both ends is cut.
    """
    whole, *rest = re.split(f"{BEGIN_MARKER}|{IMAGE_MARKER}", text)
    for part in rest:
        before, after = whole.rstrip(), part.lstrip()
        space = whole[len(before) :] + part[: len(part) - len(after)]
        whole = f"{before}\n{after}" if "\n" in space else f"{before} {after}"
    return whole.strip()
