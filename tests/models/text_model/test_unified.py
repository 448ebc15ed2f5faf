"""Unified models: what their specs can say, and describing and drawing with one loaded model.

At the end answers in two stages, by checkpoints, and by an interleaver of the user's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import bind, detect
from pytest_cepbench.models.protocols import (
    CUT,
    Describer,
    Generator,
    Interleaver,
    Movable,
    Question,
    Reply,
    RoleName,
    StepLimit,
    Writer,
)
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.text_model.interleaver import interleave, step_text
from pytest_cepbench.models.text_model.unified import TokenSampler, UnifiedModel
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import CONTEXT, bind_text, load_once, plain
from tests.models.files import LLAVA, write_checkpoint
from tests.models.text_model.conftest import DESCRIBERS, Build, spec, unified
from tests.tiny.common import edit_json, edit_tensors, pictures

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
def test_all_roles_are_one_load(family: str) -> None:
    """The roles of a spec name the same load, and the object that it makes plays them. They are
    told from its configuration; as encoder it is refused with what it can be.
    """
    folder = DESCRIBERS[family]
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
def test_a_drawing_depends_on_its_text_and_seed_alone(family: str, query: str) -> None:
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
def test_a_greedy_drawing_is_the_librarys_own(family: str) -> None:
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
def test_a_description_does_not_depend_on_its_batch(family: str) -> None:
    """Images of several sizes are described together as one by one, each differently."""
    made, images = unified(family), [*pictures(), *pictures(((64, 64),))]

    def describe(shown: list[Any]) -> list[Any]:
        return plain(made.describe(shown, "describe the image", [0] * len(shown)))

    together = describe(images)
    assert together == [describe([image])[0] for image in images]
    assert together[0] == together[3]
    assert len(set(together)) == 3


def test_emu3_draws_rows_of_the_size_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The area in the ratio, in whole tokens of 8 pixels. Each row ends with its token and nothing
    else does: a row that ends elsewhere shears the image.
    """
    query = "image_area=2048&image_ratio=2:1"
    model = bind_text(f"{DESCRIBERS['emu3']}?{query}", "generator").load()
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
def test_a_text_that_is_odd_to_the_model_spoils_no_drawing(family: str) -> None:
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
    edit_json(folder / "generation_config.json", guidance_scale=7.0, top_k=9)

    own = bind_text(str(folder), "generator").params

    names = ("guidance_scale", "top_k", "image_area")
    assert [authors[name] for name in names] == [3.0, 2048, 518400]
    assert (own["guidance_scale"], own["top_k"], own["temperature"]) == (7.0, 9, 1.0)


def in_decoder(change: Callable[[dict[str, Any], str], object]) -> Callable[[Path], None]:
    """Change the last tensor of what decodes images, or leave it out."""

    def changed(weights: dict[str, Any]) -> None:
        (last,) = [name for name in weights if name.endswith("vqmodel.decoder.conv_out.weight")]
        change(weights, last)

    return lambda folder: edit_tensors(folder, changed)


def spoil(weights: dict[str, Any], name: str) -> None:
    """Make every number of a tensor NaN."""
    weights[name].fill_(np.nan)


def forget_tokens(folder: Path) -> None:
    """Leave image tokens out of Emu3's map of its vocabulary."""
    known = json.loads((folder / "config.json").read_text())["vocabulary_map"]
    left = {k: v for k, v in known.items() if "000003" not in k}
    edit_json(folder / "config.json", vocabulary_map=left)


def draw_less(folder: Path) -> None:
    """A configuration that was edited by hand must not end in a reshaping error."""
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    edit_json(folder / "config.json", vision_config=vision | {"num_image_tokens": 9})


