"""Checkpoints that every supported release of transformers reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="checkpoints are saved by the [models] extra")

from portable import make_portable

from tests.tiny.describers import build_llava
from tests.tiny.generators import build_stable_diffusion

pytestmark = pytest.mark.models

CHECKPOINTS = Path(__file__).parents[2] / "reference" / "checkpoints"

NAMES = [folder.name for folder in sorted(CHECKPOINTS.iterdir()) if folder.is_dir()]


def _words(folder: Path) -> dict[str, list[str]]:
    files = [path for path in folder.rglob("*") if path.suffix in (".json", ".txt", ".jinja")]
    return {str(path.relative_to(folder)): path.read_text().split() for path in files}


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_ones_are_saved_so(tmp_path: Path, name: str) -> None:
    """Saving them so once more changes nothing."""
    folder = Path(shutil.copytree(CHECKPOINTS / name, tmp_path / name))
    shipped = _words(folder)
    make_portable(folder)
    assert _words(folder) == shipped


def test_what_is_saved_so_is_what_was_saved(tmp_path: Path) -> None:
    """The installed release reads the same tensors and tokens from both."""
    from diffusers import StableDiffusionPipeline
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    chat, pipeline = build_llava(tmp_path / "m"), build_stable_diffusion(tmp_path / "p")
    loaders = {chat: LlavaForConditionalGeneration, pipeline: StableDiffusionPipeline}
    before = {folder: kind.from_pretrained(folder) for folder, kind in loaders.items()}
    ids = AutoProcessor.from_pretrained(chat).tokenizer("describe the image")["input_ids"]
    drawn = before[pipeline].tokenizer("two red circles")["input_ids"]

    for folder in loaders:
        make_portable(folder)

    after = {folder: kind.from_pretrained(folder) for folder, kind in loaders.items()}
    pairs = [(before[chat], after[chat])]
    pairs.append((before[pipeline].text_encoder, after[pipeline].text_encoder))
    for one, other in pairs:
        own, new = one.state_dict(), other.state_dict()
        assert own.keys() == new.keys()
        assert all(tensor.equal(new[key]) for key, tensor in own.items())
    assert AutoProcessor.from_pretrained(chat).tokenizer("describe the image")["input_ids"] == ids
    assert after[pipeline].tokenizer("two red circles")["input_ids"] == drawn
