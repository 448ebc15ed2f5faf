"""Texts that checkpoints write of images and questions, and the settings that are in force."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import reasoning_spans
from pytest_cepbench.errors import CheckpointError, ModelError, SpecError
from pytest_cepbench.models.protocols import Describer, Question, Reply, Writer
from pytest_cepbench.models.text_model.text_generation import TextModel
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import bind_text, load_once, plain
from tests.models.files import LLAVA, write_checkpoint
from tests.models.text_model.conftest import (
    DESCRIBERS,
    Build,
    bound,
    describe,
    describer,
    tiny,
)
from tests.tiny.common import WORDS, edit_json, edit_tensors, pictures, skip_before
from tests.tiny.describers import build_gemma3, build_llava, build_phi4

pytestmark = pytest.mark.models

SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in ("qwen2-vl", "idefics3", "vit-gpt2")]


@pytest.mark.parametrize("name", ["llava", "blip", *SLOW])
def test_a_text_depends_on_image_and_prompt_alone(name: str) -> None:
    """Padding and neighbours must not change it; the prompt, which a decoder repeats, and special
    tokens are not in it. A captioner is given no prompt: it would write on after it.
    """
    model, images = tiny(name), pictures()
    together = describe(model, images)
    assert together == [describe(model, [image])[0] for image in images]
    assert len(set(together)) > 1
    assert describe(model, images) == together
    other = describe(model, images, "what is shown ?")
    if name in ("blip", "vit-gpt2"):
        assert other == together
        return
    assert other != together
    assert describe(tiny(name, "max_new_tokens=8&system_prompt=be%20brief"), images) != together
    assert all("describe the" not in text and "<" not in text for text in together)
    assert all(len(text.split()) <= 8 for text in together)


@pytest.mark.parametrize("build", [build_gemma3, build_phi4])
def test_other_families_are_read(build: Callable[[Path], Path], tmp_path: Path) -> None:
    """A marker of an image may be another token than the model's, and its class one of texts."""
    with quiet():
        folder = build(tmp_path)
    (text,) = describe(describer(folder, "max_new_tokens=3"), pictures()[:1])
    assert 0 < len(text.split()) <= 3


def test_a_captioner_begins_with_its_template_and_ends_where_its_positions_do() -> None:
    """What the user puts into the template must be where the caption begins. More new tokens than
    the model has places for must end the text, not crash.
    """
    model = tiny("blip", "max_new_tokens=4&prompt_template=a%20{prompt}")
    texts = describe(model, pictures(), "circle on")
    assert all(text.startswith("a circle on") for text in texts)
    assert texts == [describe(model, [image], "circle on")[0] for image in pictures()]
    for name in ("blip", "vit-gpt2"):
        model = tiny(name, "min_new_tokens=20&max_new_tokens=400")
        # 24 places, the first of them for the start token.
        assert max(len(text.split()) for text in describe(model, pictures())) == 23


@pytest.mark.parametrize(("name", "limits"), [("llava", (1, 40)), ("vit-gpt2", (2,))])
def test_a_text_that_ends_at_its_limit_says_so(
    copied: Build, name: str, limits: Sequence[int]
) -> None:
    """And one that ends by itself does not: the reports count the former, by this word. An end that
    is forced at the limit, as of Florence-2 and Donut, is none of the text's own.
    """
    skip_before("a tiny model that ends by itself", "transformers", "5.0")
    forced = copied(name)
    edit_json(forced / "generation_config.json", forced_eos_token_id=2)

    def texts(model: Describer) -> list[object]:
        return list(model.describe(pictures(), "what ?", [0] * 3))

    for most in limits:
        made = texts(tiny(name, f"max_new_tokens={most}"))
        cut = [text for text in made if isinstance(text, Reply)]
        assert len(cut) == 3 if most < 3 else len(cut) < 3
        assert all(text.provenance == {"finish": "length"} for text in cut)
        assert texts(describer(forced, f"max_new_tokens={most + 1}")) == made


