"""Which files of a checkpoint loading can read, and whether its weights are all there and whole.

One rule decides what is fetched from a hub, what is checked and what is hashed: a file that could
change a model's answers without changing its fingerprint would let stored answers outlive it.

Processor and tokenizer files may lie in the run's root, in the base model's folder, or beside an
adapter. Libraries read them from one folder; where they lie in several, one of links is made for
the time of loading.
"""

from __future__ import annotations

import fnmatch
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.files import open_regular, parse_json, read_text
from pytest_cepbench.models.checkpoints.format_detection import CheckpointKind
from pytest_cepbench.models.checkpoints.parameters import SourceOptions


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

    def paths(self) -> list[tuple[str, Path]]:
        """Each file's name and where it lies."""
        return [(name, self.path / name if name else self.path) for name in self.files(self.path)]


ADAPTER_CONFIG = "adapter_config.json"
"""The file by which a folder is that of a PEFT adapter."""

MODULES_FILE = "modules.json"
"""The file of a sentence-transformers model that lists its modules, each with type and folder."""

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
"""How names of files of weights end."""

SHARD_SUFFIX = ".distcp"
"""How names of the shards of torch.distributed.checkpoint end."""

WEIGHT_FILES = (*WEIGHT_SUFFIXES, SHARD_SUFFIX, ".ckpt")
"""How names of files of weights end that any loader reads."""

_MOST_CONFIG = 256 * 2**20  # bytes of a configuration or an index; the largest are of some MB

_MOST_HEADER = 100_000_000

_CONFIG_SUFFIXES = {".json", ".txt", ".jinja", ".model", ".spm", ".tiktoken", ".vocab", ".bpe"}

