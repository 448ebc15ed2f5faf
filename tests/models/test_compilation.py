"""Compiled models: compiled once, while they are loaded, and with the answers of the plain ones.

torch's compiler traces a model and hands its graphs to a backend. How often it does so depends on
the inputs' shapes and not on the backend, so that these tests take the one that compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.models import compilation
from pytest_cepbench.models.compilation import FullBatches, warming_up
from pytest_cepbench.models.protocols import RoleName
from tests.models.binding import bind_text
from tests.models.files import LLAVA, VIT, write_checkpoint, write_pipeline
from tests.tiny import describers, encoders, generators

COLORS = ("red", "green", "blue", "white", "black")

IMAGES = [Image.new("RGB", (32, 32), color) for color in COLORS]

compiles = pytest.mark.usefixtures("tracing")


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that traces models and compiles nothing."""
    pytest.importorskip("torch", reason="checkpoints need the [models] extra")
    import torch._dynamo

    monkeypatch.setattr(compilation, "BACKEND", "eager")
    torch._dynamo.reset()


def _graphs() -> int:
    """How many graphs were traced in this process."""
    import torch._dynamo.utils

    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


# -- full batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "count", "asked"), [(None, 3, [3]), (4, 4, [4]), (4, 1, [4]), (4, 5, [5]), (4, 0, [0])]
)
def test_batches_are_filled_up_to_one_size(size: int | None, count: int, asked: list[int]) -> None:
    """A model sees batches of one size, or of a larger one that its caller chose; nobody sees what
    it made of the repetitions.
    """
    seen = []

    def double(inputs: Sequence[int]) -> list[int]:
        seen.append(len(inputs))
        return [2 * value for value in inputs]

    assert FullBatches(size).call(range(count), double) == [2 * value for value in range(count)]
    assert seen == asked


def test_a_batch_that_was_filled_up_gives_way_to_memory() -> None:
    """The caller halves its batches where memory runs out; they must not be filled up again."""
    seen = []

    def need_room(inputs: Sequence[int]) -> list[int]:
        seen.append(len(inputs))
        if len(inputs) > 2:
            raise MemoryError
        return list(inputs)

    batches = FullBatches(8)
    with pytest.raises(MemoryError):
        batches.call(range(6), need_room)
    assert batches.call(range(2), need_room) == [0, 1]
    assert batches.call(range(1), need_room) == [0]
    assert seen == [8, 8, 4, 2, 2]


def test_what_a_compiler_raises_is_one_line() -> None:
    """A machine without a C++ compiler, a model that cannot be traced: the checkpoint is not at
    fault.
    """
    fault = RuntimeError("no C++\ncompiler")
    expected = r"^compile=true: ViTModel could not be compiled \(RuntimeError: no C\+\+ compiler\)"
    with pytest.raises(ModelError, match=expected), warming_up("ViTModel"):
        raise fault
    with pytest.raises(MemoryError), warming_up("ViTModel"):
        raise MemoryError


# -- what is said at binding -----------------------------------------------------------------------


def test_compiling_enters_keys_where_it_is_asked_for(tmp_path: Path) -> None:
    """Other kernels round otherwise. Batches are of one size, which neither grows nor is raised."""
    llava = write_checkpoint(tmp_path / "llava", LLAVA)
    vit = write_checkpoint(tmp_path / "vit", VIT)
    pipeline = write_pipeline(tmp_path / "pipeline")
    roles: list[tuple[Path, RoleName]] = [
        (llava, "describer"),
        (vit, "encoder"),
        (pipeline, "generator"),
    ]
    for folder, role in roles:
        plain, compiled = (bind_text(f"{folder}{query}", role) for query in ("", "?compile=true"))
        assert compiled.params == {**plain.params, "compile": True}
        assert "compile" not in plain.params
        assert not compiled.grows
    assert bind_text(f"{llava}?compile=true", "describer").batch_size == 8