def test_markers_of_reasoning_stay(tmp_path: Path) -> None:
    """Where the chat template opens it, the text begins with the marker, since the model itself
    writes none; unless it is kept. Markers that are special tokens, as those of Magistral, are not
    left out: without them reasoning and answer would run into each other.
    """
    folder = build_llava(tmp_path / "opened", words=(*WORDS, "<think>", "</think>"))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant : {%", "assistant : <think> {%"))
    opened = describe(describer(folder, "max_new_tokens=4"), pictures())
    kept = describe(describer(folder, "max_new_tokens=4&reasoning=keep"), pictures())
    assert opened == [f"<think>{text}" for text in kept]
    assert [reasoning_spans(text)[0][0] for text in opened] == [0, 0, 0]

    folder = build_llava(tmp_path / "special", words=("[THINK]", *WORDS))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    number, (first, *_) = tokenizer["model"]["vocab"]["[THINK]"], tokenizer["added_tokens"]
    special = {**first, "id": number, "content": "[THINK]"}
    edit_json(folder / "tokenizer.json", added_tokens=[*tokenizer["added_tokens"], special])
    others = [i for i in range(len(WORDS) + 6) if i != 5]
    edit_json(folder / "generation_config.json", suppress_tokens=others)
    for query, expected in (("", "[THINK] [THINK]"), ("&reasoning=keep", "")):
        model = describer(folder, f"max_new_tokens=2{query}")
        assert describe(model, pictures()) == [expected] * 3


def test_a_text_of_tokens_without_scores_is_a_failure(copied: Build) -> None:
    """As of half precision that overflows: the first token of the vocabulary would be all of it,
    and "!!!!" be measured. Beams are counted with their text.
    """
    folder = copied("llava")
    edit_tensors(folder, lambda own: [v.mul_(1e25) for k, v in own.items() if "mlp" in k])
    for query in ("max_new_tokens=3", "max_new_tokens=3&num_beams=2"):
        for failure in describe(describer(folder, query), pictures()):
            assert isinstance(failure, Failure)
            assert "not numbers in torch.float32: give a dtype" in failure.detail


def test_what_comes_after_the_end_of_a_text_is_no_failure(copied: Build) -> None:
    """A text that ends before its neighbour is filled up with padding, whose scores count not."""
    skip_before("a tiny model that ends by itself", "transformers", "5.0")
    query = "max_new_tokens=40"
    model = describer(copied("llava"), query)
    assert isinstance(model, TextModel)
    loaded = model.loaded
    padding = loaded.tokenizer.convert_tokens_to_ids("yellow")  # which the texts do not have
    loaded.generation_config.pad_token_id = padding
    loaded.model.get_input_embeddings().weight.data[padding] = float("nan")
    asked = pictures(), "what ?"
    ends, *others = describe(model, *asked)
    assert [ends.replace(" yellow", ""), *others] == describe(tiny("llava", query), *asked)


def test_a_prompt_beyond_what_the_model_was_made_for_is_told(copied: Build) -> None:
    """Rotary positions go on in silence; a judge refuses such a battle."""
    folder = copied("llava")
    config = json.loads((folder / "config.json").read_text())["text_config"]
    config.pop("rope_parameters", None)  # of newer versions, which read the older name too
    stretched = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 9}
    for rope, told in ((None, True), ({"rope_theta": 10000.0, **stretched}, False)):
        own = {"max_position_embeddings": 9, "rope_scaling": rope}
        edit_json(folder / "config.json", text_config=config | own)
        (reply,) = describer(folder).describe(pictures()[:1], "what ?", [0])
        remarks = reply.remarks if isinstance(reply, Reply) else ()
        assert len(remarks) == told
        assert all("than the 9 that the model was made for" in remark for remark in remarks)


def test_sampling_follows_each_images_own_seed() -> None:
    """With sampling, a text depends on its image and seed, not on its batch, and the global
    generator is left as it was.
    """
    import torch

    model = tiny("llava", "max_new_tokens=8&do_sample=true")
    images = pictures([(40, 40)] * 3)
    before = torch.random.get_rng_state()
    together = describe(model, [images[0]] * 3, seed=5)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(set(together)) == 3
    assert together == [describe(model, [images[0]], seed=5 + i)[0] for i in range(3)]


ONE, OTHER, WIDE = pictures()

QUESTIONS: tuple[Question, ...] = (
    ["what is shown ?", ONE],
    ["a red circle"],
    [ONE, "and", OTHER, "what is left ?"],
    ["what is", WIDE, "shown ?"],
    [OTHER, "and", ONE, "what is left ?"],
)


def load(folder: Path, query: str = "max_new_tokens=6") -> Writer:
    """Load a folder as writer, once; not to be changed."""
    model = load_once(f"{folder}?{query}", "writer")
    assert isinstance(model, Writer)
    return model


def write(model: Writer, questions: tuple[Question, ...], prompt: str = "") -> list[object]:
    """Answers with the same seed."""
    return plain(model.write(questions, prompt, [3] * len(questions)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llava", "qwen2-vl", "idefics3", "janus", "emu3"])
def test_an_answer_depends_on_its_own_question(name: str) -> None:
    """No image, one, two, in a batch and alone: the same text, which all parts decide."""
    model = load(DESCRIBERS[name])

    together = write(model, QUESTIONS)

    assert together == [write(model, (question,))[0] for question in QUESTIONS]
    assert all(isinstance(text, str) and "<" not in text for text in together)
    assert together[2] != together[4]  # the same images, in another order
    assert write(model, QUESTIONS, "be brief") != together


def test_a_model_without_chat_template_needs_one_of_its_prompt(tmp_path: Path) -> None:
    """Older checkpoints lack it: the failure names the parameter that helps, and it helps.

    It says where question and system prompt go; other numbers of images than one fail alone.
    """
    with quiet():
        folder = build_llava(tmp_path / "m", chat=False)
    with pytest.raises(ModelError, match="add prompt_template"):
        describe(describer(folder), pictures())
    query = "max_new_tokens=6&prompt_template=user : <image> {prompt} assistant :"
    texts = describe(describer(folder, query), pictures())
    assert all(texts)
    assert all("user" not in text[:4] for text in texts)

    model = load(folder, query)
    answers = write(model, QUESTIONS)
    assert [isinstance(answer, Failure) for answer in answers] == [False, True, True, False, True]
    assert isinstance(answers[2], Failure)
    assert "exactly one image with its text; the question has 2" in answers[2].detail
    assert answers[3:4] == write(model, QUESTIONS[3:4])
    assert write(model, QUESTIONS[:1], "be brief") != answers[:1]


def test_a_checkpoint_that_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    """At binding: the answer to a question that it never saw would look like any other."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    for query, message in (
        ("", "no chat template, so nothing says how it is asked"),
        ("prompt_template=hello", "must say with {prompt} where the question goes"),
        ("system_prompt=be brief", "system_prompt needs a chat template"),
    ):
        with pytest.raises(SpecError, match=message):
            bind_text(f"{folder}?{query}", "writer")


def test_the_system_prompt_of_the_spec_goes_before_the_suites() -> None:
    """Both are one message. Special tokens that a question spells are left out, as the model would
    look for the image behind each; the words around them are read.
    """
    own = load(DESCRIBERS["llava"], "max_new_tokens=6&system_prompt=be brief")
    plain = load(DESCRIBERS["llava"])

    assert write(own, QUESTIONS) == write(plain, QUESTIONS, "be brief")
    assert write(own, QUESTIONS, "a circle") == write(plain, QUESTIONS, "be brief\n\na circle")
    spelt = write(plain, (["what <image> is <eos>", ONE],), "be <image> brief")
    assert spelt == write(plain, (["what   is  ", ONE],), "be   brief")


NEUTRALISED = {
    "return_dict_in_generate": True, "output_scores": True, "output_attentions": True,
    "num_return_sequences": 2, "do_sample": True, "token_healing": True, "is_assistant": True,
    "prompt_lookup_num_tokens": 3, "assistant_early_exit": 1, "max_time": 1e-9,
}  # fmt: skip
"""Each alone would change what comes back, so that one which is followed shows among the others."""


@pytest.mark.parametrize("name", ["llava", "blip"])
def test_what_comes_back_is_a_text_for_each_image(name: str, copied: Build) -> None:
    """Settings of a training's own calls: others of these would fail in every chain."""
    folder = copied(name)
    settings = folder / "generation_config.json"
    edit_json(settings, **NEUTRALISED)
    assert describe(describer(folder), pictures()) == describe(tiny(name), pictures())
    edit_json(settings, **dict.fromkeys(NEUTRALISED), num_beams=2)
    expected = describe(describer(folder), pictures())
    edit_json(settings, num_return_sequences=2)
    assert describe(describer(folder), pictures()) == expected


def test_strings_end_a_text(tmp_path: Path) -> None:
    """The text ends behind the string, and was not cut at its limit; others go on."""
    # transformers reads a tokenizer's own way to join tokens from this text.
    folder = build_llava(tmp_path / "m", words=[*WORDS, "abcdef"])
    whole = describe(describer(folder), pictures())
    ended = [text.partition("be")[0] + "be" if "be" in text else text for text in whole]
    assert ended != whole
    for strings in ("be", ["be", "circle"]):
        edit_json(folder / "generation_config.json", stop_strings=strings)
        replies = describer(folder).describe(pictures(), "describe the image", [0, 1, 2])
        assert plain(replies) == ended
        assert [isinstance(own, Reply) for own in replies] == ["be" not in text for text in ended]


def test_writing_by_code_of_the_hub_is_refused(copied: Build) -> None:
    """When the model is loaded, and not in every chain."""
    folder = copied("llava")
    for settings, words in (
        ({"penalty_alpha": 0.6}, "asks for contrastive search"),
        ({"penalty_alpha": None, "dola_layers": "high"}, "asks for dola generation"),
        ({"dola_layers": None, "num_beams": 2, "num_beam_groups": 2}, "group beam search"),
    ):
        edit_json(folder / "generation_config.json", **settings)
        with pytest.raises(CheckpointError, match=words):
            bound(folder).load()


def test_settings_in_force_are_in_the_key(copied: Build) -> None:
    """The checkpoint's own settings count, the spec's override them, and all are in the identity;
    device and batch size are not. Captioners' published max_length includes the start token; chat
    models' is the context.
    """
    folder = copied("llava")
    stored = {"max_new_tokens": 32, "repetition_penalty": 1.05, "do_sample": True, "top_k": 1}
    edit_json(folder / "generation_config.json", **stored)
    own = bound(folder)
    assert own.params["max_new_tokens"] == 32
    assert own.params["repetition_penalty"] == 1.05
    assert own.params["do_sample"] is False
    assert "top_k" not in own.params
    assert own.seeded is False
    changed = bound(folder, "max_new_tokens=9&do_sample=true&temperature=0.5&num_beams=2")
    assert changed.seeded is True
    wanted = {"max_new_tokens": 9, "temperature": 0.5, "top_k": 1, "top_p": 1.0, "num_beams": 2}
    assert dict(changed.params) == {**own.params, **wanted, "do_sample": True}
    assert changed.fingerprint == own.fingerprint
    other = bound(folder, "batch_size=2&device=cpu")
    assert other.identity == own.identity
    assert (other.resources.batch_size, other.provenance["device"]) == (2, "cpu")
    for own_length, expected in ((copied("blip"), 15), (folder, 512)):
        (own_length / "generation_config.json").write_text('{"max_length": 16}', encoding="utf-8")
        assert bound(own_length).params["max_new_tokens"] == expected
