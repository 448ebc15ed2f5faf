"""Encoders that are one file: Unicom's layout against a reference, and clean-fid's Inception.

Other files are refused in words, and none is fetched.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.binding import weights_present
from pytest_cepbench.models.encoders import file_encoders
from pytest_cepbench.models.encoders.file_encoders import inception_weights, make_network
from pytest_cepbench.models.spec import parse_spec
from tests.models.encoders.conftest import IMAGES, bind_encoder, load
from tests.optional import needs
from tests.tiny.weights_files import (
    INCEPTION_NAME,
    UNICOM,
    make_unicom,
    save_unicom,
)

needs("torchvision", "cleanfid", reason="encoders need the [models] extra")

pytestmark = pytest.mark.models


def crop(image: Image.Image, side: int) -> Image.Image:
    """Shorter side resized to `side` (bicubic), then the middle square, by Pillow alone."""
    width, height = image.size
    short = min(width, height)
    size = (int(side * width / short), int(side * height / short))
    left, top = round((size[0] - side) / 2), round((size[1] - side) / 2)
    resized = image.resize(size, Image.Resampling.BICUBIC)
    return resized.crop((left, top, left + side, top + side))


def pixels(images: list[Image.Image]) -> Any:
    """The batch that the published preprocessing makes: CLIP's mean and deviation."""
    import torch

    arrays = np.stack([np.asarray(crop(image, UNICOM["side"])) for image in images]) / 255
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    return torch.from_numpy((arrays - mean) / std).permute(0, 3, 1, 2).float()


def test_features_are_those_of_the_reference(reference: Any, specs: dict[str, str]) -> None:
    """Layout, order of operations, ReLU6 and the published epsilon, on images to be cropped.
    Precision changes the answer, and is part of every stored result's key.
    """
    import torch

    reached = []
    hook = reference.blocks[0].mlp.fc1.register_forward_hook(
        lambda _module, _inputs, output: reached.append(float(output.max()))
    )
    with torch.inference_mode():
        expected = reference(pixels(IMAGES)).numpy()
    hook.remove()
    assert max(reached) > 6, "the limit of ReLU6 must matter here"
    vectors = load(specs["unicom"]).encode_images(IMAGES)
    assert vectors.shape == (3, UNICOM["features"])
    assert vectors.dtype == np.float32
    assert np.abs(vectors - expected).max() < 1e-4 * np.abs(expected).max()
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).min() > 0.1

    bound = [bind_encoder(f"{specs['unicom']}{query}") for query in ("", "?dtype=float16")]
    assert [own.params for own in bound] == [{"dtype": "float32"}, {"dtype": "float16"}]
    full, half = (load(own.spec).encode_images(IMAGES) for own in bound)
    assert 0 < np.abs(full - half).max() < 0.1 * np.abs(full).max()
    assert half.dtype == np.float32


def test_a_pickled_file_is_read_only_where_allowed(
    reference: Any, specs: dict[str, str], tmp_path: Path
) -> None:
    """The released .pt is refused with the remedy; allowed, it gives what safetensors give, and no
    code is run (weights_only).
    """
    import torch

    pickled = save_unicom(tmp_path / "FP16-tiny.pt", reference.state_dict())
    with pytest.raises(CheckpointError, match=r"unpickling can run code.*allow_pickle=true"):
        bind_encoder(f"unicom:{pickled}")
    allowed = load(f"unicom:{pickled}?allow_pickle=true").encode_images(IMAGES)
    assert np.array_equal(allowed, load(specs["unicom"]).encode_images(IMAGES))

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "made",)

    torch.save({"pos_embed": Evil()}, pickled)
    with pytest.raises(CheckpointError, match="could not be loaded"):
        load(f"unicom:{pickled}?allow_pickle=true")
    assert not (tmp_path / "made").exists()


def test_damaged_files_are_refused_by_name(reference: Any, tmp_path: Path) -> None:
    """Cut off, not finite, of another layout or kind: an error in words, never features."""
    import torch

    tensors = dict(reference.state_dict())
    whole = save_unicom(tmp_path / "whole.safetensors", tensors).read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-4])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors.*fetch it again"):
        bind_encoder(f"unicom:{tmp_path / 'cut.safetensors'}")

    pickled = save_unicom(tmp_path / "cut.pt", tensors)
    pickled.write_bytes(pickled.read_bytes()[:4000])
    nan = tensors | {"norm.bias": torch.full((UNICOM["width"],), torch.nan)}
    missing = {name: value for name, value in tensors.items() if name != "blocks.1.norm2.bias"}
    foreign = tensors | {"cls_token": torch.zeros(1, 1, 4)}
    shaped = tensors | {"feature.0.weight": torch.zeros(32, 32)}
    torch.save([1, 2], tmp_path / "list.pt")
    cases = {
        "cut.pt": "could not be loaded",
        save_unicom(tmp_path / "nan.safetensors", nan).name: "norm.bias holds values that are not",
        save_unicom(
            tmp_path / "less.safetensors", missing
        ).name: r'Missing key.*"blocks.1.norm2.bias"',
        save_unicom(tmp_path / "more.safetensors", foreign).name: r'Unexpected key.*"cls_token"',
        save_unicom(
            tmp_path / "shape.safetensors", shaped
        ).name: r"size mismatch for feature.0.weight.*\[32, 32\]",
        save_unicom(tmp_path / "other.pt", {"w": torch.zeros(2)}).name: "tensors are w",
        "list.pt": "expected a state dict.*found list",
    }
    for name, expected in cases.items():
        bound = bind_encoder(f"unicom:{tmp_path / name}?allow_pickle=true")
        with pytest.raises(CheckpointError, match=expected) as caught:
            bound.load()
        assert name in str(caught.value)


