"""Checkpoints: what a folder holds, its roles, whether it is whole, and its fingerprint.

Reads JSON and file headers only; no model library is imported.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.adapter_files import check_adapter, holds_adapter
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    MODULES_FILE,
    WEIGHT_SUFFIXES,
    FileOptions,
    check_weights,
    component_names,
    is_weights,
    list_files,
    read_json,
    read_modules,
    readable_files,
)
from pytest_cepbench.models.checkpoints.checkpoint_parts import CheckpointPart
from pytest_cepbench.models.checkpoints.format_detection import CheckpointKind, detect_roles
from pytest_cepbench.models.checkpoints.location import snapshot
from pytest_cepbench.models.checkpoints.loose_weights import (
    SHARD_SUFFIX,
    check_loose_weights,
    holds_whole_model,
)
from pytest_cepbench.models.checkpoints.pipeline_parts import check_parts
from pytest_cepbench.models.checkpoints.preparation_files import (
    brings_tokenizer,
    linked_folder,
    preparation_files,
)
from pytest_cepbench.models.model_spec import ModelSpec, parse_params
from pytest_cepbench.models.protocols import RoleName

WEIGHT_FILES = (*WEIGHT_SUFFIXES, SHARD_SUFFIX, ".ckpt")
"""How names of files of weights end that any loader reads."""

_CONFIGURATIONS = ("model_index.json", "open_clip_config.json", "config.json")
"""The files that say what a checkpoint is, in order of precedence."""

INDEXES = (*_CONFIGURATIONS, MODULES_FILE)
"""The files by which a folder is known as a checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it lies on disk.

    path: its folder; for a hub id the snapshot's folder in the cache; a file of weights itself.
    kind: the library that loads it.
    what: its architecture or pipeline class, for people.
    roles: the roles it can play; empty where no rule recognises it.
    because: why these, completing the sentence "it ...".
    config: its config.json, model_index.json or open_clip_config.json; {"modules": [...]} out of
        modules.json for sentence-transformers; for a single file of weights the "dtype" that its
        model runs in on an accelerator, and the "code" (versions) that takes part in its answers.
    revision: the commit on the hub; None for a folder.
    repository: the hub id; empty for a folder.
    parts: what loading reads beside the folder.
    remarks: what was found where the spec does not say so, a line each, for the header.
    """

    path: Path
    kind: CheckpointKind
    what: str
    roles: tuple[RoleName, ...]
    config: Mapping[str, Any]
    revision: str | None = None
    because: str = ""
    parts: tuple[CheckpointPart, ...] = ()
    remarks: tuple[str, ...] = ()
    repository: str = ""

    @property
    def adapters(self) -> list[CheckpointPart]:
        """The PEFT adapters that are applied to it, in order."""
        return [part for part in self.parts if part.name == "adapter"]

    @property
    def weights_part(self) -> CheckpointPart | None:
        """The weights, where they lie without a model around them; None for those in its folder."""
        return next((part for part in self.parts if part.name == "weights"), None)

    @property
    def place(self) -> Path:
        """Where what was trained lies: an adapter's folder rather than its base's."""
        own = [*self.adapters, *filter(None, [self.weights_part])]
        return own[0].path if own else self.path

    @property
    def quantization(self) -> Any:
        """What a transformers model's configuration says of quantized weights; None for others."""
        if self.kind != "transformers":
            return None
        text = self.config.get("text_config")
        inner = text.get("quantization_config") if isinstance(text, dict) else None
        return self.config.get("quantization_config") or inner

    @contextmanager
    def preparation_folder(self) -> Iterator[Path]:
        """A folder from which a library reads processor and tokenizer, for as long as it does."""
        if not self._prepared_elsewhere:
            yield self.path
            return
        with linked_folder(preparation_files(self.path, self.parts)) as folder:
            yield folder

    @property
    def tokenizer_folder(self) -> Path:
        """Where the tokenizer lies."""
        brought = [part.path for part in self.parts if brings_tokenizer(part)]
        return brought[-1] if brought else self.path

    def preparation_file(self, name: str) -> Path:
        """Where a file of the processor or the tokenizer lies; it need not be there."""
        files = preparation_files(self.path, self.parts) if self._prepared_elsewhere else {}
        return files.get(name, self.path / name)

    @property
    def _prepared_elsewhere(self) -> bool:
        return any(part.name in ("processor", "tokenizer") for part in self.parts)

    def weight_files(self, options: FileOptions = FileOptions()) -> list[Path]:  # noqa: B008
        """Where the weights lie that loading reads, those of its parts among them."""
        paths = [path for _, path in _read_files(self, options)]
        return [path for path in paths if path.suffix in WEIGHT_FILES]