# Written by trainers and people next to a model; no loader reads them.
_NOT_READ = re.compile(
    r"(trainer_state|all_results|train_results|eval_results|predict_results)\.json"
    r"|(readme|license|licence|notice|requirements|changelog)\b.*",
    re.IGNORECASE,
)
_PICKLED = re.compile(r".*pytorch_model.*\.(bin|pt|pth)")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def list_files(folder: Path) -> list[str]:
    """All files below a folder as sorted posix paths, hidden files and folders left out.

    Links to folders are followed, since loaders follow them: a component may be linked in from
    another checkpoint.
    """
    files: list[str] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        # A link back to a folder above would be walked forever.
        folders[:] = [] if real in seen else [name for name in folders if not name.startswith(".")]
        seen.add(real)
        paths = (Path(parent, name) for name in names if not name.startswith("."))
        files += [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
    return sorted(files)


def readable_files(
    names: Iterable[str],
    kind: CheckpointKind,
    config: Mapping[str, Any],
    options: SourceOptions = SourceOptions(),  # noqa: B008 - frozen
) -> list[str]:
    """The files of a checkpoint (posix paths) that loading can read, sorted.

    Weights are safetensors; pickled weights count only where they are allowed and their folder
    holds no safetensors. A pipeline's weights are those of its components, in the variant where the
    component has it; whatever lies in its root (single-file weights) or in folders that its index
    does not name is not read. A sentence-transformers model's are those of its modules.
    """
    names = sorted(names)
    holders = _parts(kind, config)
    folders = [".", *holders]
    if kind == "sentence_transformers":
        folders += [_folder(module) for module in config["modules"]]
    wanted = [name for name in names if options.trust_remote_code and name.endswith(".py")]
    for folder in dict.fromkeys(folders):
        inside = [PurePosixPath(name) for name in names]
        inside = [path for path in inside if str(path.parent) == folder]
        if folder in holders:
            wanted += _weights(list(map(str, inside)), kind, options)
        wanted += [
            str(path)
            for path in inside
            if path.suffix in _CONFIG_SUFFIXES
            and not _NOT_READ.fullmatch(path.name)
            # An index goes with its weights.
            and not (".safetensors.index" in path.name or path.name.endswith(".bin.index.json"))
        ]
        prefix = "" if folder == "." else f"{folder}/"
        wanted += [n for n in names if n.startswith(f"{prefix}additional_chat_templates/")]
    return sorted(set(wanted))


def _parts(kind: CheckpointKind, config: Mapping[str, Any]) -> list[str]:
    """The folders of a checkpoint that can hold weights, "." for its own."""
    if kind == "diffusers":
        return component_names(config)
    if kind == "sentence_transformers":
        return [_folder(m) for m in config["modules"] if m["type"].endswith(".Transformer")]
    return ["."]


def _folder(module: Mapping[str, str]) -> str:
    return str(PurePosixPath(module["path"]))


def holds_adapter(folder: Path) -> bool:
    """Whether a folder is that of a PEFT adapter."""
    return (folder / ADAPTER_CONFIG).is_file()


def component_names(index: Mapping[str, Any]) -> list[str]:
    """The components that a pipeline's model_index.json says it has."""
    return [
        name
        for name, value in index.items()
        if isinstance(value, list) and len(value) == 2 and value[0] and not name.startswith("_")
    ]


def is_weights(name: str) -> bool:
    """Whether a file is one of weights, or the index of some."""
    path = PurePosixPath(name)
    index = ".safetensors.index" in path.name or ".bin.index" in path.name
    return index or path.suffix in WEIGHT_SUFFIXES


def _weights(names: list[str], kind: CheckpointKind, options: SourceOptions) -> list[str]:
    safe = [name for name in names if ".safetensors" in PurePosixPath(name).name]
    safe = [name for name in safe if not PurePosixPath(name).name.startswith("consolidated")]
    weights = safe
    if not any(name.endswith(".safetensors") for name in safe) and options.allow_pickle:
        weights = [n for n in names if _PICKLED.fullmatch(n) or ".bin.index" in n]
    own = [n for n in weights if PurePosixPath(n).name.startswith("open_clip_")]
    if kind == "open_clip" and own:
        return own  # the same repository often holds transformers' copy of the weights
    if kind in ("open_clip", "timm"):
        return weights  # these know no variants, so a dot in a name means nothing
    plain = [name for name in weights if _variant_of(name) is None]
    chosen = [name for name in weights if _variant_of(name) == options.variant]
    return chosen or plain


def _variant_of(name: str) -> str | None:
    """The variant "fp16" of model.fp16.safetensors, its shards and index; None of plain files."""
    base = PurePosixPath(name).name.split(".safetensors")[0].split(".bin")[0]
    index = re.search(r"\.index\.(\w+)\.json$", name)
    if index:
        return index[1]
    stem = _SHARD.sub("", base)
    return stem.partition(".")[2] or None


def _no_weights(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    pickled = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    pickled = [name for name in pickled if _PICKLED.fullmatch(name)]
    if pickled:
        return (
            f"{folder}: the weights are pickled only ({', '.join(pickled)}), and unpickling can "
            "run code. Save them as safetensors, or add allow_pickle=true to the model's spec if "
            "you trust where they come from"
        )
    variants = sorted({v for n in names if ".safetensors" in n and (v := _variant_of(n))})
    if variants:
        return (
            f"{folder}: the weights are there in the variant {' and '.join(variants)} only: add "
            f"variant={variants[0]} to the model's spec"
        )
    return f"{folder}: no weights. Expected safetensors, found {', '.join(names) or 'no files'}"


def check_weights(
    folder: Path, readable: Iterable[str], config: Mapping[str, Any], kind: CheckpointKind
) -> None:
    """Raise CheckpointError where weights are missing, pickled only, cut off or not all there.

    readable: what `readable_files` gave for the folder. Reads headers, never tensors.
    """
    readable = list(readable)
    for part in _parts(kind, config):
        inside = folder / part
        if not inside.is_dir():
            raise CheckpointError(
                f"{folder}: its index names a component {part!r}, and no such folder is there"
            )
        # Schedulers, tokenizers and processors have configuration files of other names.
        if kind == "diffusers" and not (inside / "config.json").is_file():
            continue
        own = [name for name in readable if str(PurePosixPath(name).parent) == part]
        if not any(PurePosixPath(name).suffix in WEIGHT_SUFFIXES for name in own):
            raise CheckpointError(_no_weights(inside))
    for name in readable:
        if name.endswith(".safetensors"):
            check_safetensors(folder / name)
        elif ".index" in name and name.endswith(".json"):
            parent = PurePosixPath(name).parent
            places = read_json(folder / name).get("weight_map")
            named = set(map(str, places.values())) if isinstance(places, dict) else set()
            if not named:
                raise CheckpointError(
                    f"{folder / name}: no weight_map, so it names no weights. Was it written "
                    "completely?"
                )
            missing = sorted(shard for shard in named if not (folder / parent / shard).is_file())
            if missing:
                raise CheckpointError(
                    f"{folder / parent}: {len(missing)} of the {len(named)} weight files that "
                    f"{PurePosixPath(name).name} names are missing: {', '.join(missing[:5])}"
                )
            # Libraries follow such a name anywhere, and no fingerprint would cover what they read.
            if apart := sorted(shard for shard in named if str(parent / shard) not in readable):
                raise CheckpointError(
                    f"{folder / name}: names {few_of(apart)}, which is none of the weights that "
                    "lie beside it. Keep them all in its folder, under the names that they were "
                    "saved with"
                )


def check_safetensors(path: Path) -> dict[str, dict[str, Any]]:
    """What a safetensors file's header says of each tensor: dtype, shape and place of its bytes.

    Raises CheckpointError when it is no whole file, and as `refuse_ungathered`. The format is 8
    bytes of header length (little endian), a JSON header with each tensor's `data_offsets`, and the
    data; a copy that was interrupted ends before its last tensor.
    """
    remedy = "it is damaged or was copied only in part: write or fetch it again"
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                raise CheckpointError(
                    f"{path}: {size:,} bytes, shorter than its own header says; {remedy}"
                )
            tensors = dict(parse_header(stream, length))
        tensors.pop("__metadata__", None)
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
        # Quantized layers keep empty whole numbers.
        empty = [n for n, own in tensors.items() if own["shape"] == [0] and "F" in own["dtype"]]
    except OSError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path}: not a safetensors file ({error}); {remedy}") from error
    if 8 + length + end != size:
        raise CheckpointError(
            f"{path}: {size:,} bytes where its header describes {8 + length + end:,}; {remedy}"
        )
    refuse_ungathered(path, empty)
    return tensors


def tensor_shapes(path: Path) -> Mapping[str, tuple[int, ...]]:
    """Name and shape of every tensor of a safetensors file; raises as `check_safetensors`."""
    return {name: tuple(tensor["shape"]) for name, tensor in check_safetensors(path).items()}


def refuse_ungathered(path: Path, empty: Collection[str]) -> None:
    """Raise CheckpointError where weights were saved that other processes of a training held.

    empty: the names of floating tensors of shape (0,).
    """
    if empty:
        raise CheckpointError(
            f"{path}: no values of {few_of(empty)}: DeepSpeed's ZeRO-3 divides weights among "
            "processes, and these were not gathered when they were saved. Train with "
            "stage3_gather_16bit_weights_on_model_save set to true (zero_optimization), or make "
            "whole weights of the training's own state with zero_to_fp32.py"
        )


def parse_header(stream: BinaryIO, length: int) -> Any:
    """The header of a safetensors file, behind its length. Raises ValueError where it is none."""
    if length > _MOST_HEADER:
        raise ValueError(
            f"a header of {length:,} bytes; the format's own limit is {_MOST_HEADER:,}"
        )
    return parse_json(stream.read(length).decode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError naming the file when it holds none."""
    value = _parse(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_modules(path: Path) -> list[dict[str, str]]:
    """The modules in a sentence-transformers modules.json, in order: the path and type of each.

    A path is relative to the file's folder, "" for that folder itself. Raises CheckpointError for a
    file that lists none, and for a path that leads out of the folder.
    """
    listed = _parse(path)
    if (
        not isinstance(listed, list)
        or not listed
        or not all(
            isinstance(module, dict)
            and isinstance(module.get("path"), str)
            and isinstance(module.get("type"), str)
            for module in listed
        )
    ):
        raise CheckpointError(
            f"{path}: expected a JSON list of modules, each with a path and a type"
        )
    for module in listed:
        inner = PurePosixPath(module["path"])
        if inner.is_absolute() or ".." in inner.parts or "\\" in module["path"]:
            raise CheckpointError(
                f"{path}: the module path {module['path']!r} leads out of the checkpoint"
            )
    return [{"path": module["path"], "type": module["type"]} for module in listed]


def _parse(path: Path) -> Any:
    try:
        return parse_json(read_text(path, _MOST_CONFIG))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not readable as JSON ({error}). Was it written completely?"
        ) from error


PREPARATIONS = ("processor", "tokenizer")
"""Names of the parts that hold a processor or a tokenizer."""

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


def preparation_files(folder: Path, parts: Sequence[CheckpointPart]) -> Mapping[str, Path]:
    """Name and place of each file of the processor and the tokenizer, and of what says their class.

    folder: of the checkpoint. A part that brings a tokenizer takes the place of all of the files of
    the one before it, and so does an image processor; a chat template only takes that of another.
    """
    own = (*PROCESSOR_FILES, *TOKENIZER_FILES, "config.json", "*.py")
    files = {name: folder / name for name in _matching(own, folder)}
    for part in parts:
        if part.name not in PREPARATIONS:
            continue
        brought = dict(part.paths())
        for has, patterns in (
            (any(_fits(name, PROCESSOR_FILES[:2]) for name in brought), PROCESSOR_FILES),
            (any(_fits(name, _VOCABULARIES) for name in brought), TOKENIZER_FILES),
        ):
            replaced = patterns[: -len(_TEMPLATES)] if has else ()
            files = {n: path for n, path in files.items() if not _fits(n, replaced)}
        templates = (*_TEMPLATES, "chat_template.json")
        if any(_fits(name, templates) for name in brought):
            files = {n: path for n, path in files.items() if not _fits(n, templates)}
        files |= brought
    return files


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
