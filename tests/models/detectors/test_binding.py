"""Binding detectors: identities that tell settings apart, and checkpoints that are none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.binding import BindContext, bind, detect
from pytest_cepbench.models.spec import parse_spec
from tests.models.detectors.conftest import bind_detector
from tests.models.files import write_checkpoint, write_pipeline

pytest.importorskip("torch", reason="detectors need the [models] extra")
pytest.importorskip("transformers", reason="detectors need the [models] extra")

OWL: dict[str, Any] = {
    "architectures": ["Owlv2ForObjectDetection"],
    "model_type": "owlv2",
    "text_config": {},
    "vision_config": {},
}
MASK2FORMER: dict[str, Any] = {
    "architectures": ["Mask2FormerForUniversalSegmentation"],
    "model_type": "mask2former",
}
DETR: dict[str, Any] = {"architectures": ["DetrForObjectDetection"], "model_type": "detr"}


@pytest.mark.parametrize(
    ("config", "adapter", "queries", "threshold"),
    [
        (OWL, "owl-detector/1", "free-text", 0.1),
        (OWL | {"model_type": "owlvit"}, "owl-detector/1", "free-text", 0.1),
        (MASK2FORMER, "mask2former-detector/1", "classes", 0.3),
        (DETR, "boxes-detector/1", "classes", 0.3),
    ],
)
def test_the_bound_role_says_what_it_may_be_asked(
    tmp_path: Path, config: dict[str, Any], adapter: str, queries: str, threshold: float
) -> None:
    """A suite has to know the form of its queries before any model is loaded."""
    folder = write_checkpoint(tmp_path / "m", config)
    assert detect(parse_spec(str(folder))).roles == ("detector",)
    bound = bind_detector(str(folder))
    assert (bound.adapter, bound.params["queries"]) == (adapter, queries)
    assert (bound.params["threshold"], bound.seeded) == (threshold, False)


def test_every_setting_that_changes_the_boxes_is_part_of_the_identity(tmp_path: Path) -> None:
    """Stored boxes of one setting must never be served for another; where it runs is no setting."""
    folder = write_checkpoint(tmp_path / "m", MASK2FORMER)
    plain = bind_detector(str(folder)).identity
    for query in ("threshold=0.2", "nms=0.5", "max_per_class=3", "max_per_class=none",
                  "dtype=float16", "backend=torchvision", "attn_implementation=eager"):  # fmt: skip
        assert bind_detector(f"{folder}?{query}").identity != plain, query
    assert bind_detector(f"{folder}?batch_size=2&device=cpu").identity == plain


@pytest.mark.parametrize(
    ("config", "query", "message"),
    [
        (OWL, "threshold=1.1", r"threshold must lie in \[0, 1\], got 1.1"),
        (OWL, "threshold=nan", r"threshold must lie in \[0, 1\], got nan"),
        (OWL, "nms=0", r"nms must lie in \(0, 1\], or be none, got 0.0"),
        (OWL, "max_per_class=3", "unknown parameter for the detector Owlv2.*'max_per_class'"),
        (MASK2FORMER, "max_per_class=-1", "max_per_class must be at least 1"),
        (MASK2FORMER, "backend=opencv", "backend must be pil or torchvision, got 'opencv'"),
        (DETR, "batch_size=0", "batch_size must be at least 1"),
        (DETR, "dtype=int8", "dtype must be auto"),
    ],
)
def test_wrong_parameters_fail_at_binding(
    tmp_path: Path, config: dict[str, Any], query: str, message: str
) -> None:
    """A typo must not cost the images that are generated before the first detection."""
    folder = write_checkpoint(tmp_path / "m", config)
    with pytest.raises(SpecError, match=message):
        bind_detector(f"{folder}?{query}")


def test_a_pipeline_forced_to_detect_is_refused(tmp_path: Path, context: BindContext) -> None:
    """Force reaches the adapter, which still knows what it cannot load."""
    spec = parse_spec(str(write_pipeline(tmp_path / "p")))
    with pytest.raises(RoleError, match="diffusers checkpoint finds no boxes"):
        bind(spec, "detector", context, force=True)


@pytest.mark.models
@pytest.mark.parametrize("kind", ["owlv2", "mask2former", "yolos"])
def test_a_missing_tensor_is_never_made_up(
    folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    """The library would go on with random numbers in its place."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(folders[kind], tmp_path / "m"))
    tensors = load_file(folder / "model.safetensors")
    gone = min(name for name in tensors if "class" in name and name.endswith("weight"))
    del tensors[gone]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"random numbers: .*{gone}"):
        bind_detector(str(folder)).load()