def test_a_wrong_file_is_said_at_binding(tmp_path: Path) -> None:
    """Before anything is loaded."""
    (tmp_path / "weights.onnx").write_bytes(b"x")
    for target, expected in (
        ("nowhere.pt", "weights file of Unicom vision transformer is not there"),
        (".", "is a folder"),
        ("weights.onnx", r"one of these kinds: \.safetensors, \.pt"),
    ):
        with pytest.raises(CheckpointError, match=expected):
            bind_encoder(f"unicom:{tmp_path / target}")


@pytest.mark.parametrize(
    ("side", "patch", "width", "depth", "features"),
    [
        (224, 32, 768, 12, 512),
        (224, 16, 768, 12, 768),
        (224, 14, 1024, 24, 768),
        (336, 14, 1024, 24, 768),
    ],
    ids=["B-32", "B-16", "L-14", "L-14-336px"],
)
def test_the_released_sizes_need_no_parameter(
    side: int, patch: int, width: int, depth: int, features: int
) -> None:
    """The four models as the released code defines them, in names and shapes alone."""
    import torch

    sizes = {"side": side, "patch": patch, "width": width, "depth": depth, "features": features}
    with torch.device("meta"):
        state = make_unicom(**sizes).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    network = make_network(shapes)
    assert network.side == side
    assert network.heads == width // 64
    assert {name: tuple(t.shape) for name, t in network.state_dict().items()} == shapes
    with pytest.raises(ValueError, match="577 places, which are not the patches of a square"):
        make_network(shapes | {"pos_embed": (1, 577, width)})
    with pytest.raises(ValueError, match="heads of 64 do not divide the width 96"):
        make_network(shapes | {"patch_embed.proj.weight": (96, 3, patch, patch)})


def test_features_are_those_of_clean_fids_own_pipeline(weights: Path, tmp_path: Path) -> None:
    """The same images from files through clean-fid's loader, resizing and model, in their order."""
    import torch
    from cleanfid.fid import get_files_features
    from cleanfid.inception_torchscript import InceptionV3W

    from pytest_cepbench.models.torch_runtime import quiet

    images = [*IMAGES, Image.linear_gradient("L"), IMAGES[0].convert("L")]
    files = [tmp_path / f"{index}.png" for index in range(len(images))]
    for file, image in zip(files, images, strict=True):
        image.save(file)
    with quiet():
        expected = get_files_features(
            [str(file) for file in files],
            model=InceptionV3W(str(weights.parent), download=False),
            num_workers=0,
            device=torch.device("cpu"),
            mode="clean",
            verbose=False,
        )
    vectors = load(f"cleanfid:?weights={weights}").encode_images(images)
    assert vectors.shape == (5, 2048)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - expected).max() < 1e-5
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


def test_absent_weights_say_which_file_goes_where(weights: Path, tmp_path: Path) -> None:
    """Nothing is downloaded: a suite can ask, and binding says what to do."""
    for place in (weights, weights.parent):
        assert inception_weights(parse_spec(f"cleanfid:?weights={place}")) == weights
    (tmp_path / "other.pt").write_bytes(b"x")
    for place in (tmp_path, tmp_path / "other.pt", tmp_path / "nowhere" / INCEPTION_NAME):
        assert not weights_present(parse_spec(f"cleanfid:?weights={place}"))
        with pytest.raises(CheckpointError, match=f"no file named {INCEPTION_NAME}. Put it there"):
            bind_encoder(f"cleanfid:?weights={place}")
    assert weights_present(parse_spec("unicom:~nobody-here/u.pt"))  # what it lacks, binding says


@pytest.mark.parametrize("text", ["cleanfid:", "cleanfid:?weights=none", "cleanfid:?weights="])
def test_where_clean_fid_keeps_it_only_an_own_file_counts(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Anyone can write to /tmp, and the file is code: another user's is as good as none."""
    monkeypatch.setattr(file_encoders, "_KEPT", tmp_path)
    spec = parse_spec(text)
    assert not weights_present(spec)
    file = tmp_path / INCEPTION_NAME
    file.write_bytes(weights.read_bytes())
    assert inception_weights(spec) == file
    if os.getuid() == 0:
        os.chown(file, 54321, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    assert not weights_present(spec)
    with pytest.raises(
        CheckpointError, match=f"no file named {INCEPTION_NAME} of this user's or root's"
    ):
        bind_encoder(text)


def test_the_identity_is_weights_version_and_resizing(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """clean-fid computes a part of the features, so its version counts beside the bytes."""
    copy = tmp_path / INCEPTION_NAME
    copy.write_bytes(weights.read_bytes())
    first = bind_encoder(f"cleanfid:?weights={weights}")
    assert first.fingerprint == bind_encoder(f"cleanfid:?weights={copy}").fingerprint
    assert first.params == {}
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "9.9")
    assert first.fingerprint != bind_encoder(f"cleanfid:?weights={copy}").fingerprint
    monkeypatch.undo()
    copy.write_bytes(b"other weights")
    other = bind_encoder(f"cleanfid:?weights={copy}")
    assert first.fingerprint != other.fingerprint
    with pytest.raises(CheckpointError, match="could not be loaded"):
        other.load()
