"""Processor and tokenizer files: which they are, and a folder from which a library reads them.

Trainers keep them in the run's root, in the base model's folder, or beside an adapter. Libraries
read them from one folder; where they lie in several, one of links is made for the time of loading.
"""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_cepbench.models.checkpoints.checkpoint_parts import CheckpointPart

_TEMPLATES = ("chat_template.jinja", "additional_chat_templates/*")

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "*.model", "*.spm", "*.tiktoken", "*.vocab", "*.bpe",
    *_TEMPLATES,
)  # fmt: skip
"""Patterns of the names of files that a tokenizer is read from."""

_VOCABULARIES = tuple(
    name
    for name in TOKENIZER_FILES
    if name not in (*_TEMPLATES, "special_tokens_map.json", "added_tokens.json", "merges.txt")
)

PROCESSOR_FILES = (
    "processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json",
    "chat_template.json", *_TEMPLATES,
)  # fmt: skip
"""Patterns of the names of files that a processor of images and texts is read from, beside those of
its tokenizer."""


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer, in any of the forms that libraries read."""
    return any(any(folder.glob(pattern)) for pattern in _VOCABULARIES)


def has_processor(folder: Path) -> bool:
    """Whether a folder holds an image processor, or a processor of images and texts."""
    names = ("processor_config.json", "preprocessor_config.json")
    return any((folder / name).is_file() for name in names)


def brings_tokenizer(part: CheckpointPart) -> bool:
    """Whether a part holds the tokenizer."""
    return any(_fits(name, _VOCABULARIES) for name, _ in part.paths())


def preparation_part(
    name: str, folder: Path, *, images: bool, texts: bool, revision: str | None = None
) -> CheckpointPart:
    """The processor files of a folder as a part; name: "processor" or "tokenizer".

    images: those of the processor. texts: those of the tokenizer.
    """
    patterns = (*(PROCESSOR_FILES if images else ()), *(TOKENIZER_FILES if texts else ()))
    return CheckpointPart(name, folder, _Matching(patterns), revision=revision)


class _Matching:
    """The files of a folder whose names fit patterns; equal for equal patterns."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)

    def __call__(self, folder: Path) -> Sequence[str]:
        paths = {path for pattern in self._patterns for path in folder.glob(pattern)}
        return sorted(path.relative_to(folder).as_posix() for path in paths if path.is_file())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Matching) and other._patterns == self._patterns

    def __hash__(self) -> int:
        return hash(self._patterns)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    # fnmatch's * goes across folders, other than that of glob.
    return any(
        fnmatch.fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")
        for pattern in patterns
    )


def preparation_files(folder: Path, parts: Sequence[CheckpointPart]) -> Mapping[str, Path]:
    """Name and place of each file of the processor and the tokenizer, and of what says their class.

    folder: of the checkpoint. A part that brings a tokenizer takes the place of all of the files of
    the one before it, and so does an image processor; a chat template only takes that of another.
    """
    own = _Matching((*PROCESSOR_FILES, *TOKENIZER_FILES, "config.json", "*.py"))
    files = {name: folder / name for name in own(folder)}
    for part in parts:
        if part.name not in ("processor", "tokenizer"):
            continue
        brought = dict(part.paths())
        for has, patterns in (
            (any(_fits(name, PROCESSOR_FILES[:2]) for name in brought), PROCESSOR_FILES),
            (any(_fits(name, _VOCABULARIES) for name in brought), TOKENIZER_FILES),
        ):
            replaced = patterns[: -len(_TEMPLATES)] if has else ()
            files = {n: path for n, path in files.items() if not _fits(n, replaced)}
        if any(_fits(name, _TEMPLATES) or name == "chat_template.json" for name in brought):
            files = {n: path for n, path in files.items() if not _is_template(n)}
        files |= brought
    return files


def _is_template(name: str) -> bool:
    return _fits(name, (*_TEMPLATES, "chat_template.json"))


@contextmanager
def linked_folder(files: Mapping[str, Path]) -> Iterator[Path]:
    """A folder that holds links to files under their names, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="cepbench-") as name:
        folder = Path(name)
        for relative, path in files.items():
            link = folder / relative
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.absolute())
        yield folder
