"""Checkpoints: what belongs to one, which of its files are read, and its fingerprint.

Processor and tokenizer files may lie in the run's root, in the base model's folder, or beside an
adapter. Libraries read them from one folder; where they lie in several, one of links is made for
the time of loading. Reads JSON and file headers only; no model library is imported.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.binding import DetectedModel
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    WEIGHT_FILES,
    component_names,
    is_weights,
    linked_folder,
    list_files,
    readable_files,
    unwrapped_folder,
)
from pytest_cepbench.models.checkpoints.format_detection import (
    CheckpointKind,
    identify,
    read_json,
)
from pytest_cepbench.models.checkpoints.parameters import SourceOptions


@dataclass(frozen=True, kw_only=True)
class Checkpoint(DetectedModel):
    """A checkpoint as it lies on disk, with what its configuration tells of it.

    path: its folder; for a hub id the snapshot's folder in the cache; a file of weights itself.
    kind: the library that loads it.
    config: its config.json, model_index.json or open_clip_config.json; {"modules": [...]} out of
        modules.json for sentence-transformers; for a single file of weights the "dtype" that its
        model runs in on an accelerator, and the "code" (versions) that takes part in its answers.
    revision: the commit on the hub; None for a folder.
    repository: the hub id; empty for a folder.
    options: the spec's, which say what of it is read.
    parts: what loading reads beside the folder.
    remarks: what was found where the spec does not say so, a line each, for the header.
    """

    path: Path
    kind: CheckpointKind
    config: Mapping[str, Any]
    revision: str | None = None
    options: SourceOptions = SourceOptions()  # noqa: RUF009 - frozen
    parts: tuple[CheckpointPart, ...] = ()
    remarks: tuple[str, ...] = ()
    repository: str = ""

    def named(self, name: str) -> list[CheckpointPart]:
        """The parts of a name, in order."""
        return [part for part in self.parts if part.name == name]

    @property
    def adapters(self) -> list[CheckpointPart]:
        """The PEFT adapters that are applied to it, in order."""
        return self.named("adapter")

    @property
    def weights_part(self) -> CheckpointPart | None:
        """The weights, where they lie without a model around them; None for those in its folder."""
        return next(iter(self.named("weights")), None)

    @property
    def place(self) -> Path:
        """Where what was trained lies: an adapter's folder rather than its base's."""
        own = [*self.adapters, *filter(None, [self.weights_part])]
        return own[0].path if own else self.path

    @property
    def quantization(self) -> str | None:
        """The method by which the weights of a transformers model are quantized; None for others.

        Raises CheckpointError for a `quantization_config` that names none.
        """
        text = self.config.get("text_config")
        inner = text.get("quantization_config") if isinstance(text, dict) else None
        stated = self.config.get("quantization_config") or inner
        if self.kind != "transformers" or not stated:
            return None
        stated = stated if isinstance(stated, dict) else {}
        # The first versions of bitsandbytes' support wrote no method.
        old = "bitsandbytes" if {"load_in_8bit", "load_in_4bit"} & stated.keys() else None
        method = stated.get("quant_method") or old
        if not isinstance(method, str):
            raise CheckpointError(
                f"{self.path / 'config.json'}: a quantization_config without quant_method, so "
                "nothing says how its weights are read"
            )
        return method

    @contextmanager
    def preparation_folder(self) -> Iterator[Path]:
        """A folder from which a library reads processor and tokenizer, for as long as it does."""
        if not any(part.name in _PREPARATIONS for part in self.parts):
            yield self.path
            return
        with linked_folder(self._preparation_files()) as folder:
            yield folder

    @property
    def tokenizer_folder(self) -> Path:
        """Where the tokenizer lies."""
        brought = [p.path for p in self.parts if any(_fits(n, _TOKENIZERS) for n, _ in p.paths())]
        return brought[-1] if brought else self.path

    def preparation_file(self, name: str) -> Path:
        """Where a file of the processor or the tokenizer lies; it need not be there."""
        return self._preparation_files().get(name, self.path / name)

    def _preparation_files(self) -> Mapping[str, Path]:
        """Name and place of each file of processor and tokenizer, and of what says their class.

        A part that brings a tokenizer takes the place of all of the files of the one before it, and
        so does an image processor; a chat template only takes that of another.
        """
        own = (*PROCESSOR_FILES, *TOKENIZER_FILES, "config.json", "*.py")
        files = {name: self.path / name for name in _matching(own, self.path)}
        for part in self.parts:
            if part.name not in _PREPARATIONS:
                continue
            brought = dict(part.paths())
            for marks, replaced in (
                (PROCESSOR_FILES[:2], PROCESSOR_FILES[: -len(_TEMPLATES)]),
                (_TOKENIZERS, TOKENIZER_FILES[: -len(_TEMPLATES)]),
                ((*_TEMPLATES, "chat_template.json"),) * 2,
            ):
                if any(_fits(name, marks) for name in brought):
                    files = {n: path for n, path in files.items() if not _fits(n, replaced)}
            files |= brought
        return files

    def readable(self, names: Iterable[str]) -> list[str]:
        """Those of the files in its own folder that loading reads.

        They are none of a component that a part replaces, and no weights that a part brings.
        """
        replaced = {part.component for part in self.parts if part.component}
        supplied = {name for part in self.parts for name in part.supplies}
        return [
            name
            for name in readable_files(names, self.kind, self.config, self.options)
            if (component := name.partition("/")[0]) not in replaced
            and not (is_weights(name) and (component in supplied or self.weights_part))
        ]

    @contextmanager
    def unwrapped(self) -> Iterator[Checkpoint]:
        """The checkpoint, in a folder from which a library loads all of it, while the block runs.

        That is its own folder unless parts take the places of components, or tensors have the names
        of wrappers in theirs; otherwise one of links and renamed copies. Raises CheckpointError as
        `own_names`.
        """
        files = dict(self.own_files())
        # What a checkpoint's own code reads in folders has the names that the code knows.
        ours = self.kind != "transformers"
        renamed = [name for name in files if ours or "/" not in name]
        replaced = any(part.component for part in self.parts)
        with unwrapped_folder(files, renamed, linked=replaced) as folder:
            yield self if folder is None else replace(self, path=folder)

    def own_files(self) -> list[tuple[str, Path]]:
        """Name and place of each file of the folder that loading reads.

        A part that replaces a component has the names that its files would have in the folder, so
        that a pipeline with the part and a copy that holds it are one model.
        """
        names = list_files(self.path) if self.path.is_dir() else []
        files = [(name, self.path / name) for name in self.readable(names)]
        for part in self.parts:
            if part.component:
                files += [(f"{part.component}/{name}", path) for name, path in part.paths()]
        return sorted(files)

    def weight_files(self) -> list[Path]:
        """Where the weights lie that loading reads, those of its parts among them."""
        if self.kind == "weights_file":
            return [self.path] if self.path.suffix in WEIGHT_FILES else []
        added = [file for part in self.parts if not part.component for file in part.paths()]
        paths = [path for _, path in self.own_files() + added]
        return [path for path in paths if path.suffix in WEIGHT_FILES]


def stored_precision(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The configuration that states a checkpoint's own precision, where any does.

    A pipeline's index states none; there it is that of the first component that does. So it is with
    the list of a sentence-transformers model's modules.
    """
    if checkpoint.kind == "sentence_transformers":
        first = checkpoint.path / checkpoint.config["modules"][0]["path"] / "config.json"
        return read_json(first) if first.is_file() else {}
    if checkpoint.kind != "diffusers":
        return checkpoint.config
    paths = [checkpoint.path / name / "config.json" for name in component_names(checkpoint.config)]
    for path in sorted(path for path in paths if path.is_file()):
        config = read_json(path)
        if config.get("dtype") or config.get("torch_dtype"):
            return config
    return {}


