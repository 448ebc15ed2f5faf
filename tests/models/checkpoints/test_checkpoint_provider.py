"""What a model's weights will take, told from the headers of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.models.binding import weights_bytes
from pytest_cepbench.models.spec import parse_spec
from tests.models.files import LLAVA, write_checkpoint, write_pipeline


def _weights(file: Path, **tensors: tuple[str, list[int], int]) -> None:
    """A safetensors file of such tensors: type, shape, bytes."""
    header, end = {}, 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))


@pytest.mark.parametrize(
    ("query", "device", "expected"),
    [
        ("", "cpu", 4 * 60 + 7),
        ("", "cuda", 2 * 60 + 7),
        ("?dtype=float32", "cuda", 4 * 60 + 7),
        ("?device=cpu", None, 4 * 60 + 7),
    ],
)
def test_numbers_count_in_the_precision_they_are_loaded_in(
    tmp_path: Path, query: str, device: str | None, expected: int
) -> None:
    """A checkpoint in half precision takes twice its files on the CPU; codes stay as they are."""
    folder = write_checkpoint(tmp_path / "m", {**LLAVA, "dtype": "bfloat16"}, None)
    _weights(
        folder / "model.safetensors",
        w=("BF16", [5, 10], 100),
        b=("F32", [10], 40),
        q=("I8", [7], 7),
    )
    assert weights_bytes(parse_spec(f"{folder}{query}"), device) == expected


def test_a_pipeline_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    """Weights that loading passes over, such as a single file of all of them, do not count."""
    folder = write_pipeline(tmp_path / "p")
    _weights(folder / "all-in-one.safetensors", w=("F32", [1000], 4000))
    assert weights_bytes(parse_spec(str(folder)), "cpu") == 2 * 4


@pytest.mark.parametrize("text", ["shapes:", "python:some.where:make", "no/such", "unicom:nowhere"])
def test_models_whose_size_is_not_known(text: str) -> None:
    """Built-in and user's models say nothing, and what is wrong is told where it is bound."""
    assert weights_bytes(parse_spec(text), "cpu") is None


def test_a_damaged_checkpoint_is_not_judged_here(tmp_path: Path) -> None:
    """A header that is cut off is an error of binding, not of counting workers."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    (folder / "model.safetensors").write_bytes(b"\x09\0\0\0\0\0\0\0{")
    assert weights_bytes(parse_spec(str(folder)), "cpu") is None
