"""Checkpoints: what a folder holds, its roles, whether it is whole, and its fingerprint.

Reads JSON and file headers only; no model library is imported. Weights that were saved through a
wrapper (torch.compile, DDP, FSDP, Lightning, PEFT) have its name in that of every tensor. No
library finds them so, and it is given copies of the files in which they have the model's own.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    MODULES_FILE,
    WEIGHT_SUFFIXES,
    CheckpointPart,
    brings_tokenizer,
    component_names,
    is_weights,
    linked_folder,
    list_files,
    parse_header,
    preparation_files,
    read_json,
    read_modules,
    readable_files,
    tensor_shapes,
)
from pytest_cepbench.models.checkpoints.format_detection import CheckpointKind, detect_roles
from pytest_cepbench.models.checkpoints.source_options import FileOptions
from pytest_cepbench.models.checkpoints.transformers_parts import (
    SHARD_SUFFIX,
    holds_whole_model,
)
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

    @property
    def replaced(self) -> set[str]:
        """The components of a pipeline whose folders parts take the place of."""
        return {part.component for part in self.parts if part.component}

    @property
    def supplied(self) -> set[str]:
        """The components of a pipeline whose weights parts bring."""
        return {name for part in self.parts for name in part.supplies}

    def readable(self, names: Iterable[str], options: FileOptions) -> list[str]:
        """Those of the files in its own folder that loading reads.

        They are none of a component that a part replaces, and no weights that a part brings.
        """
        replaced, supplied = self.replaced, self.supplied
        return [
            name
            for name in readable_files(names, self.kind, self.config, options)
            if (component := name.partition("/")[0]) not in replaced
            and not (component in supplied and is_weights(name))
            and not (self.weights_part is not None and is_weights(name))
        ]

    def weight_files(self, options: FileOptions = FileOptions()) -> list[Path]:  # noqa: B008
        """Where the weights lie that loading reads, those of its parts among them."""
        if self.kind == "weights_file":
            return [self.path] if self.path.suffix in WEIGHT_FILES else []
        added = [file for part in self.parts if not part.component for file in part.paths()]
        paths = [path for _, path in _own_files(self, options) + added]
        return [path for path in paths if path.suffix in WEIGHT_FILES]


def check_configuration(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError where the configuration is another one than when it was inspected.

    It says which files are read, so that a fingerprint by another one could miss some.
    """
    if checkpoint.kind == "weights_file":
        return
    kind, config = identify(checkpoint.path)
    # As text, in which NaN, which some configurations hold, equals NaN.
    now, before = (json.dumps(dict(c), sort_keys=True) for c in (config, checkpoint.config))
    if (kind, now) != (checkpoint.kind, before):
        raise CheckpointError(
            f"{checkpoint.path}: its configuration is another one than a moment before: let no "
            "trainer write there"
        )


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
    indexes = [name for name in INDEXES if name != "config.json"]
    inner = [
        name
        for name in names
        if holds_whole_model(folder / name) or any((folder / name / i).is_file() for i in indexes)
    ]
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    hint = f" Did you mean {folder / inner[-1]}?" if inner else ""
    return (
        f"{folder}: no checkpoint. Expected one of {', '.join(INDEXES)}; the folder holds "
        f"{shown or 'nothing'}.{hint}"
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
    files = [(name, checkpoint.path / name) for name in checkpoint.readable(names, options)]
    for part in checkpoint.parts:
        if part.component:
            files += [(f"{part.component}/{name}", path) for name, path in part.paths()]
    return sorted(files)


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


_BETWEEN = re.compile(
    r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
)
"""What wrappers put before a model and between its modules; no module has such a name."""

_BEFORE = ("module.", "base_model.model.")
"""What DDP and PEFT put before a model, the outer first; a module inside may have such a name."""


def without_wrappers(name: str) -> str:
    """The name of a tensor without those of wrappers that stand between modules."""
    return _BETWEEN.sub("", name)


def own_names(names: Collection[str], place: Path) -> dict[str, str]:
    """The names that a model itself gives its tensors, by those that they were saved under.

    place: where they lie, for people. Raises CheckpointError where some of them begin with a
    wrapper's name and others do not, and where two would be one.
    """
    own = {name: without_wrappers(name) for name in names}
    for before in _BEFORE:
        bare = [name for name, short in own.items() if not short.startswith(before)]
        if 0 < len(bare) < len(own):
            raise CheckpointError(
                f"{place}: {len(own) - len(bare)} tensors begin with the name of a wrapper, "
                f"{before}, and {few_of(bare)} not: save the model inside of the wrapper, whole"
            )
        if not bare:
            own = {name: short.removeprefix(before) for name, short in own.items()}
    twice = [short for short, count in Counter(own[name] for name in names).items() if count > 1]
    if twice:
        raise CheckpointError(f"{place}: two tensors would be {few_of(twice)}")
    return own


@contextmanager
def unwrapped(checkpoint: Checkpoint, options: FileOptions) -> Iterator[Checkpoint]:
    """The checkpoint, in a folder in which tensors have the model's own names.

    That is its own folder unless they have the names of wrappers in theirs; otherwise one of links
    and renamed copies, until the end of the block. Raises CheckpointError as `own_names`.
    """
    folder = checkpoint.path
    names = list_files(folder)
    readable = readable_files(names, checkpoint.kind, checkpoint.config, options)
    weights = [Path(name) for name in readable if ".safetensors" in name]
    renamed: dict[Path, dict[str, str]] = {}
    for part in {path.parent for path in weights}:
        files = [path for path in weights if path.parent == part]
        shards = [folder / path for path in files if path.suffix == ".safetensors"]
        # Older files that nothing reads any more have tensors of the same names.
        own = own_names({name for shard in shards for name in tensor_shapes(shard)}, folder / part)
        if any(name != short for name, short in own.items()):
            renamed |= dict.fromkeys(files, own)
    if not renamed:
        yield checkpoint
        return
    with linked_folder({name: folder / name for name in names}) as whole:
        for path, own in renamed.items():
            (whole / path).unlink()
            _copy(folder / path, whole / path, own)
        yield replace(checkpoint, path=whole)


@contextmanager
def unwrapped_file(path: Path) -> Iterator[Path]:
    """The same for a file of safetensors by itself."""
    own = own_names(tensor_shapes(path), path) if path.suffix == ".safetensors" else {}
    if all(name == short for name, short in own.items()):
        yield path
        return
    with linked_folder({}) as folder:
        _copy(path, folder / path.name, own)
        yield folder / path.name


def _copy(source: Path, target: Path, own: dict[str, str]) -> None:
    """Copy safetensors, or an index of them, with the model's own names in the place of others."""
    if source.suffix == ".json":
        index = read_json(source)
        places = index["weight_map"]
        index["weight_map"] = {own.get(name, name): place for name, place in places.items()}
        target.write_text(json.dumps(index), encoding="utf-8")
        return
    with open_regular(source) as stream, target.open("xb") as copy:
        header = parse_header(stream, int.from_bytes(stream.read(8), "little"))
        named = {own.get(name, name): tensor for name, tensor in header.items()}
        text = json.dumps(named, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # libraries map the values, which have to be aligned
        copy.write(len(text).to_bytes(8, "little") + text)
        shutil.copyfileobj(stream, copy, 1 << 24)