def _refuse_elsewhere(checkpoint: Checkpoint, files: Sequence[tuple[str, Path]]) -> None:
    """Raise CheckpointError where a library would follow a name out of the checkpoint.

    files: that loading reads.
    """

    def refuse(place: Path, fault: str, remedy: str = "Remove the entry") -> None:
        raise CheckpointError(f"{place}: {fault}, which no fingerprint covers. {remedy}")

    towers = checkpoint.config.get("model_cfg") if checkpoint.kind == "open_clip" else None
    vision, text = ((towers or {}).get(name) or {} for name in ("vision_cfg", "text_cfg"))
    # timm takes SOURCE:NAME for the configuration of a folder or of the hub.
    if ":" in str(tower := vision.get("timm_model_name")):
        fault = (
            f"its image tower would be built by the configuration of {tower!r} (timm_model_name)"
        )
        refuse(checkpoint.path, fault, "Give timm's own name")
    if "bpe_path" in str(words := text.get("tokenizer_kwargs")):
        refuse(checkpoint.path, f"its tokens would be those of another file ({words})")
    read = {path for _, path in files}
    for name, path in files:
        file = PurePosixPath(name).name
        config = read_json(path) if file in _NAMING_FILES else {}
        for key, value in config.items() if file == "tokenizer_config.json" else ():
            # Until 5, transformers reads these in the place of the folder's own; the map of special
            # tokens, which many name by its place at their training, it does not.
            names_file = key.endswith("_file") and key != "special_tokens_map_file"
            other = Path(value) if names_file and isinstance(value, str) else path
            outside = other.absolute().parent != path.absolute().parent
            # Path.is_file raises in folders that this user may not enter: somebody's /root/.cache.
            if outside and os.path.isfile(other):  # noqa: PTH113
                refuse(path, f"{key} is the file {value!r}")
        for fault, remedy in _built_elsewhere(config):
            refuse(path, fault, remedy)
        weights = config.get("transformers_weights")
        if weights is not None and path.parent / str(weights) not in read:
            fault = f"its weights would be read from {weights!r} (transformers_weights)"
            refuse(path, fault, "Give them the name model.safetensors and remove the entry")
        code = _code_of(config) if checkpoint.options.trust_remote_code else ""
        for repository, target in re.findall(r'"([^"]*)--([^"]*)"', code):
            remedy = (
                "Copy the Python files beside the weights and shorten the entry in auto_map to "
            )
            refuse(path, f"its code lies in the repository {repository}", f'{remedy}"{target}"')
    # A model of its own that processors of sounds load, by either file.
    for name in ("processor_config.json", "audio_tokenizer_config.json"):
        path = checkpoint.preparation_file(name)
        stated = read_json(path) if checkpoint.kind == "transformers" and path.is_file() else {}
        if inner := stated.get("audio_tokenizer"):
            stated = inner if isinstance(inner, dict) else {}
        if elsewhere := stated.get("audio_tokenizer_name_or_path"):
            fault = f"its audio tokenizer would be loaded from {elsewhere!r}"
            refuse(path, fault, "Remove the entry where the model reads images alone")


