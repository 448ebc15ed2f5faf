"""Describing and drawing with one loaded model, each sample for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.binding import bind
from pytest_cepbench.models.protocols import Describer, Generator, Movable
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.text_model.drawing import PipelineDecoder
from pytest_cepbench.models.text_model.loading import LoadedTextModel
from pytest_cepbench.models.text_model.unified import UnifiedModel
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import CONTEXT, bind_text, plain
from tests.models.text_model.conftest import Build, Load, spec
from tests.tiny.common import pictures, skip_before
from tests.tiny.describers import build_llava

pytestmark = pytest.mark.models

both = pytest.mark.parametrize("family", ["janus", "emu3"])

TEXTS = ("two red circle", "a", "the large yellow square left of a circle", "green")
SEEDS = (11, 12, 13, 14)

Pixels = np.ndarray[Any, Any]


def draw(model: UnifiedModel, texts: Sequence[str], seeds: Sequence[int]) -> list[Pixels]:
    """The drawings as (h, w, 3) numbers."""
    made = []
    for image in model.generate(texts, seeds):
        assert not isinstance(image, Failure)
        made.append(np.asarray(image).astype(int))
    return made


def apart(first: Sequence[Pixels], second: Sequence[Pixels]) -> list[int]:
    """The largest difference of a pixel, of each pair of drawings."""
    return [int(np.abs(a - b).max()) for a, b in zip(first, second, strict=True)]


def parts(model: UnifiedModel) -> LoadedTextModel:
    """What was loaded."""
    return model._describer.loaded


@both
def test_both_roles_are_one_load(folders: dict[str, Path], family: str) -> None:
    """The roles of a spec name the same load, and the object that it makes plays both."""
    text = spec(folders[family], "guidance_scale=2")
    roles = [bind_text(text, role) for role in ("describer", "generator")]

    model = roles[0].load()

    assert isinstance(model, Describer)
    assert isinstance(model, Generator)
    assert isinstance(model, Movable)
    assert {role.adapter for role in roles} == {"transformers-unified/1"}
    assert roles[0].shares == roles[1].shares != ""
    assert roles[0].fingerprint == roles[1].fingerprint
    assert roles[0].shares != bind_text(spec(folders[family]), "describer").shares


@pytest.mark.slow
@both
@pytest.mark.parametrize(
    "query", ["", "image_do_sample=false", "guidance_scale=1&image_top_k=8&image_temperature=0.7"]
)
def test_a_drawing_depends_on_its_text_and_seed_alone(
    unified: Load, family: str, query: str
) -> None:
    """In a batch, alone and in another order the same to the last level; caller's state stays."""
    import torch

    made = unified(family, query)
    before = torch.get_rng_state()

    together = draw(made, TEXTS, SEEDS)
    alone = [draw(made, [text], [seed])[0] for text, seed in zip(TEXTS, SEEDS, strict=True)]
    turned = draw(made, TEXTS[::-1], SEEDS[::-1])[::-1]

    assert torch.equal(torch.get_rng_state(), before)
    assert {image.shape for image in together} == {(32, 32, 3)}
    assert max(apart(together, alone) + apart(together, turned)) <= 1
    assert min(apart(together[:1] * 3, together[1:])) > 16
    others = apart(together, draw(made, TEXTS, [seed + 100 for seed in SEEDS]))
    assert max(others) == 0 if "image_do_sample" in query else min(others) > 16


@pytest.mark.slow
@both
def test_a_greedy_drawing_is_the_librarys_own(unified: Load, family: str) -> None:
    """The likeliest tokens are those of the call that the library's documentation shows."""
    made = unified(family, "image_do_sample=false&guidance_scale=3")
    reference = {"janus": by_common_call, "emu3": by_documented_call}[family]

    drawn = draw(made, TEXTS[:2], SEEDS[:2])

    for image, text in zip(drawn, TEXTS, strict=False):
        # The processors of these checkpoints scale to [-1, 1].
        pixels = (reference(made, text) * 0.5 + 0.5).clip(0, 1) * 255
        assert np.abs(image - pixels.transpose(1, 2, 0)).max() <= 1.01


def by_common_call(model: UnifiedModel, text: str) -> Pixels:
    """(3, h, w) out of generation_mode="image"."""
    import torch

    settings = {"do_sample": False, "guidance_scale": 3.0, "prompt_template": None}
    checkpoint: Any = None  # nothing is wrong with it
    decoder = PipelineDecoder(checkpoint, parts(model), settings)
    with quiet(), torch.inference_mode():
        drawn: Pixels = decoder.draw([model._prompt(text)], [0])[0].numpy()
    return drawn


