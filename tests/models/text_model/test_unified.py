"""Unified models: what their specs can say, and describing and drawing with one loaded model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import bind, detect
from pytest_cepbench.models.protocols import (
    Describer,
    Generator,
    Interleaver,
    Movable,
    RoleName,
    Writer,
)
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.text_model.unified import TokenSampler, UnifiedModel
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import CONTEXT, bind_text, plain
from tests.models.files import LLAVA, write_checkpoint
from tests.models.text_model.conftest import Build, Load, change, rewrite, spec
from tests.tiny.common import pictures

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


@both
def test_all_roles_are_one_load(tiny_describer: Build, unified: Load, family: str) -> None:
    """The roles of a spec name the same load, and the object that it makes plays them. They are
    told from its configuration; as encoder it is refused with what it can be.
    """
    folder = tiny_describer(family)
    detection = detect(parse_spec(str(folder)))
    assert detection.unified
    assert detection.roles == ("describer", "generator", "writer", "interleaver")
    with pytest.raises(RoleError, match="generator, writer or interleaver, not the encoder"):
        bind_text(str(folder), "encoder")
    for protocol in (Describer, Generator, Writer, Interleaver, Movable):
        assert isinstance(unified(family), protocol)
    drawing: tuple[RoleName, ...] = ("describer", "generator", "interleaver")
    roles, others = (
        [bind_text(spec(folder, query), role) for role in drawing]
        for query in ("", "image_do_sample=false")
    )
    assert {role.adapter for role in roles} == {"transformers-unified/1"}
    assert len({(role.resources.shares, role.fingerprint) for role in roles}) == 1
    assert [role.seeded for role in roles] == [False, True, True]
    assert not any(other.seeded for other in others)
    assert others[0].resources.shares != roles[0].resources.shares


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

    loaded, mode = model.loaded, {"generation_mode": "image"}
    with quiet(), torch.inference_mode():
        inputs = loaded.processor(text=[model._prompt(text)], return_tensors="pt", **mode)
        tokens = loaded.model.generate(**inputs, **mode, do_sample=False, guidance_scale=3.0)
        image = loaded.model.decode_image_tokens(tokens)[0]
    drawn: Pixels = (image if image.shape[0] == 3 else image.permute(2, 0, 1)).numpy()
    return drawn


def by_documented_call(model: UnifiedModel, text: str) -> Pixels:
    """(3, h, w) of Emu3 by a function that says which tokens may follow."""
    import torch

    loaded = model.loaded
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


def test_emu3_draws_rows_of_the_size_that_it_is_told(
    tiny_describer: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The area in the ratio, in whole tokens of 8 pixels. Each row ends with its token and nothing
    else does: a row that ends elsewhere shears the image.
    """
    query = "image_area=2048&image_ratio=2:1"
    model = bind_text(f"{tiny_describer('emu3')}?{query}", "generator").load()
    assert isinstance(model, UnifiedModel)
    network = model.loaded.model
    grids: list[Any] = []
    decode = network.decode_image_tokens

    def recorded(image_tokens: Any, height: int, width: int) -> Any:
        rows = image_tokens[:, : height * (width + 1)]
        grids.append(rows.unflatten(1, (height, width + 1)))
        return decode(image_tokens=image_tokens, height=height, width=width)

    monkeypatch.setattr(network, "decode_image_tokens", recorded)

    images = draw(model, TEXTS[:2], SEEDS[:2])

    assert {image.shape for image in images} == {(32, 64, 3)}
    (grid,) = grids
    ends = grid == network.vocabulary_mapping.eol_token_id
    assert ends[:, :, -1].all()
    assert not ends[:, :, :-1].any()


@both
def test_a_text_that_is_odd_to_the_model_spoils_no_drawing(unified: Load, family: str) -> None:
    """Of one that spells its tokens the words around them are drawn, since it would be asked where
    the image is. Scores that are no numbers, as of an overflow on one prompt, are a failure of that
    one, not a picture of nothing.
    """
    model = unified(family)
    loaded = model.loaded
    spelt = draw(model, [f"two {loaded.processor.image_token} red <eos> circle"], [11])
    assert apart(spelt, draw(model, ["two   red   circle"], [11])) == [0]

    number = loaded.tokenizer.convert_tokens_to_ids("square")
    weights = loaded.model.get_input_embeddings().weight.data
    before = weights[number].clone()
    weights[number] = float("nan")

    good, bad = model.generate(["red circle", "red square"], [1, 2])
    weights[number] = before

    assert not isinstance(good, Failure)
    assert isinstance(bad, Failure)
    assert bad.kind == "nan-image"


