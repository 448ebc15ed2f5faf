"""Shards, bare weights, names of wrappers: read as the whole model, and nothing in them is run."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="shards need the [models] extra")

from pytest_cepbench.errors import CheckpointError  # noqa: E402
from pytest_cepbench.models.checkpoints.checkpoint_files import own_names  # noqa: E402
from pytest_cepbench.models.torch_runtime import undistributed  # noqa: E402
from tests.models.binding import bind_text, describe  # noqa: E402
from tests.models.files import write_tensors  # noqa: E402
from tests.tiny import encoders, generators  # noqa: E402
from tests.tiny.adapters import build_lora  # noqa: E402
from tests.tiny.common import edit_tensors, pictures, skip_before  # noqa: E402
from tests.tiny.describers import build_llava  # noqa: E402
from tests.tiny.loras import LORA_FILE  # noqa: E402
from tests.tiny.loras import build_lora as build_pipeline_lora  # noqa: E402

pytestmark = pytest.mark.models


class Whole(NamedTuple):
    """A tiny LLaVA, saved whole.

    state: its state dict, by the names that a training has. texts: its descriptions.
    """

    folder: Path
    state: dict[str, Any]
    texts: list[Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """One of it; not to be changed."""
    from transformers import AutoModelForImageTextToText

    folder = build_llava(tmp_path_factory.mktemp("whole") / "llava", seed=5)
    state = AutoModelForImageTextToText.from_pretrained(folder).state_dict()
    return Whole(folder, dict(state), describe(folder))


def save_shards(folder: Path, content: dict[str, Any]) -> Path:
    """What torch.distributed.checkpoint writes of a state, by one process."""
    from torch.distributed.checkpoint import save

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(content, checkpoint_id=folder, **undistributed(save))
    return folder


def test_shards_of_a_run_describe_as_the_whole_model(whole: Whole, tmp_path: Path) -> None:
    """As Trainer saves them with FSDP, configuration and processor in the run's root: that, its
    checkpoint and the shards themselves are the same model.
    """
    run = Path(shutil.copytree(whole.folder, tmp_path / "run"))
    (run / "model.safetensors").unlink()
    checkpoint = run / "checkpoint-500"
    save_shards(checkpoint / "pytorch_model_fsdp_0", {"model": whole.state})
    save_shards(checkpoint / "optimizer_0", {"optimizer": {"step": torch.ones(3)}})

    folders = [run, checkpoint, checkpoint / "pytorch_model_fsdp_0"]
    bound = [bind_text(str(folder), "describer") for folder in folders]

    assert len({role.fingerprint for role in bound}) == 1
    read = f"weights read from {checkpoint / 'pytorch_model_fsdp_0'}"
    assert f"{read}, configuration from {folders[0]}" in bound[0].remarks
    assert describe(folders[0]) == whole.texts
    (run / "added_tokens.json").symlink_to("fetched-by-nobody")
    with pytest.raises(CheckpointError, match=r"added_tokens\.json: links to files that are not"):
        bind_text(str(run), "describer")


def test_every_layout_of_a_state_is_read(whole: Whole, tmp_path: Path) -> None:
    """Prefixes of wrappers are taken off, and what is no model is left out."""
    layouts: dict[str, dict[str, Any]] = {
        "flat": whole.state,
        "module": {f"module.{name}": tensor for name, tensor in whole.state.items()},
        "compiled": {
            "model": {f"_orig_mod.{name}": tensor for name, tensor in whole.state.items()}
        },
        "with the rest of a training": {
            "model": whole.state,
            "optimizer": {"state": {name: torch.zeros(2) for name in whole.state}, "lr": 0.1},
            "train_state": {"step": 500},
        },
        "torch's examples": {"app": {"model": whole.state, "optim": {"step": torch.zeros(2)}}},
        "flat with an optimizer": whole.state | {"optimizer.state.lm_head": torch.zeros(2)},
    }
    for layout, content in layouts.items():
        folder = save_shards(tmp_path / layout, content)
        assert describe(folder, f"base={whole.folder}") == whole.texts, layout


def test_bare_safetensors_take_their_configuration_from_above(whole: Whole, tmp_path: Path) -> None:
    """Accelerate's save_state writes the weights alone."""
    run = Path(shutil.copytree(whole.folder, tmp_path / "run"))
    inner = run / "epoch_3"
    inner.mkdir()
    shutil.move(run / "model.safetensors", inner)
    (inner / "random_states_0.pkl").write_bytes(b"not read")
    assert describe(inner) == whole.texts
    shutil.move(inner, tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"weights without a configuration.*base=FOLDER"):
        describe(tmp_path / "elsewhere")
    assert describe(tmp_path / "elsewhere", f"base={whole.folder}") == whole.texts