def by_documented_call(model: UnifiedModel, text: str) -> Pixels:
    """(3, h, w) of Emu3 by a function that says which tokens may follow."""
    import torch

    loaded = parts(model)
    processor, network = loaded.processor, loaded.model
    call = {"return_for_image_generation": True, "image_area": 1024, "return_tensors": "pt"}
    inputs, unwanted = processor(text=[text], **call), processor(text=[""], **call)
    (height, width), start = inputs.pop("image_sizes")[0], inputs["input_ids"].shape[1]
    last = loaded.tokenizer.convert_tokens_to_ids(["<|extra_201|>", "<|image end|>", "<eos>"])

    def allowed(_: int, ids: torch.Tensor) -> list[int]:
        place = len(ids) - start
        if place >= height * (width + 1):
            return [last[place - height * (width + 1)]]
        row_ends = place % (width + 1) == width
        return (
            [network.vocabulary_mapping.eol_token_id]
            if row_ends
            else list(network.vocabulary_mapping.image_tokens)
        )

    with quiet(), torch.inference_mode():
        output = network.generate(
            **inputs,
            do_sample=False,
            guidance_scale=3.0,
            max_new_tokens=height * (width + 1) + 3,
            prefix_allowed_tokens_fn=allowed,
            suppress_tokens=None,  # said for texts
            negative_prompt_ids=unwanted["input_ids"],
            negative_prompt_attention_mask=unwanted["attention_mask"],
        )
        image = network.decode_image_tokens(
            image_tokens=output[:, start:], height=height, width=width
        )
    decoded: Pixels = image[0].numpy()
    return decoded


@pytest.mark.slow
@both
def test_a_description_does_not_depend_on_its_batch(unified: Load, family: str) -> None:
    """Images of several sizes are described together as one by one, each differently."""
    made, images = unified(family), [*pictures(), *pictures(((64, 64),))]

    def describe(shown: list[Any]) -> list[Any]:
        return plain(made.describe(shown, "describe the image", [0] * len(shown)))

    together = describe(images)
    assert together == [describe([image])[0] for image in images]
    assert together[0] == together[3]
    assert len(set(together)) == 3


@both
def test_a_text_that_spells_the_models_tokens_is_drawn(unified: Load, family: str) -> None:
    """It would be asked where the image is; the words around the tokens are drawn."""
    made = unified(family)
    token = parts(made).processor.image_token

    spelt = draw(made, [f"two {token} red <eos> circle"], [11])

    assert apart(spelt, draw(made, ["two   red   circle"], [11])) == [0]


@pytest.mark.slow
def test_what_frames_a_prompt_can_be_said(unified: Load) -> None:
    """A spec's template goes in place of Janus's chat template and is part of Emu3's prompt."""
    for family in ("janus", "emu3"):
        unframed = draw(unified(family), ["red circle"], [11])
        framed = draw(unified(family, "image_prompt_template={prompt} small"), ["red circle"], [11])
        assert apart(unframed, framed) > [16]
    unwanted = draw(unified("emu3", "negative_prompt=blue square"), ["red circle"], [11])
    assert apart(unwanted, draw(unified("emu3"), ["red circle"], [11])) > [16]


def test_emu3_draws_the_size_that_it_is_told(folders: dict[str, Path]) -> None:
    """The area in the ratio, in whole tokens of 8 pixels."""
    bound = bind_text(f"{folders['emu3']}?image_area=2048&image_ratio=2:1", "generator")
    model = bound.load()
    assert isinstance(model, UnifiedModel)

    (image,) = draw(model, ["red circle"], [1])

    assert image.shape == (32, 64, 3)


@both
def test_scores_that_are_no_numbers_fail_their_own_drawing(
    folders: dict[str, Path], family: str
) -> None:
    """An overflow on one prompt is a failure of that one, not a picture of nothing."""
    model = bind_text(spec(folders[family]), "generator").load()
    assert isinstance(model, UnifiedModel)
    loaded = parts(model)
    number = loaded.tokenizer.convert_tokens_to_ids("square")
    loaded.model.get_input_embeddings().weight.data[number] = float("nan")

    good, bad = model.generate(["red circle", "red square"], [1, 2])

    assert not isinstance(good, Failure)
    assert isinstance(bad, Failure)
    assert bad.kind == "nan-image"


def test_a_describer_alone_cannot_be_made_to_draw(tmp_path: Path) -> None:
    """Where the user insists, the reason is what the library's class makes."""
    skip_before("a unified model", "transformers", "5.0")
    with quiet():
        folder = build_llava(tmp_path / "llava")
    bound = bind(parse_spec(str(folder)), "generator", CONTEXT, force=True)

    with pytest.raises(RoleError, match=r"makes text and no images.* cannot be the generator"):
        bound.load()


def test_an_unknown_family_draws_by_its_seeds(
    copied_unified: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the common interface, one call for each drawing, whatever else is in the batch."""
    import torch

    from pytest_cepbench.models.text_model import unified as module

    monkeypatch.delitem(module._DECODERS, "janus")
    model = bind_text(str(copied_unified("janus")), "generator").load()
    assert isinstance(model, UnifiedModel)
    before = torch.get_rng_state()

    together = draw(model, TEXTS[:2], SEEDS[:2])

    assert torch.equal(torch.get_rng_state(), before)
    assert apart(together[1:], draw(model, TEXTS[1:2], SEEDS[1:2])) == [0]
    assert apart(together[1:], draw(model, TEXTS[1:2], [99])) > [16]
