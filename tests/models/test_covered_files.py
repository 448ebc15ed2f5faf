"""What is loaded is what was fingerprinted, for every role, adapter and file of a fingerprint.

And it is the model's own: what is written into its files afterwards changes no answer of it.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains import CallCounts
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.errors import CheckpointError, DeviceMemoryError, IdentityError
from pytest_cepbench.files import RACY_NS, FileStamp
from pytest_cepbench.models.binding import BoundRole, CoveredFiles, HashFile
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from tests.models.binding import bind_text
from tests.models.files import (
    LLAVA,
    LOADED,
    safetensors_bytes,
    write_checkpoint,
    write_pipeline,
)
from tests.tiny import encoders
from tests.tiny.weights_files import INCEPTION_NAME

OTHER = safetensors_bytes(b"\0\0\0@")
"""Other weights, of the same size."""

NEEDS = (
    "torch", "transformers", "diffusers", "torchvision", "cleanfid", "sentence_transformers",
    "httpx2",
)  # fmt: skip

KINDS: dict[str, tuple[str, RoleName, str]] = {
    "describer": ("{root}/llava", "describer", "llava/model.safetensors"),
    "generator": ("{root}/sd", "generator", "sd/unet/diffusion_pytorch_model.safetensors"),
    "sentences": ("{root}/sentences", "encoder", "sentences/1_Pooling/config.json"),
    "unicom": ("unicom:{root}/unicom.safetensors", "encoder", "unicom.safetensors"),
    "cleanfid": (f"cleanfid:?weights={{root}}/{INCEPTION_NAME}", "encoder", INCEPTION_NAME),
    "served": (
        "openai:m?base_url=http://127.0.0.1:9/v1&weights={root}/llava",
        "describer",
        "llava/model.safetensors",
    ),
}
"""A model of each kind as a user names it, its role, and a file that a trainer overwrites."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder in which all of them lie."""
    if not all(map(find_spec, NEEDS)):
        pytest.skip("needs the extras models and openai")
    write_checkpoint(tmp_path / "llava", LLAVA)
    write_pipeline(tmp_path / "sd")
    sentences = write_checkpoint(tmp_path / "sentences", {"model_type": "bert"})
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"))
    ]
    (sentences / "modules.json").write_text(json.dumps(modules))
    write_checkpoint(sentences / "1_Pooling", {}, None)
    (tmp_path / "unicom.safetensors").write_bytes(safetensors_bytes())
    (tmp_path / INCEPTION_NAME).write_bytes(b"a TorchScript file")
    return tmp_path