def file_options(spec: ModelSpec) -> FileOptions:
    """The file options of a spec; its other parameters are left for the role's adapter to judge.

    Raises SpecError for a value of the wrong kind.
    """
    known = {field.name for field in fields(FileOptions)}
    own = {name: value for name, value in spec.params.items() if name in known}
    return parse_params(replace(spec, params=own), FileOptions, "a checkpoint")


def complete_checkpoint(spec: ModelSpec, checkpoint: Checkpoint) -> None:
    """Fetch a hub checkpoint's files and check the weights of any, those of its parts too.

    Raises CheckpointError for weights that are missing, pickled only (unless the spec says
    allow_pickle=true), cut off or incomplete, and for an adapter inside the folder.
    """
    if checkpoint.revision is not None:
        _fetch_readable(spec, checkpoint, checkpoint.revision)
    modules = checkpoint.config["modules"] if _is_sentence(checkpoint) else []
    for folder in (checkpoint.path, *(checkpoint.path / module["path"] for module in modules)):
        if holds_adapter(folder):
            raise CheckpointError(_inner_adapter(folder))
    options = file_options(spec)
    for part in checkpoint.adapters:
        check_adapter(part.path, allow_pickle=options.allow_pickle)
    weights = checkpoint.weights_part
    if weights is not None:
        check_loose_weights(weights)
        return
    readable = _readable(checkpoint, list_files(checkpoint.path), options)
    elsewhere = _replaced(checkpoint) | _supplied(checkpoint)
    own = {name: value for name, value in checkpoint.config.items() if name not in elsewhere}
    check_weights(checkpoint.path, readable, own, checkpoint.kind)
    if checkpoint.kind == "diffusers":
        check_parts(checkpoint.parts, checkpoint.path, options)


