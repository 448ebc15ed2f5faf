"""Names of tensors that were saved through a wrapper (torch.compile, DDP, FSDP, Lightning, PEFT).

They have the wrapper's name in theirs. No library finds them so, and it is given copies of the
files in which they have the model's own.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    linked_folder,
    parse_header,
    read_json,
    tensor_shapes,
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
def unwrapped_folder(
    folder: Path, names: Collection[str], readable: Collection[str]
) -> Iterator[Path]:
    """A folder in which tensors have the model's own names.

    That is the folder itself unless they have the names of wrappers in theirs; otherwise one of
    links and renamed copies, until the end of the block.

    names: of all its files. readable: of those that are read. Raises CheckpointError as
    `own_names`.
    """
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
        yield folder
        return
    with linked_folder({name: folder / name for name in names}) as whole:
        for path, own in renamed.items():
            (whole / path).unlink()
            _copy(folder / path, whole / path, own)
        yield whole


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
