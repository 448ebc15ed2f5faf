"""Which files of a checkpoint loading can read, and whether its weights are all there and whole.

One rule decides what is fetched from a hub, what is checked and what is hashed: a file that could
change a model's answers without changing its fingerprint would let stored answers outlive it.

Weights that were saved through a wrapper (torch.compile, DDP, FSDP, Lightning, PEFT) have its name
in that of every tensor. No library finds them so, and it is given copies of the files in which they
have the model's own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.files import open_regular, parse_json
from pytest_cepbench.models.checkpoints.format_detection import CheckpointKind, read_json
from pytest_cepbench.models.checkpoints.parameters import SourceOptions

ADAPTER_CONFIG = "adapter_config.json"
"""The file by which a folder is that of a PEFT adapter."""

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
"""How names of files of weights end."""

SHARD_SUFFIX = ".distcp"
"""How names of the shards of torch.distributed.checkpoint end."""

WEIGHT_FILES = (*WEIGHT_SUFFIXES, SHARD_SUFFIX, ".ckpt")
"""How names of files of weights end that any loader reads."""

_CONFIG_SUFFIXES = {
    ".json", ".txt", ".jinja", ".model", ".spm", ".tiktoken", ".vocab", ".bpe", ".codes",
    ".tokenizer",
}  # fmt: skip

_CODE_SUFFIXES = _CONFIG_SUFFIXES | {
    ".py", ".cpp", ".cu", ".so", ".npy", ".npz", ".yaml", ".yml", ".csv", ".tsv", ".ttf",
}  # fmt: skip

_SUFFIXES = (*_CODE_SUFFIXES, *WEIGHT_SUFFIXES)

# Written by trainers and people next to a model; no loader reads them.
_NOT_READ = re.compile(
    r"(trainer_state|all_results|train_results|eval_results|predict_results)\.json"
    r"|(readme|license|licence|notice|requirements|changelog)\b.*",
    re.IGNORECASE,
)
# Not among these: a checkpoint's own code may read them, so that they are covered where they lie.
_REPORT = re.compile(r"(metrics|results|history|logs?)\.(json|txt)$")
_NOT_MODEL = re.compile(
    r"(^|/)(global_step\d|pytorch_model_fsdp_|optimizer|consolidated)"
    r"|^(training_args|scheduler|scaler|rng_state.*|random_states.*)\."
)
"""A training's own states, and copies of a model's weights in the form of its authors."""

_PICKLED = re.compile(r".*pytorch_model.*\.(bin|pt|pth)")
_PICKLED_INDEX = re.compile(r".*pytorch_model.*\.bin\.index.*")
_TOKENIZER = re.compile(r"[^/]+_tokenizer")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def list_files(folder: Path) -> list[str]:
    """All files below a folder as sorted posix paths, hidden files and folders left out.

    Links to folders are followed, since loaders follow them: a component may be linked in from
    another checkpoint. Links to nothing are listed: where loaders would do without, `check_weights`
    refuses. What a training reports in a file of its own may be one.
    """
    files: list[str] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        # A link back to a folder above would be walked forever.
        folders[:] = [] if real in seen else [name for name in folders if not name.startswith(".")]
        seen.add(real)
        # As texts: a run's folder may hold a hundred thousand pictures.
        inner = Path(parent).relative_to(folder).as_posix()
        for name in names:
            path = f"{parent}/{name}"
            gone = not os.path.exists(path) and not _REPORT.search(name)  # noqa: PTH110
            if (gone or os.path.isfile(path)) and not name.startswith("."):  # noqa: PTH113
                files.append(name if inner == "." else f"{inner}/{name}")
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
    paths = [
        PurePosixPath(name)
        for name in sorted(names)
        if name.endswith(_SUFFIXES) or ".safetensors" in name or "chat_templates/" in name
    ]
    holders = _holders(kind, config)
    folders = {".", *holders}
    if kind == "sentence_transformers":
        folders |= {str(PurePosixPath(m["path"])) for m in config["modules"]}
    if kind == "transformers":  # a processor's second tokenizer has a folder of its own
        folders |= {str(p.parent) for p in paths if _TOKENIZER.fullmatch(str(p.parent))}
    templates = tuple(f"{f}/additional_chat_templates/".removeprefix("./") for f in folders)
    wanted = {str(path) for path in paths if str(path).startswith(templates)}
    for path in paths:
        if _NOT_READ.fullmatch(path.name):
            continue
        # An index goes with its weights.
        index = ".safetensors.index" in path.name or path.name.endswith(".bin.index.json")
        configures = path.suffix in _CONFIG_SUFFIXES and not index
        # Code, and what a checkpoint's own code may read, in any folder. Weights of a folder inside
        # are its code's alone, and so are pickled ones (mm_projector.bin) that are no twins of the
        # model's; the other kinds' components have variants.
        pickled = path.suffix in WEIGHT_SUFFIXES[1:] and not _PICKLED.fullmatch(path.name)
        apart = kind == "transformers" and (pickled or len(path.parts) > 1)
        data = apart and not _NOT_MODEL.search(str(path))
        code = data if is_weights(path.name) else path.suffix in _CODE_SUFFIXES
        if (configures and str(path.parent) in folders) or (
            code and options.trust_remote_code and not path.parts[0].startswith("checkpoint-")
        ):
            wanted.add(str(path))
    for folder in holders:
        wanted.update(_weights([str(p) for p in paths if str(p.parent) == folder], kind, options))
    return sorted(wanted)


def _holders(kind: CheckpointKind, config: Mapping[str, Any]) -> list[str]:
    """The folders of a checkpoint that can hold weights, "." for its own."""
    if kind == "diffusers":
        return component_names(config)
    if kind == "sentence_transformers":
        modules = (m for m in config["modules"] if m["type"].endswith(".Transformer"))
        return [str(PurePosixPath(module["path"])) for module in modules]
    return ["."]


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
    """The files of weights that are read of those in one folder."""
    weights = {
        name: file
        for name in names
        if _is_safe(file := PurePosixPath(name).name)
        or (options.allow_pickle and (_PICKLED.fullmatch(file) or _PICKLED_INDEX.fullmatch(file)))
    }
    if kind == "open_clip" and any(f.startswith("open_clip_") for f in weights.values()):
        # The same repository often holds transformers' copy of the weights.
        weights = {n: file for n, file in weights.items() if file.startswith("open_clip_")}
    elif kind not in ("open_clip", "timm"):  # these know no variants: a dot in a name means nothing
        variants = {name: _variant_of(name) for name in weights}
        wanted = options.variant if options.variant in variants.values() else None
        weights = {name: file for name, file in weights.items() if variants[name] == wanted}
    safe = [file for file in weights.values() if _is_safe(file)]

    def has_twin(file: str) -> bool:
        """Only safetensors of its own name keep a library from reading pickled weights."""
        before = re.escape(file.partition("pytorch_model")[0])
        twin = re.compile(rf"({before}(pytorch_)?model(\.|-\d{{5}}-of-)|shard-).*")
        return any(map(twin.fullmatch, safe))

    return [name for name, file in weights.items() if _is_safe(file) or not has_twin(file)]


def _is_safe(file: str) -> bool:
    return ".safetensors" in file and not file.startswith("consolidated")


def _variant_of(name: str) -> str | None:
    """The variant "fp16" of model.fp16.safetensors, its shards and index; None of plain files."""
    if index := re.search(r"\.index\.(\w+)\.json$", name):
        return index[1]
    base = PurePosixPath(name).name.split(".safetensors")[0].split(".bin")[0]
    return _SHARD.sub("", base).partition(".")[2] or None


def check_links(folder: Path, readable: Collection[str]) -> None:
    """Raise CheckpointError where a file that loading reads is a link to nothing."""
    if gone := [name for name in readable if not (folder / name).exists()]:
        raise CheckpointError(
            f"{folder}: {few_of(gone)}: links to files that are not there. Fetch them (dvc pull, "
            "git annex get), or copy the checkpoint with what they lead to"
        )


def check_weights(
    folder: Path,
    readable: Collection[str],
    config: Mapping[str, Any],
    kind: CheckpointKind,
    *,
    scaled: bool = True,
) -> None:
    """Raise CheckpointError where weights are missing, pickled only, cut off or not all there, and
    where anything that is read is a link to nothing.

    readable: what `readable_files` gave for the folder. Reads headers, each once, never tensors.
    scaled: whether weights may be whole numbers, since a quantization says how they are scaled.
    """
    check_links(folder, readable)
    for holder in _holders(kind, config):
        inside = folder / holder
        if not inside.is_dir():
            raise CheckpointError(
                f"{folder}: its index names a component {holder!r}, and no such folder is there"
            )
        # Schedulers, tokenizers and processors have configuration files of other names.
        if kind == "diffusers" and not (inside / "config.json").is_file():
            continue
        own = (path for path in map(PurePosixPath, readable) if str(path.parent) == holder)
        # Other pickled files are what the checkpoint's own code reads beside the weights.
        if not any(p.suffix == ".safetensors" or _PICKLED.fullmatch(p.name) for p in own):
            names = [path.name for path in inside.iterdir() if path.is_file()]
            variants = {v for n in names if ".safetensors" in n and (v := _variant_of(n))}
            hint = f"Add variant={min(variants)} to the model's spec" if variants else ""
            if any(_PICKLED.fullmatch(name) for name in names):
                hint = (
                    "Unpickling can run code: save them as safetensors, or add allow_pickle=true "
                    "to the model's spec if you trust where they come from"
                )
            found = few_of(names, 12) or "no files"
            raise CheckpointError(
                f"{inside}: no weights. Expected safetensors, found {found}. {hint}".rstrip()
            )
    headers = {n: check_safetensors(folder / n) for n in readable if n.endswith(".safetensors")}
    for name, header in headers.items() if not scaled else ():
        numbers = [
            n for n, own in header.items() if n.endswith("weight") and own["dtype"][0] in "IU"
        ]
        if numbers:
            raise CheckpointError(
                f"{folder / name}: whole numbers in {few_of(numbers)}, and config.json has no "
                "quantization_config that says how they are scaled. Save the model again as its "
                "quantizer does"
            )
    for name in readable:
        if ".index" in name and name.endswith(".json"):
            _check_index(folder, name, readable, headers)


def _check_index(
    folder: Path, name: str, readable: Collection[str], headers: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise CheckpointError unless an index names exactly the shards that lie beside it.

    headers: of the safetensors of the folder, by their names.
    """
    index, parent = folder / name, PurePosixPath(name).parent
    places = read_json(index).get("weight_map")
    named = set(map(str, places.values())) if isinstance(places, dict) else set()
    if not named:
        raise CheckpointError(
            f"{index}: no weight_map, so it names no weights. Was it written completely?"
        )
    # Libraries follow such a name anywhere, and no fingerprint would cover what they read.
    if apart := sorted(shard for shard in named if str(parent / shard) not in readable):
        raise CheckpointError(
            f"{index}: of the {len(named)} weight files that it names {few_of(apart)} do not lie "
            "beside it. Keep them all in its folder, under the names that they were saved with"
        )
    whole = index.name.partition(".index.")[0]
    if str(parent / whole) in readable and whole not in named:
        # transformers reads the one file and diffusers the shards, whichever is older.
        raise CheckpointError(
            f"{index}: names {len(named)} shards, and {whole} beside it is none of them: weights "
            "of two times in one folder. Remove those that are out of date"
        )
    counts = Counter(tensor for shard in named for tensor in headers.get(str(parent / shard), ()))
    if twice := sorted(tensor for tensor, count in counts.items() if count > 1):
        raise CheckpointError(
            f"{index}: several of its shards hold {few_of(twice)}, as where shards of two times "
            "lie in one folder. Save the model again into an empty one"
        )