def _built_elsewhere(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Which parts of a model a configuration has built by those of others, and the remedy."""
    for key in ("attn_implementation", "_attn_implementation"):
        if "/" in (kernel := str(config.get(key))):
            fault = f"{key} is {kernel!r}, a kernel of the hub: code that would be run"
            yield fault, "Remove the entry"
    backbone, described = config.get("backbone"), config.get("backbone_config") is not None
    if isinstance(backbone, str) and "/" in backbone and not described:
        fault = f"its backbone would be built by the configuration of {backbone!r}"
        yield fault, "Save it again with a transformers that writes backbone_config"
    network = config.get("architecture")
    if isinstance(network, str) and ":" in network:
        fault = f"its network would be built by the configuration of {network!r} (architecture)"
        yield fault, "Give timm's own name"


def _code_of(config: Mapping[str, Any]) -> str:
    """The classes of its own code that a configuration or a part of it names, as JSON."""
    inner = [_code_of(part) for part in config.values() if isinstance(part, dict)]
    return json.dumps(config.get("auto_map")) + "".join(inner)


def fingerprint(checkpoint: Checkpoint, hash_file: Callable[[Path], str]) -> str:
    """Digest (64 hexadecimal digits) of everything that loading the checkpoint can read.

    Hashed are the bytes of weights, configurations (model, generation, scheduler), tokenizers,
    processors and chat templates, each under its path, by which loaders find it. Names and dates
    tell nothing: two checkpoints of one training have the same names, and a copy has other dates.
    A configuration file that some loaders ignore is hashed all the same: at worst results are
    computed once more, where a missed file would give a wrong number.

    Left out are READMEs and licences, trainer and optimizer states, pictures, and weights that
    loading passes over (pickled twins of safetensors, a pipeline's single-file weights, other
    variants): they change no answer. Pickled weights count where the spec allows them, Python files
    where it has them run. Library versions are provenance, kept beside results.

    hash_file: SHA-256 of a file's bytes, hexadecimal.
    Raises CheckpointError for a checkpoint whose code or audio tokenizer would come from elsewhere,
    and where the configuration is another one than when it was inspected.
    """
    if checkpoint.kind == "weights_file":
        weights, code = hash_file(checkpoint.path), checkpoint.config["code"]
        return digest_json({"version": 1, "weights": weights, "code": code})
    kind, config = identify(checkpoint.path)
    # It says which files are read. As text, in which NaN, which some have, equals NaN.
    now, before = (json.dumps(dict(c), sort_keys=True) for c in (config, checkpoint.config))
    if (kind, now) != (checkpoint.kind, before):
        raise CheckpointError(
            f"{checkpoint.path}: its configuration is another one than a moment before: let no "
            "trainer write there"
        )
    own = checkpoint.own_files()
    added = [part for part in checkpoint.parts if not part.component]
    _refuse_elsewhere(checkpoint, [*own, *(file for part in added for file in part.paths())])
    files = [[name, hash_file(path)] for name, path in own]
    content: dict[str, Any] = {"version": 1, "kind": checkpoint.kind, "files": files}
    if added:
        content["parts"] = [
            [
                part.name,
                [[name, hash_file(path)] for name, path in part.paths()],
                *([dict(part.settings)] if part.settings else []),
            ]
            for part in added
        ]
    return digest_json(content)


@dataclass(frozen=True)
class CheckpointPart:
    """Files beside a checkpoint's folder that loading it reads.

    name: the parameter of the spec that it fills: "adapter", "processor", "unet". Several parts of
        one name are in the order in which they are applied.
    path: its folder, or a file by itself.
    files: of the path: names of the files that loading reads, as posix paths relative to it,
        sorted; [""] for a file by itself. Called again whenever the files are looked at.
    component: of a pipeline, whose folder it replaces; empty for what is added.
    supplies: of what is added: the components of a pipeline whose weights it brings, so that those
        in their folders are not read.
    revision: the commit on the hub; None for a folder.
    settings: what else than its files decides what it does, as built-in types: part of the
        fingerprint.
    """

    name: str
    path: Path
    files: Callable[[Path], Sequence[str]]
    component: str = ""
    supplies: tuple[str, ...] = ()
    revision: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of a component of a pipeline."""
        return bool(self.component) or self.name in self.supplies

    def paths(self) -> list[tuple[str, Path]]:
        """Each file's name and where it lies."""
        return [(name, self.path / name if name else self.path) for name in self.files(self.path)]


_PREPARATIONS = ("processor", "tokenizer")
"""Names of the parts that hold a processor or a tokenizer."""

_TEMPLATES = ("chat_template.jinja", "additional_chat_templates/*")

VOCABULARIES = (
    "tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.spm", "*.bpe", "*.vocab",
    "*.tiktoken",
)  # fmt: skip
"""Patterns of the names of files that hold the tokens of a tokenizer."""

_TOKENIZERS = (*VOCABULARIES, "tokenizer_config.json")

TOKENIZER_FILES = (
    *_TOKENIZERS, "special_tokens_map.json", "added_tokens.json", "merges.txt", "*.codes",
    *_TEMPLATES,
)  # fmt: skip
"""Patterns of the names of files that a tokenizer is read from."""

PROCESSOR_FILES = (
    "processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json",
    "chat_template.json", "*_tokenizer/*", *_TEMPLATES,
)  # fmt: skip
"""Patterns of the names of files that a processor of images and texts is read from, beside those of
its tokenizer."""


_NAMING_FILES = ("config.json", "tokenizer_config.json", *PROCESSOR_FILES[:3])
"""Configurations that can name files, code and weights of other places."""


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer, in any of the forms that libraries read."""
    return any(any(folder.glob(pattern)) for pattern in _TOKENIZERS)


def has_processor(folder: Path) -> bool:
    """Whether a folder holds an image processor, or a processor of images and texts."""
    return any((folder / name).is_file() for name in PROCESSOR_FILES[:2])


def preparation_part(
    folder: Path, *, images: bool, texts: bool, revision: str | None = None
) -> CheckpointPart:
    """The files of a folder's processor (images) and tokenizer (texts) as a part of either name."""
    name = "processor" if images else "tokenizer"
    patterns = (*(PROCESSOR_FILES if images else ()), *(TOKENIZER_FILES if texts else ()))
    return CheckpointPart(name, folder, partial(_matching, patterns), revision=revision)


def _matching(patterns: Sequence[str], folder: Path) -> Sequence[str]:
    paths = {path for pattern in patterns for path in folder.glob(pattern)}
    return sorted(path.relative_to(folder).as_posix() for path in paths if path.is_file())


def _fits(name: str, patterns: Sequence[str]) -> bool:
    # fnmatch's * goes across folders, other than that of glob.
    return any(
        fnmatch.fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")
        for pattern in patterns
    )
