"""Writers: questions of texts and images, answered by checkpoints as users give them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.protocols import Question, Writer
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import bind_text, plain
from tests.models.files import LLAVA, write_checkpoint
from tests.tiny.common import pictures
from tests.tiny.describers import BUILDERS
from tests.tiny.unified import BUILDERS as UNIFIED

pytest.importorskip("torch", reason="writers need the [models] extra")
pytest.importorskip("transformers", reason="writers need the [models] extra")

pytestmark = pytest.mark.models

ONE, OTHER, WIDE = pictures()

QUESTIONS: tuple[Question, ...] = (
    ["what is shown ?", ONE],
    ["a red circle"],
    [ONE, "and", OTHER, "what is left ?"],
    ["what is", WIDE, "shown ?"],
    [OTHER, "and", ONE, "what is left ?"],
)

Build = Callable[[str], Path]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder of a tiny checkpoint by its builder's name; built once, not to be changed."""
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

    root = tmp_path_factory.mktemp("writers")

    def build(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            with quiet():
                (BUILDERS | UNIFIED)[name](folder)
        return folder

    return build


def load(folder: Path, query: str = "max_new_tokens=6") -> Writer:
    """Load a folder as writer."""
    model = bind_text(f"{folder}?{query}", "writer").load()
    assert isinstance(model, Writer)
    return model


def write(model: Writer, questions: tuple[Question, ...], prompt: str = "") -> list[object]:
    """Answers with the same seed."""
    return plain(model.write(questions, prompt, [3] * len(questions)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llava", "qwen2-vl", "idefics3", "janus", "emu3"])
def test_an_answer_depends_on_its_own_question(folder_of: Build, name: str) -> None:
    """No image, one, two, in a batch and alone: the same text, which all parts decide."""
    model = load(folder_of(name))

    together = write(model, QUESTIONS)

    assert together == [write(model, (question,))[0] for question in QUESTIONS]
    assert all(isinstance(text, str) and "<" not in text for text in together)
    assert together[2] != together[4]  # the same images, in another order
    assert write(model, QUESTIONS, "be brief") != together


def test_special_tokens_that_a_question_spells_are_left_out(folder_of: Build) -> None:
    """The model would look for the image behind each; the words around them are read."""
    model = load(folder_of("llava"))

    (spelt,) = write(model, (["what <image> is <eos>", ONE],), "be <image> brief")

    assert [spelt] == write(model, (["what   is  ", ONE],), "be   brief")


def test_sampled_answers_follow_their_own_seeds(folder_of: Build) -> None:
    """In a batch and alone, and the process's own random state stays."""
    import torch

    model = load(folder_of("llava"), "max_new_tokens=8&do_sample=true")
    before = torch.random.get_rng_state()

    together = plain(model.write([QUESTIONS[0]] * 3, "", [5, 6, 7]))

    assert torch.random.get_rng_state().equal(before)
    assert len(set(together)) == 3
    assert together[1:2] == plain(model.write([QUESTIONS[0]], "", [6]))


def test_a_model_without_chat_template_reads_one_image(tmp_path: Path) -> None:
    """Its template says where question and system prompt go; other numbers of images fail alone."""
    with quiet():
        from tests.tiny.describers import build_llava

        folder = build_llava(tmp_path / "m", chat=False)
    model = load(folder, "max_new_tokens=6&prompt_template=user : <image> {prompt} assistant :")

    answers = write(model, QUESTIONS)

    assert [isinstance(answer, Failure) for answer in answers] == [False, True, True, False, True]
    assert isinstance(answers[2], Failure)
    assert "exactly one image with its text; the question has 2" in answers[2].detail
    assert answers[3:4] == write(model, QUESTIONS[3:4])
    assert write(model, QUESTIONS[:1], "be brief") != answers[:1]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "no chat template, so nothing says how it is asked"),
        ("prompt_template=hello", "must say with {prompt} where the question goes"),
        ("system_prompt=be brief", "system_prompt needs a chat template"),
    ],
)
def test_a_checkpoint_that_cannot_be_asked_is_refused(
    tmp_path: Path, query: str, message: str
) -> None:
    """At binding: the answer to a question that it never saw would look like any other."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)

    with pytest.raises(SpecError, match=message):
        bind_text(f"{folder}?{query}", "writer")


def test_a_captioner_is_no_writer(folder_of: Build) -> None:
    """It reads images alone, or writes on after the question."""
    with pytest.raises(RoleError, match="can be the describer, not the writer"):
        bind_text(str(folder_of("vit-gpt2")), "writer")


def test_a_writers_limit_is_its_own(folder_of: Build) -> None:
    """An answer of ten steps is longer than a description, and the length is part of the key."""
    for name in ("llava", "janus"):
        described = bind_text(f"{folder_of(name)}", "describer")
        written = bind_text(f"{folder_of(name)}", "writer")

        assert described.params["max_new_tokens"] == 512
        assert written.params == {**described.params, "max_new_tokens": 2048}
    assert written.adapter == "transformers-unified/1"
    assert written.shares == described.shares


def test_a_unified_model_keeps_the_lengths_of_its_roles_apart(folder_of: Build) -> None:
    """One load serves both, and each text is as long as its own role allows."""
    text = str(folder_of("emu3")) + "?image_area=1024&min_new_tokens=520"
    model = bind_text(text, "writer").load()
    parts = vars(model)

    assert parts["_describer"].loaded.generation_config.max_new_tokens == 512
    assert parts["_writer"].loaded.generation_config.max_new_tokens == 2048
    assert parts["_describer"].loaded.model is parts["_writer"].loaded.model


def test_the_system_prompt_of_the_spec_goes_before_the_suites(folder_of: Build) -> None:
    """Both are one message."""
    own = load(folder_of("llava"), "max_new_tokens=6&system_prompt=be brief")
    plain = load(folder_of("llava"))

    assert write(own, QUESTIONS) == write(plain, QUESTIONS, "be brief")
    assert write(own, QUESTIONS, "a circle") == write(plain, QUESTIONS, "be brief\n\na circle")


def test_images_of_a_question_may_be_large(folder_of: Build) -> None:
    """The processor brings them to the model's size."""
    (answer,) = write(load(folder_of("llava")), ([Image.new("RGB", (640, 20), "red"), "what ?"],))

    assert isinstance(answer, str)