def check_safetensors(path: Path) -> dict[str, dict[str, Any]]:
    """What a safetensors file's header says of each tensor: dtype, shape and place of its bytes.

    Raises CheckpointError when it is no whole file, and as `refuse_ungathered`.
    """
    try:
        with open_regular(path) as stream:
            tensors = _read_header(stream)
        tensors.pop("__metadata__", None)
        # Quantized layers keep empty whole numbers.
        empty = [n for n, own in tensors.items() if own["shape"] == [0] and "F" in own["dtype"]]
    except OSError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}): it is damaged or was copied only in "
            "part: write or fetch it again"
        ) from error
    refuse_ungathered(path, empty)
    return tensors


def _read_header(stream: BinaryIO) -> dict[str, Any]:
    """The header of a safetensors file, whose values come next. Raises ValueError for no whole one.

    The format is 8 bytes of header length (little endian), a JSON header with each tensor's
    `data_offsets`, and the data; a copy that was interrupted ends before its last tensor.
    """
    size = os.fstat(stream.fileno()).st_size
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > min(size - 8, 100_000_000):
        raise ValueError(f"{size:,} bytes, and a header of {length:,}")
    header = dict(parse_json(stream.read(length).decode()))
    ends = (own["data_offsets"][1] for name, own in header.items() if name != "__metadata__")
    described = 8 + length + max(ends, default=0)
    if described != size:
        raise ValueError(f"{size:,} bytes where its header describes {described:,}")
    return header


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
def unwrapped_folder(
    files: Mapping[str, Path], renamed: Collection[str], *, linked: bool = False
) -> Iterator[Path | None]:
    """A folder of links to files in which tensors have the model's own names; None where they have
    them already.

    files: of a checkpoint, by name; the tensors of one folder are named together.
    renamed: those of them that are looked at. linked: whether links are wanted in any case.
    Raises CheckpointError as `own_names`.
    """
    wrapped: dict[str, dict[str, str]] = {}
    weights = [name for name in renamed if ".safetensors" in name]
    for folder in {PurePosixPath(name).parent for name in weights}:
        inside = [name for name in weights if PurePosixPath(name).parent == folder]
        shards = [files[name] for name in inside if name.endswith(".safetensors")]
        # Older files that nothing reads any more have tensors of the same names.
        names = {tensor for shard in shards for tensor in tensor_shapes(shard)}
        own = own_names(names, files[inside[0]].parent)
        if any(name != short for name, short in own.items()):
            wrapped |= dict.fromkeys(inside, own)
    if not wrapped and not linked:
        yield None
        return
    with linked_folder({name: files[name] for name in files.keys() - wrapped}) as place:
        for name, own in wrapped.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            _copy_renamed(files[name], place / name, own)
        yield place


@contextmanager
def unwrapped_file(path: Path) -> Iterator[Path]:
    """A file of weights in which tensors have the model's own names: itself, or a copy."""
    with unwrapped_folder({path.name: path}, [path.name]) as folder:
        yield path if folder is None else folder / path.name


def _copy_renamed(source: Path, target: Path, own: dict[str, str]) -> None:
    """Copy safetensors, or an index of them, with the model's own names in the place of others."""
    if source.suffix == ".json":
        index = read_json(source)
        places = index["weight_map"]
        index["weight_map"] = {own.get(name, name): place for name, place in places.items()}
        target.write_text(json.dumps(index), encoding="utf-8")
        return
    with open_regular(source) as stream, target.open("xb") as copy:
        named = {own.get(name, name): tensor for name, tensor in _read_header(stream).items()}
        text = json.dumps(named, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # libraries map the values, which have to be aligned
        copy.write(len(text).to_bytes(8, "little") + text)
        shutil.copyfileobj(stream, copy, 1 << 24)