def test_what_has_no_way_to_draw_or_to_be_asked_is_refused(tmp_path: Path, copied: Build) -> None:
    """At binding: only some families draw, also where the user insists on another, and an
    interleaver is asked by its chat template.
    """
    folder = write_checkpoint(tmp_path / "llava", LLAVA)
    with pytest.raises(RoleError, match="only janus and emu3 draw as well"):
        bind(parse_spec(str(folder)), "generator", CONTEXT, force=True)
    folder = copied("janus")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match="asked by its chat template, and there is none"):
        bind_text(str(folder), "interleaver")


def test_what_is_not_said_is_the_checkpoints_then_the_authors(
    copied: Build,
) -> None:
    """The settings of generation_config.json count; without them those of the published code."""
    folder = copied("emu3")
    authors = bind_text(str(folder), "generator").params
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"guidance_scale": 7.0, "top_k": 9}))

    own = bind_text(str(folder), "generator").params

    names = ("guidance_scale", "top_k", "image_area")
    assert [authors[name] for name in names] == [3.0, 2048, 518400]
    assert (own["guidance_scale"], own["top_k"], own["temperature"]) == (7.0, 9, 1.0)


def in_decoder(convert: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change the last tensor of what decodes images, or leave it out."""

    def change(weights: dict[str, Any]) -> dict[str, Any]:
        last = "vqmodel.decoder.conv_out.weight"
        made = {k: convert(v) if k.endswith(last) else v for k, v in weights.items()}
        return {k: v for k, v in made.items() if v is not None}

    return lambda folder: rewrite(folder, change)


def forget_tokens(folder: Path) -> None:
    """Leave image tokens out of Emu3's map of its vocabulary."""
    known = json.loads((folder / "config.json").read_text())["vocabulary_map"]
    left = {k: v for k, v in known.items() if "000003" not in k}
    change(folder / "config.json", vocabulary_map=left)


def draw_less(folder: Path) -> None:
    """A configuration that was edited by hand must not end in a reshaping error."""
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    change(folder / "config.json", vision_config=vision | {"num_image_tokens": 9})


@pytest.mark.parametrize(
    ("family", "damage", "message"),
    [
        ("janus", in_decoder(lambda _: None), "vqmodel.decoder.conv_out.weight"),
        ("emu3", in_decoder(lambda _: None), "vqmodel.decoder.conv_out.weight"),
        ("janus", in_decoder(lambda v: v * float("nan")), "NaN or infinite values in model.vqm"),
        ("emu3", forget_tokens, "names 31 image tokens and the codebook has 32"),
        ("janus", draw_less, "9 are drawn and the decoder takes 16"),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    copied: Build, family: str, damage: Callable[[Path], None], message: str
) -> None:
    """Also what only drawing needs, and also where it is to describe: one model is gated."""
    folder = copied(family)
    damage(folder)

    with pytest.raises(CheckpointError, match=message):
        bind_text(spec(folder), "describer").load()


DRAWINGS = 4000


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.5, 0, 1.0), (1.0, 2, 1.0), (1.0, 0, 0.6)]
)
def test_tokens_come_as_often_as_their_probability(
    temperature: float, top_k: int, top_p: float
) -> None:
    """Over many seeds, the shares are those of a softmax of the scores that are left."""
    import torch

    scores = torch.tensor([0.0, 1.0, 2.0, 0.5, -3.0])
    weights = np.exp(scores.numpy() / temperature)
    left = np.argsort(-weights)
    kept = top_k or int(
        np.searchsorted(np.cumsum(np.sort(weights / weights.sum())[::-1]), top_p) + 1
    )
    weights[left[kept:]] = 0.0
    settings = {"do_sample": True, "temperature": temperature, "top_k": top_k, "top_p": top_p}

    choice = TokenSampler(settings, range(DRAWINGS))
    chosen = choice(scores.expand(DRAWINGS, -1)).numpy()

    shares = np.bincount(chosen, minlength=5) / DRAWINGS
    expected = weights / weights.sum()
    spread = np.sqrt(expected * (1 - expected) / DRAWINGS)
    assert (np.abs(shares - expected) <= 4 * spread).all()