def bound(kind: str, root: Path) -> BoundRole:
    """The model bound, as a run does when it starts."""
    text, role, _ = KINDS[kind]
    return bind_text(text.format(root=root), role, force=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_overwritten_before_it_is_loaded_is_refused(kind: str, root: Path) -> None:
    """One error that names the file, when, and what to do; no library is imported for it."""
    role, file = bound(kind, root), root / KINDS[kind][2]
    content = file.read_bytes()
    file.write_bytes(OTHER if OTHER[:-4] == content[:-4] else content + b" ")
    with pytest.raises(IdentityError) as raised:
        role.load()
    words = str(raised.value)
    assert "changed after it was fingerprinted, before the model was loaded (written again" in words
    assert file.name in words
    assert "Copy the checkpoint to a folder of its own" in words
    assert "\n" not in words


def test_another_configuration_is_told_though_it_covers_other_files(root: Path) -> None:
    """The index says which folders are read: one that names more of them covers more files."""
    role, index = bound("generator", root), root / "sd" / "model_index.json"
    config = json.loads(index.read_text())
    index.write_text(json.dumps(config | {"vae": ["diffusers", "AutoencoderKL"]}))
    with pytest.raises(IdentityError, match="its configuration is another one"):
        role.load()
    role = bound("describer", root)
    (root / "llava" / "generation_config.json").write_text("{}")
    with pytest.raises(IdentityError, match=r"\(new: generation_config.json\)"):
        role.load()


# -- the files themselves --------------------------------------------------------------------------


class Counting:
    """Digests of files, and how many were made."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, path: Path) -> str:
        """SHA-256 of its bytes."""
        self.calls.append(path.name)
        return sha256(path.read_bytes()).hexdigest()


def covered(folder: Path, hash_file: HashFile) -> CoveredFiles:
    """All files of a folder."""
    return CoveredFiles(
        folder,
        hash_file,
        lambda digest: " ".join(f"{p.name}={digest(p)}" for p in sorted(folder.iterdir())),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, last written to long ago."""
    folder = tmp_path / "step-8"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text(name)
        os.utime(folder / name, (1_000_000_000, 1_000_000_000))
    return folder


def test_files_are_read_again_where_their_stamps_changed_or_are_young(folder: Path) -> None:
    """Looking at gigabytes twice more for every model would cost minutes. A young file could have
    been written twice within one tick of the clock, and keep its stamp.
    """
    counting = Counting()
    files = covered(folder, counting)
    with files.unchanged():
        pass
    assert files.fingerprint
    assert counting.calls == ["a", "b"]
    os.utime(folder / "a", (1_100_000_000, 1_100_000_000))  # the same bytes are the same model
    for _ in range(2):
        with files.unchanged():
            pass
    assert counting.calls == ["a", "b", "a"]

    counting = Counting()
    (folder / "a").write_text("x")
    files = covered(folder, counting)
    assert files.fingerprint
    with files.unchanged():
        pass
    assert counting.calls.count("a") == 3
    assert counting.calls.count("b") == 1


def loading(files: CoveredFiles, change: Callable[[], object], error: Exception) -> None:
    """Something changes while a model is loaded, and loading ends with an error."""
    with files.unchanged():
        change()
        raise error


def test_an_error_of_loading_gives_way_to_its_cause(folder: Path) -> None:
    """What a library made of half a file explains nothing; if nothing changed, it is the error."""
    files = covered(folder, Counting())
    error = CheckpointError("header too large")
    with pytest.raises(CheckpointError, match="header too large"):
        loading(files, lambda: None, error)
    # What is loaded may be half of each; too little memory may go well another time, alone.
    with pytest.raises(DeviceMemoryError):
        loading(files, lambda: (folder / "a").write_text("z"), DeviceMemoryError("full"))
    with pytest.raises(IdentityError, match="before the model"):
        loading(files, lambda: None, error)
    (folder / "a").write_text("a")
    with (
        pytest.raises(IdentityError, match=r"while the model was loaded \(written again: b"),
        files.unchanged(),
    ):
        (folder / "b").write_text("z")
    (folder / "b").write_text("b")
    with pytest.raises(IdentityError, match="while the model"):
        loading(files, (folder / "a").unlink, error)


def test_a_file_that_vanishes_while_it_is_fingerprinted_is_told(folder: Path) -> None:
    """A trainer that removes its older checkpoints: one message, no traceback."""

    def hash_file(path: Path) -> str:
        (folder / "b").unlink(missing_ok=True)
        return path.name

    with pytest.raises(IdentityError, match="changed while they were fingerprinted"):
        covered(folder, hash_file).fingerprint  # noqa: B018 - it is read for what it raises


def test_the_store_does_not_remember_what_was_young_when_its_hashing_began(tmp_path: Path) -> None:
    """Hashing outlasts a file's youth; bytes that followed in the first tick go unseen."""
    path = tmp_path / "weights"
    path.write_text("one")
    counting = Counting()

    def slowly(changing: Path) -> str:
        time.sleep(0.4)
        return counting(changing)

    with Store(tmp_path / "store") as store:
        nearly_old = FileStamp.of(path).taken_ns - RACY_NS + 200_000_000
        os.utime(path, ns=(nearly_old, nearly_old))
        for _ in range(3):
            store.file_digest(path, "bytes", slowly)
    assert len(counting.calls) == 2


# -- loaded models --


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("name", LOADED)
def test_no_file_stays_in_use_after_loading(name: str, tmp_path: Path) -> None:
    """On a CPU weights are mapped from their file, and would follow what a trainer writes there.

    Numbers of tensors are compared, so that the test does not rest on what the system lists alone.
    """
    pytest.importorskip("torch")
    from pytest_cepbench.models.torch_runtime import quiet

    role, build, _ = LOADED[name]
    target = tmp_path / ("unicom.safetensors" if name == "unicom" else name)
    with quiet():
        built = build(target)
    model = bind_text(f"{'unicom:' * (name == 'unicom')}{built}", role).load()
    assert model  # it lives until the end

    before = _sums()
    for file in sorted(tmp_path.rglob("*.safetensors")):
        _wipe(file)
    assert _sums() == before
    mapped = Path("/proc/self/maps")  # only Linux lists them
    if mapped.exists():
        assert str(tmp_path) not in mapped.read_text(encoding="utf-8")


@pytest.mark.models
@pytest.mark.slow
def test_what_is_loaded_late_or_again_is_of_the_same_checkpoint(tmp_path: Path) -> None:
    """An encoder that has seen images only has not read its tokenizer yet. Models that take turns
    on a device are unloaded: whoever asks again gets the error again.
    """
    pytest.importorskip("transformers")
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        folder = encoders.build_clip(tmp_path / "clip")
    model: Any = bind_text(str(folder), "encoder").load()
    settings = folder / "tokenizer_config.json"
    settings.write_text(settings.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(IdentityError, match=r"before the tokenizer was loaded .*tokenizer_config"):
        model.encode_texts(["a red circle"])

    holding = ModelHandle(bind_text(str(folder), "encoder"), DeviceSwap(swap=True))
    assert holding.model(CallCounts())
    holding.unload()
    assert not holding.loaded
    assert holding.model(CallCounts())

    holding.unload()
    _wipe(folder / "model.safetensors")
    for _ in range(2):
        with pytest.raises(IdentityError, match=r"written again: model\.safetensors"):
            holding.model(CallCounts())
    assert not holding.loaded


def _wipe(file: Path) -> None:
    """Overwrite the numbers of a safetensors file in place, without making it shorter meanwhile."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(len(content) - start))


def _sums() -> list[float]:
    """The sum of all tensors that are alive in this process, those of the loaded model too."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    gc.collect()
    # Asking objects for their class makes some warn of themselves. Compiling leaves fake ones.
    alive = [tensor for tensor in gc.get_objects() if issubclass(type(tensor), torch.Tensor)]
    alive = [tensor for tensor in alive if not issubclass(type(tensor), FakeTensor)]
    return [tensor.detach().double().sum().item() for tensor in alive if not tensor.is_meta]