def test_a_state_of_another_model_is_refused(whole: Whole, tmp_path: Path) -> None:
    """Missing, left-over and misshapen tensors are named, as those of a whole model are. Of shards
    of two states it is a matter of their names which of them a tensor would come from.
    """
    some = dict(whole.state)
    head = some.pop("lm_head.weight")
    lacking = save_shards(tmp_path / "lacking", {"model": some})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        describe(lacking, f"base={whole.folder}")
    more = save_shards(tmp_path / "more", {"model": whole.state | {"adapter.x": torch.ones(2)}})
    with pytest.raises(CheckpointError, match=r"adapter\.x"):
        describe(more, f"base={whole.folder}")
    wide = save_shards(tmp_path / "wide", {"model": some | {"lm_head.weight": head[:, :8].clone()}})
    with pytest.raises(CheckpointError, match=r"not of one model: lm_head\.weight"):
        describe(wide, f"base={whole.folder}")

    (tmp_path / "two").mkdir()
    for name in ("model-00001-of-00009.safetensors", "model.safetensors"):
        shutil.copy(whole.folder / "model.safetensors", tmp_path / "two" / name)
    with pytest.raises(CheckpointError, match="shards of two states lie beside one another"):
        describe(tmp_path / "two", f"base={whole.folder}")


def test_shards_that_are_not_whole_are_refused(whole: Whole, tmp_path: Path) -> None:
    """A killed save leaves shards cut off or away; torch would read what memory held before. It
    also unpickles whatever lies there as metadata; here a foreign object is an error, and not
    called.
    """
    folder = save_shards(tmp_path / "state", {"model": whole.state})
    shard = folder / "__0_0.distcp"
    data = shard.read_bytes()
    shard.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="cut off before the end of model"):
        describe(folder, f"base={whole.folder}")
    shard.rename(folder / "__1_0.distcp")
    with pytest.raises(CheckpointError, match=r"the shard __0_0\.distcp is missing, which holds"):
        describe(folder, f"base={whole.folder}")
    (folder / "__1_0.distcp").unlink()
    with pytest.raises(CheckpointError, match="without the shards"):
        bind_text(f"{folder}?base={whole.folder}", "describer")
    shard.write_bytes(data)

    class Program:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    (folder / ".metadata").write_bytes(pickle.dumps(Program()))
    with pytest.raises(CheckpointError, match=r"not unpickled.*accelerate merge-weights"):
        describe(folder, f"base={whole.folder}")
    assert not (tmp_path / "ran").exists()