def check_configuration(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError where the configuration is another one than when it was inspected.

    It says which files are read, so that a fingerprint by another one could miss some.
    """
    if checkpoint.kind == "weights_file":
        return
    kind, config = identify(checkpoint.path)
    if (kind, _canonical(config)) != (checkpoint.kind, _canonical(checkpoint.config)):
        raise CheckpointError(
            f"{checkpoint.path}: its configuration is another one than a moment before: let no "
            "trainer write there"
        )


def _canonical(config: Mapping[str, Any]) -> str:
    """A configuration as text, the same for equal ones; NaN, which some hold, equals NaN."""
    return json.dumps(dict(config), sort_keys=True)


def stored_precision(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The configuration that states a checkpoint's own precision, where any does.

    A pipeline's index states none; there it is that of the first component that does. So it is with
    the list of a sentence-transformers model's modules.
    """
    if _is_sentence(checkpoint):
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


def _readable(checkpoint: Checkpoint, names: list[str], options: FileOptions) -> list[str]:
    """Those of the files in a checkpoint's own folder that loading reads.

    They are none of a component that a part replaces, and no weights that a part brings.
    """
    replaced, supplied = _replaced(checkpoint), _supplied(checkpoint)
    readable = readable_files(names, checkpoint.kind, checkpoint.config, options)
    return [
        name
        for name in readable
        if (component := name.partition("/")[0]) not in replaced
        and not (component in supplied and is_weights(name))
        and not (checkpoint.weights_part is not None and is_weights(name))
    ]


def _replaced(checkpoint: Checkpoint) -> set[str]:
    return {part.component for part in checkpoint.parts if part.component}


def _supplied(checkpoint: Checkpoint) -> set[str]:
    return {name for part in checkpoint.parts for name in part.supplies}


def _fetch_readable(spec: ModelSpec, checkpoint: Checkpoint, commit: str) -> None:
    """Bring what loading reads of a hub id's commit into the cache.

    Without a network nothing is fetched: what is missing shows when the files are checked.
    """
    from huggingface_hub import HfApi

    try:
        names = HfApi().list_repo_files(checkpoint.repository, revision=commit)
    except OSError:  # no network, or the hub's own errors, which are OSErrors
        return
    names = _readable(checkpoint, names, file_options(spec))
    snapshot(checkpoint.repository, commit, [glob.escape(name) for name in names])


def _is_sentence(checkpoint: Checkpoint) -> bool:
    return checkpoint.kind == "sentence_transformers"


def identify(folder: Path) -> tuple[CheckpointKind, Mapping[str, Any]]:
    """The kind of the checkpoint that a folder is, and its configuration.

    Raises CheckpointError where it is none.
    """
    index = next((name for name in _CONFIGURATIONS if (folder / name).is_file()), None)
    listed = (folder / MODULES_FILE).is_file()
    if index is None and not listed:
        raise CheckpointError(_no_checkpoint(folder))
    if index is not None:
        config = read_json(folder / index)
        kind = _kind(folder, index, config)
        # Dual encoders that also carry modules.json read images only the other way.
        if not listed or detect_roles(kind, config).roles:
            return kind, config
    return "sentence_transformers", {"modules": read_modules(folder / MODULES_FILE)}


def _kind(folder: Path, index: str, config: Mapping[str, Any]) -> CheckpointKind:
    if index == "model_index.json":
        return "diffusers"
    if index == "open_clip_config.json":
        return "open_clip"
    if "architecture" in config and "pretrained_cfg" in config and "model_type" not in config:
        return "timm"
    if "model_type" not in config and "architectures" not in config:
        entries = ", ".join(sorted(config)[:8]) or "nothing"
        raise CheckpointError(
            f"{folder / index}: neither model_type nor architecture is given (found {entries}). If "
            "this is one component of a pipeline, give the pipeline's folder"
        )
    return "transformers"


def _no_checkpoint(folder: Path) -> str:
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    inner = [n for n in names if _is_whole(folder / n)]
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    hint = f" Did you mean {folder / inner[-1]}?" if inner else ""
    return (
        f"{folder}: no checkpoint. Expected one of {', '.join(INDEXES)}; the folder holds "
        f"{shown or 'nothing'}.{hint}"
    )


def _is_whole(folder: Path) -> bool:
    others = (name for name in INDEXES if name != "config.json")
    return holds_whole_model(folder) or any((folder / name).is_file() for name in others)


def _inner_adapter(folder: Path) -> str:
    return (
        f"{folder}: a PEFT adapter inside of a checkpoint, which its library would apply by itself "
        "to weights that no fingerprint covers. Merge it (merge_and_unload) and save the whole "
        "model"
    )


_VERSION = 1


def fingerprint(
    checkpoint: Checkpoint,
    hash_file: Callable[[Path], str],
    options: FileOptions = FileOptions(),  # noqa: B008 - frozen
) -> str:
    """Digest (64 hexadecimal digits) of everything that loading the checkpoint can read.

    Hashed are the bytes of weights, configurations (model, generation, scheduler), tokenizers,
    processors and chat templates, each under its path, by which loaders find it. Names and dates
    tell nothing: two checkpoints of one training have the same names, and a copy has other dates.
    A configuration file that some loaders ignore is hashed all the same: at worst results are
    computed once more, where a missed file would give a wrong number.

    Left out are READMEs and licences, trainer and optimizer states, pictures, and weights that
    loading passes over (pickled twins of safetensors, a pipeline's single-file weights, other
    variants): they change no answer. Library versions are provenance, kept beside results.

    hash_file: SHA-256 of a file's bytes, hexadecimal.
    options: those the model will be loaded with: pickled weights count where they are allowed,
        Python files where they are run.
    Raises CheckpointError for a checkpoint whose code would come from another repository.
    """
    if checkpoint.kind == "weights_file":
        weights, code = hash_file(checkpoint.path), checkpoint.config["code"]
        return digest_json({"version": _VERSION, "weights": weights, "code": code})
    if options.trust_remote_code:
        _refuse_foreign_code(checkpoint)
    files = [[name, hash_file(path)] for name, path in _own_files(checkpoint, options)]
    content: dict[str, Any] = {"version": _VERSION, "kind": checkpoint.kind, "files": files}
    added = [part for part in checkpoint.parts if not part.component]
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


def _own_files(checkpoint: Checkpoint, options: FileOptions) -> list[tuple[str, Path]]:
    """Name and place of each file of the folder that loading reads.

    A part that replaces a component has the names that its files would have in the folder, so that
    a pipeline with the part and a copy that holds it are one model.
    """
    names = list_files(checkpoint.path) if checkpoint.path.is_dir() else []
    readable = _readable(checkpoint, names, options)
    files = [(name, checkpoint.path / name) for name in readable]
    for part in checkpoint.parts:
        if part.component:
            files += [(f"{part.component}/{name}", path) for name, path in part.paths()]
    return sorted(files)


def _read_files(checkpoint: Checkpoint, options: FileOptions) -> list[tuple[str, Path]]:
    """Name and place of every file that loading reads, parts included."""
    if checkpoint.kind == "weights_file":
        return [("", checkpoint.path)]
    added = [file for part in checkpoint.parts if not part.component for file in part.paths()]
    return _own_files(checkpoint, options) + added


def _refuse_foreign_code(checkpoint: Checkpoint) -> None:
    references = checkpoint.config.get("auto_map") or {}
    for reference in references.values():
        for name in reference if isinstance(reference, list) else [reference]:
            repository, separator, target = str(name).partition("--")
            if separator:
                raise CheckpointError(
                    f"{checkpoint.path}: its code lies in another repository ({repository}), so no "
                    f"fingerprint can vouch for it. Copy the Python files beside the weights and "
                    f'shorten the entry in auto_map to "{target}"'
                )