@pytest.mark.parametrize(
    ("family", "damage", "message"),
    [
        ("janus", in_decoder(dict.pop), "vqmodel.decoder.conv_out.weight"),
        ("emu3", in_decoder(dict.pop), "vqmodel.decoder.conv_out.weight"),
        ("janus", in_decoder(spoil), "NaN or infinite values in model.vqm"),
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


# -- answers in two stages, by checkpoints and by an interleaver of the user's own -----------------


FREE = StepLimit()
RED = Image.new("RGB", (4, 4), "red")
ONE, OTHER, _ = pictures()

QUESTIONS: tuple[Question, ...] = (
    ["describe the red circle"],
    ["what is shown ?", ONE],
    ["a small square"],
    [ONE, "and", OTHER, "what is left ?"],
)


def answers_of(
    model: Interleaver, questions: Sequence[Question], limit: StepLimit, first_seed: int = 7
) -> list[list[tuple[str, bytes]]]:
    """Texts and pixels of the answers' steps, with seeds that count up."""
    seeds = list(range(first_seed, first_seed + len(questions)))
    answers: Any = plain(model.interleave(questions, [limit] * len(questions), seeds))
    return [[(step.text, step.image.tobytes()) for step in answer] for answer in answers]


class Teller:
    """Says what it is to say to a question, step by step, and remembers what it was asked."""

    def __init__(self, **texts: list[str | Failure]) -> None:
        self.texts = texts
        self.asked: list[Question] = []

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure]:
        """The next text for each question."""
        self.asked += questions
        return [self.texts[str(question[0])].pop(0) for question in questions]


class Painter:
    """Draws a red image of any text but those that hold "nothing"."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, int]] = []

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image | Failure]:
        """One image for each text."""
        self.drawn += zip(texts, seeds, strict=True)
        return [Failure("nan-image", "no") if "nothing" in text else RED for text in texts]


def answer(limit: StepLimit, **texts: list[str | Failure]) -> list[list[str] | Failure]:
    """The texts of each answer of a writer."""
    count = len(texts)
    questions = [[name] for name in texts]
    answers = interleave(Teller(**texts), Painter(), questions, [limit] * count, [1] * count)
    return [a if isinstance(a, Failure) else [step.text for step in a] for a in plain(answers)]


def test_the_model_ends_where_it_decides() -> None:
    """By an empty text, by its word alone or after a last text; the others of the call go on. A
    told number is made whatever the model says, and never more than the most. A step that fails
    fails its answer, with its number where an image failed.
    """
    no_step = Failure("empty-text", "the answer has no step")
    assert answer(
        FREE,
        a=["one", "", "three"],
        b=["one", "two", "END."],
        c=["one", "two\nEND", "three"],
        d=["", "two"],
    ) == [["one"], ["one", "two"], ["one", "two"], no_step]

    assert answer(StepLimit(2), a=["END", "two"], b=["one", ""]) == [["END", "two"], ["one", ""]]
    assert answer(StepLimit(5, most=1), a=["one", "two"]) == [["one"]]
    assert answer(StepLimit(most=2), a=["one", "two", "three"]) == [["one", "two"]]

    refused = Failure("refused", "no")
    assert answer(FREE, a=["one", refused], b=["one", "nothing"], c=["one", ""]) == [
        refused,
        Failure("nan-image", "image of step 2: no"),
        ["one"],
    ]


def test_a_step_is_asked_with_all_that_came_before() -> None:
    """Question, texts and images in order; the image with the texts of the question. An answer with
    a cut text says so, whichever of its steps it is.
    """
    texts: list[Any] = ["one", Reply("two", provenance=CUT), "END"]
    writer, painter = Teller(a=texts), Painter()

    (reply,) = interleave(writer, painter, [["a", RED, "b"]], [FREE], [5])

    assert isinstance(reply, Reply)
    assert ([step.text for step in reply.value], reply.provenance) == (["one", "two"], CUT)
    first, second, third = writer.asked
    assert first == ["a", RED, "b", step_text(1, None)]
    assert second == ["a", RED, "b", "The answer so far:", "one", RED, step_text(2, None)]
    assert third[4:8] == ["one", RED, "two", RED]
    assert [text for text, _ in painter.drawn] == [
        f"{step}\nThis image belongs to the answer to: a b" for step in ("one", "two")
    ]
    assert len({seed for _, seed in painter.drawn}) == 2


def test_reasoning_is_neither_drawn_nor_read_again() -> None:
    """It is kept with its step; alone it fails the answer."""
    thoughts = ["<think>a red one?</think>one", "two\nEND"]
    writer, painter = Teller(a=list(thoughts), b=["<think>hm"]), Painter()

    steps, failure = interleave(writer, painter, [["a"], ["b"]], [FREE, FREE], [5, 5])

    assert isinstance(steps, list)
    assert [step.text for step in steps] == [thoughts[0], "two"]
    assert not [text for text, _ in painter.drawn if "think" in text]
    assert writer.asked[-1][2] == "one"
    assert isinstance(failure, Failure)
    assert failure.kind == "only-reasoning"

    kept = Painter()
    writer = Teller(a=list(thoughts))
    interleave(writer, kept, [["a"]], [FREE], [5], keeps_reasoning=True)
    assert kept.drawn[0][0].startswith("<think>")


@pytest.mark.slow
@both
def test_a_checkpoint_answers_each_question_for_itself(family: str) -> None:
    """Alone and together the same texts, and images that differ by the rounding of a batch."""
    model = load_once(spec(DESCRIBERS[family]), "interleaver")

    together = answers_of(model, QUESTIONS, StepLimit(2))

    alone = [answers_of(model, [q], StepLimit(2), 7 + i)[0] for i, q in enumerate(QUESTIONS)]
    assert [len(steps) for steps in together] == [2] * 4
    for steps, own in zip(together, alone, strict=True):
        assert steps[0][0] == own[0][0]
        for (_, image), (_, own_image) in zip(steps[:1], own[:1], strict=True):
            assert max(abs(a - b) for a, b in zip(image, own_image, strict=True)) <= 1
    assert len({image for steps in together for _, image in steps}) == 8