RANKS = """
import sys
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.checkpoint import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

rank, folder, source, rendezvous = int(sys.argv[1]), *sys.argv[2:]
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
state = {n: distribute_tensor(t, mesh, [Shard(0)]) for n, t in load_file(source).items()}
save({"model": state}, checkpoint_id=folder)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_shards_of_two_processes_are_put_together(whole: Whole, tmp_path: Path) -> None:
    """Each process writes its half of every tensor."""
    from safetensors.torch import save_file

    source = tmp_path / "state.safetensors"
    save_file({name: tensor.contiguous().clone() for name, tensor in whole.state.items()}, source)
    folder = tmp_path / "shards"
    command = [str(folder), str(source), str(tmp_path / "rendezvous")]
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANKS, str(rank), *command]) for rank in range(2)
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]

    assert len(list(folder.glob("*.distcp"))) == 2
    assert describe(folder, f"base={whole.folder}") == whole.texts


def test_shards_of_transformers_own_leave_nothing_over(whole: Whole, tmp_path: Path) -> None:
    """save_pretrained of several processes writes safetensors that lie in the model's folder."""
    skip_before("a writer of such shards", "torch", "2.9")
    from torch.distributed.checkpoint import save
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    def write(folder: Path, content: dict[str, Any]) -> Path:
        shutil.copytree(whole.folder, folder)
        (folder / "model.safetensors").unlink()
        writer = HuggingFaceStorageWriter(
            path=str(folder), save_distributed=True, enable_consolidation=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save(content, storage_writer=writer, **undistributed(save))
        return folder

    assert describe(write(tmp_path / "sharded", whole.state)) == whole.texts
    with pytest.raises(CheckpointError, match=r"would leave them out: adapter\.x"):
        describe(write(tmp_path / "more", whole.state | {"adapter.x": torch.ones(2)}))


@pytest.mark.parametrize(
    "words",
    [
        r"would be read from \.\./other",
        r"only a part of model\.lm_head",
        r"lm_head\.weight \(1099511627776, \d+\) would be .* bytes, and all files beside it hold",
    ],
)
def test_metadata_that_does_not_fit_its_shards_is_refused(
    whole: Whole, words: str, tmp_path: Path
) -> None:
    """A file elsewhere is covered by no fingerprint; torch leaves the rest of a tensor as the
    memory was, and makes room for what is claimed.
    """
    folder = save_shards(tmp_path / "state", {"model": whole.state})
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    if "other" in words:
        for place in metadata.storage_data.values():
            place.relative_path = f"../other/{place.relative_path}"
    else:
        stored = metadata.state_dict_metadata["model.lm_head.weight"]
        rows = stored.size[0] + 4 if "part" in words else 1 << 40
        stored.size = torch.Size((rows, stored.size[1]))
        if "part" not in words:
            stored.chunks = [dataclasses.replace(stored.chunks[0], sizes=stored.size)]
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=words):
        describe(folder, f"base={whole.folder}")


# -- names of wrappers -----------------------------------------------------------------------------

WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "base_model.model.")


def wrap(folder: Path, prefix: str) -> Path:
    """Put a wrapper's name before that of every tensor below a folder."""
    for file in folder.rglob("*.safetensors"):
        edit_tensors(file, lambda t: [t.update({prefix + name: t.pop(name)}) for name in list(t)])
    return folder


def encode(folder: Path) -> Any:
    """The vectors of an encoder of images, or of texts."""
    model: Any = bind_text(str(folder), "encoder").load()
    if (folder / "modules.json").exists():
        return model.encode_texts(["a red circle", "a small square"])
    return model.encode_images(pictures())


def draw(folder: Path, *parts: str) -> Any:
    """The pixels of a generator."""
    query = "&".join(("num_inference_steps=1", *parts))
    model: Any = bind_text(f"{folder}?{query}", "generator").load()
    return np.stack([np.asarray(image) for image in model.generate(["a red circle"], [0])])


ROOMS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any]]] = {
    "describer": (build_llava, describe),
    "generator": (generators.build_stable_diffusion, draw),
    "transformers encoder": (encoders.build_dinov2, encode),
    "timm encoder": (encoders.build_timm_vit, encode),
    "open_clip encoder": (encoders.build_open_clip, encode),
    "sentence encoder": (encoders.build_sentence_transformer, encode),
}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize(
    "wrapper", [WRAPPERS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in WRAPPERS[1:])]
)
def test_a_wrapped_model_answers_as_the_one_inside(room: str, wrapper: str, tmp_path: Path) -> None:
    """The files stay as they are, and nothing is left of the copies."""
    build, ask = ROOMS[room]
    folder = build(tmp_path / "whole")
    expected = ask(folder)
    wrapped = wrap(Path(shutil.copytree(folder, tmp_path / "wrapped")), wrapper)
    before = {path: path.read_bytes() for path in wrapped.rglob("*.safetensors")}
    np.testing.assert_array_equal(ask(wrapped), expected)
    assert {path: path.read_bytes() for path in before} == before


