"""clean-fid's Inception: its own resizing and model on the user's file, found but never fetched."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.encoders import inception_encoder
from pytest_cepbench.models.encoders.inception_encoder import inception_weights
from pytest_cepbench.models.spec import parse_spec
from tests.models.encoders.conftest import bind_encoder, load
from tests.tiny.weights_files import INCEPTION_NAME, build_inception

pytest.importorskip("cleanfid", reason="encoders need the [models] extra")

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny TorchScript file of the real interface."""
    return build_inception(tmp_path_factory.mktemp("inception"))


def test_features_are_those_of_clean_fids_own_pipeline(
    weights: Path, images: list[Image.Image], tmp_path: Path
) -> None:
    """The same images from files through clean-fid's loader, resizing and model, in their order."""
    import torch
    from cleanfid.fid import get_files_features
    from cleanfid.inception_torchscript import InceptionV3W

    from pytest_cepbench.models.torch_runtime import quiet

    images = [*images, Image.linear_gradient("L"), images[0].convert("L")]
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


def test_the_weights_are_found_at_the_path_or_in_its_folder(weights: Path) -> None:
    """The file itself and its folder mean the same."""
    assert inception_weights(parse_spec(f"cleanfid:?weights={weights}")) == weights
    assert inception_weights(parse_spec(f"cleanfid:?weights={weights.parent}")) == weights


def test_absent_weights_say_which_file_goes_where(tmp_path: Path) -> None:
    """Nothing is downloaded: a suite can ask, and binding says what to do."""
    spec = f"cleanfid:?weights={tmp_path / 'nowhere' / INCEPTION_NAME}"
    assert inception_weights(parse_spec(spec)) is None
    with pytest.raises(CheckpointError, match=rf"no such file.*Put the file {INCEPTION_NAME}"):
        bind_encoder(spec)
    (tmp_path / "other.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=f"no file named {INCEPTION_NAME}"):
        bind_encoder(f"cleanfid:?weights={tmp_path / 'other.pt'}")
    with pytest.raises(CheckpointError, match=f"no file named {INCEPTION_NAME}"):
        bind_encoder(f"cleanfid:?weights={tmp_path}")


@pytest.mark.parametrize("text", ["cleanfid:", "cleanfid:?weights=none", "cleanfid:?weights="])
def test_where_clean_fid_keeps_it_only_an_own_file_counts(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Anyone can write to /tmp, and the file is code: another user's is as good as none."""
    monkeypatch.setattr(inception_encoder, "_place", lambda _spec: tmp_path)
    spec = parse_spec(text)
    assert inception_weights(spec) is None
    file = tmp_path / INCEPTION_NAME
    file.write_bytes(weights.read_bytes())
    assert inception_weights(spec) == file
    if os.getuid() == 0:
        os.chown(file, 54321, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    assert inception_weights(spec) is None
    with pytest.raises(CheckpointError, match="no such file of this user's or root's"):
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