def test_a_role_that_is_never_compiled_refuses_it(tmp_path: Path) -> None:
    """A judge reads each battle at its own length; an editor each image at its own size."""
    pipeline = write_pipeline(tmp_path / "pipeline")
    with pytest.raises(SpecError, match=r"unknown parameter for the editor .*'compile'"):
        bind_text(f"{pipeline}?compile=true", "editor")


# -- models ----------------------------------------------------------------------------------------


@compiles
@pytest.mark.slow
@pytest.mark.models
def test_a_describer_is_compiled_once_for_all_batches_and_prompts(tmp_path: Path) -> None:
    """Batches of any size and prompts of up to 64 tokens meet what was compiled in loading."""
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        folder = describers.build_llava(tmp_path / "llava")
    plain: Any = bind_text(f"{folder}?batch_size=4&max_new_tokens=8", "describer").load()
    compiled: Any = bind_text(
        f"{folder}?batch_size=4&max_new_tokens=8&compile=true", "describer"
    ).load()
    traced = _graphs()
    assert traced > 0
    for count, prompt in ((4, "what"), (3, "what is red"), (1, "what"), (2, "a red circle " * 8)):
        texts = compiled.describe(IMAGES[:count], prompt, [0] * count)
        assert texts == plain.describe(IMAGES[:count], prompt, [0] * count)
    assert _graphs() == traced


@compiles
@pytest.mark.slow
@pytest.mark.models
def test_a_describer_without_a_fixed_cache_is_refused(tmp_path: Path) -> None:
    """BLIP keeps its texts in a cache of its own; run plain, it would not be what its key says."""
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        folder = describers.build_blip(tmp_path / "blip")
    with pytest.raises(ModelError, match=r"compile=true: .*Blip.* could not be compiled"):
        bind_text(f"{folder}?compile=true", "describer").load()


@compiles
@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize(
    ("build", "package"),
    [
        (encoders.build_clip, "transformers"),
        (encoders.build_open_clip, "open_clip"),
        (encoders.build_timm_vit, "timm"),
    ],
    ids=["transformers", "open_clip", "timm"],
)
def test_an_encoder_is_compiled_once_for_all_batches(
    build: Callable[[Path], Path], package: str, tmp_path: Path
) -> None:
    """Images are compiled in loading; texts, which many runs have none of, at their first call."""
    from pytest_cepbench.models.torch_runtime import quiet

    pytest.importorskip(package)
    with quiet():
        folder = build(tmp_path / "encoder")
    plain: Any = bind_text(f"{folder}?batch_size=4", "encoder").load()
    compiled: Any = bind_text(f"{folder}?batch_size=4&compile=true", "encoder").load()
    traced = _graphs()
    assert traced > 0
    for count in (4, 1, 3):
        vectors = compiled.encode_images(IMAGES[:count])
        np.testing.assert_allclose(vectors, plain.encode_images(IMAGES[:count]), atol=1e-4)
    assert _graphs() == traced
    if package == "timm":
        return
    for count in (2, 1):
        texts = ["a red circle", "blue"][:count]
        np.testing.assert_allclose(
            compiled.encode_texts(texts), plain.encode_texts(texts), atol=1e-4
        )
    assert _graphs() > traced


@compiles
@pytest.mark.slow
@pytest.mark.models
def test_a_generator_is_compiled_once_for_all_batches(tmp_path: Path) -> None:
    """The part that is called at every step; what is drawn for a batch's repetitions is dropped."""
    pytest.importorskip("diffusers")
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        folder = generators.build_stable_diffusion(tmp_path / "sd")
    text = f"{folder}?batch_size=2&num_inference_steps=2"
    plain: Any = bind_text(text, "generator").load()
    compiled: Any = bind_text(f"{text}&compile=true", "generator").load()
    traced = _graphs()
    assert traced > 0
    for count in (2, 1):
        drawn = compiled.generate(COLORS[:count], range(count))
        expected = plain.generate(COLORS[:count], range(count))
        assert len(drawn) == count
        np.testing.assert_allclose(drawn, expected, atol=1e-4)
    assert _graphs() == traced