def test_shards_and_their_index_are_read(whole: Whole, tmp_path: Path) -> None:
    """Two files, the names of whose tensors are in a third one."""
    from transformers import AutoModelForImageTextToText

    folder = Path(shutil.copytree(whole.folder, tmp_path / "whole"))
    model = AutoModelForImageTextToText.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="50KB")
    wrap(folder, "module.")
    index = folder / "model.safetensors.index.json"
    stored = json.loads(index.read_text())
    stored["weight_map"] = {f"module.{name}": file for name, file in stored["weight_map"].items()}
    index.write_text(json.dumps(stored))
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert describe(folder) == whole.texts


@pytest.mark.slow
def test_parts_may_be_wrapped(tmp_path: Path) -> None:
    """A component in a folder or a file, an adapter and LoRA weights: each as it is inside."""
    skip_before("a component's file as diffusers writes it", "diffusers", "0.35")
    pipeline = generators.build_stable_diffusion(tmp_path / "pipeline")
    other = generators.build_stable_diffusion(tmp_path / "other", seed=5)
    expected = draw(pipeline, f"unet={other / 'unet'}")
    unet = wrap(Path(shutil.copytree(other / "unet", tmp_path / "unet")), "_orig_mod.")
    np.testing.assert_array_equal(draw(pipeline, f"unet={unet}"), expected)
    name = "diffusion_pytorch_model.safetensors"
    expected = draw(pipeline, f"unet={other / 'unet' / name}")
    np.testing.assert_array_equal(draw(pipeline, f"unet={unet / name}"), expected)

    lora = build_pipeline_lora(pipeline, tmp_path / "lora")
    expected = draw(pipeline, f"lora={lora}")
    _wrap_inside(lora / LORA_FILE, "unet.")
    np.testing.assert_array_equal(draw(pipeline, f"lora={lora}"), expected)

    adapter = build_lora(tmp_path / "adapter", build_llava(tmp_path / "base"))
    texts = describe(adapter)
    _wrap_inside(adapter / "adapter_model.safetensors", "base_model.model.")
    assert describe(adapter) == texts


def _wrap_inside(file: Path, before: str) -> None:
    """Put torch.compile's name behind the first ones of every tensor of a file."""

    def wrapped(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[name.replace(before, f"{before}_orig_mod.", 1)] = tensors.pop(name)

    edit_tensors(file, wrapped)


def test_wrappers_in_one_another_and_between_modules(tmp_path: Path) -> None:
    """DDP around torch.compile, and FSDP around each layer; a module may be called `module`."""
    names = [
        "module._orig_mod.layers._fsdp_wrapped_module.0._checkpoint_wrapped_module.weight",
        "module._orig_mod.module.weight",
    ]
    assert list(own_names(names, tmp_path).values()) == ["layers.0.weight", "module.weight"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["module.a", "module.b", "head.c"], r"2 tensors .* module\., and head\.c not"),
        (["_orig_mod.a", "a"], "two tensors would be a"),
    ],
)
def test_names_that_do_not_come_apart_are_refused(
    names: list[str], words: str, tmp_path: Path
) -> None:
    """Half a model is wrapped, or two were saved in one."""
    folder = build_llava(tmp_path / "m")
    write_tensors(folder / "model.safetensors", dict.fromkeys(names, (2,)))
    with pytest.raises(CheckpointError, match=words):
        describe(folder)
