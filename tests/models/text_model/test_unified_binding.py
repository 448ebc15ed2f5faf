"""What can be said in the spec of a unified model, and what of it is in which role's key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.binding import detect
from pytest_cepbench.models.protocols import UNIFIED_ROLES
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import bind_text
from tests.models.text_model.conftest import Build, spec

pytestmark = pytest.mark.models


def test_each_roles_key_has_what_decides_its_answers(folders: dict[str, Path]) -> None:
    """A setting of one role is not in the key of the other; both have precision and attention."""
    plain = {role: bind_text(str(folders["janus"]), role) for role in UNIFIED_ROLES}
    query = (
        "max_new_tokens=9&guidance_scale=2&image_top_k=5&image_batch_size=3&batch_size=2"
        "&attn_implementation=eager"
    )
    bound = {role: bind_text(f"{folders['janus']}?{query}", role) for role in plain}

    changed = {
        role: {k: v for k, v in bound[role].params.items() if plain[role].params[k] != v}
        for role in plain
    }

    assert changed["describer"] == {"max_new_tokens": 9, "attn_implementation": "eager"}
    assert changed["generator"] == {
        "guidance_scale": 2.0,
        "top_k": 5,
        "attn_implementation": "eager",
    }
    assert [bound[role].batch_size for role in UNIFIED_ROLES] == [2, 3]
    assert [plain[role].seeded for role in UNIFIED_ROLES] == [False, True]
    assert not bind_text(f"{folders['janus']}?image_do_sample=false", "generator").seeded


def test_what_is_not_said_is_the_checkpoints_then_the_authors(
    copied_unified: Build,
) -> None:
    """The settings of generation_config.json count; without them those of the published code."""
    folder = copied_unified("emu3")
    authors = bind_text(str(folder), "generator").params
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"guidance_scale": 7.0, "top_k": 9}))

    own = bind_text(str(folder), "generator").params

    assert (authors["guidance_scale"], authors["top_k"], authors["image_area"]) == (
        3.0,
        2048,
        518400,
    )
    assert (own["guidance_scale"], own["top_k"], own["temperature"]) == (7.0, 9, 1.0)


@pytest.mark.parametrize(
    ("family", "query", "message"),
    [
        ("janus", "guidence_scale=3", "'guidence_scale'.*guidance_scale"),
        ("janus", "image_area=4096", "'image_area'.*image_prompt_template"),
        ("janus", "num_inference_steps=3", "JanusForConditionalGeneration 'num_inference_steps'"),
        ("janus", "guidance_scale=0.5", "guidance_scale must be a number from 1"),
        ("janus", "guidance_scale=much", "'guidance_scale' must be float, got 'much'"),
        ("janus", "image_top_k=4&image_do_sample=false", "image_top_k acts on sampling only"),
        ("janus", "image_temperature=0", "image_temperature must be a number above 0"),
        ("janus", "image_top_p=2", "image_top_p must be above 0"),
        ("janus", "image_batch_size=0", "image_batch_size must be at least 1"),
        ("janus", "image_prompt_template=a", "image_prompt_template must say with {prompt}"),
        ("janus", "top_p=0.5", "top_p acts on sampling only: add do_sample=true"),
        ("emu3", "image_ratio=wide", "image_ratio must be width:height"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    folders: dict[str, Path], family: str, query: str, message: str
) -> None:
    """In either role, before anything is loaded."""
    for role in ("describer", "generator"):
        with pytest.raises(SpecError, match=message):
            bind_text(f"{folders[family]}?{query}", role)


def test_a_size_of_no_token_is_refused(folders: dict[str, Path]) -> None:
    """Emu3 draws whole tokens."""
    with pytest.raises(SpecError, match="image_area=1 at 1:1 is less than one image token"):
        bind_text(f"{folders['emu3']}?image_area=1", "generator").load()


def test_a_unified_model_plays_its_roles_and_no_other(
    folders: dict[str, Path],
) -> None:
    """Told from its configuration; as encoder it is refused with what it can be."""
    for folder in folders.values():
        detection = detect(parse_spec(str(folder)))
        assert detection.unified
        assert detection.roles == ("describer", "generator", "writer", "interleaver")
        with pytest.raises(RoleError, match="generator, writer or interleaver, not the encoder"):
            bind_text(str(folder), "encoder")


def test_binding_imports_no_torch(folders: dict[str, Path]) -> None:
    """Where everything is in the store, a run costs no import of the model libraries."""
    script = (
        "import sys\n"
        "from tests.models.binding import bind_text\n"
        "for role in ('describer', 'generator', 'writer', 'interleaver'):\n"
        f"    bind_text({str(folders['emu3'])!r}, role)\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# -- damaged checkpoints ---------------------------------------------------------------------------


LAST = "vqmodel.decoder.conv_out.weight"


def rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the tensors of a checkpoint."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def configure(folder: Path, part: str, **values: object) -> None:
    """Change a part of a checkpoint's configuration."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config[part] |= values
    path.write_text(json.dumps(config))


def drop_decoder(folder: Path) -> None:
    """Leave out a tensor of what decodes images."""
    rewrite(folder, lambda weights: {k: v for k, v in weights.items() if not k.endswith(LAST)})


def spoil_decoder(folder: Path) -> None:
    """Make a tensor of what decodes images NaN."""
    rewrite(
        folder,
        lambda weights: {
            k: v * float("nan") if k.endswith(LAST) else v for k, v in weights.items()
        },
    )


def drop_processor(folder: Path) -> None:
    """Leave out what prepares images."""
    (folder / "processor_config.json").unlink()


def forget_tokens(folder: Path) -> None:
    """Leave image tokens out of Emu3's map of its vocabulary."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    known = config["vocabulary_map"]
    config["vocabulary_map"] = {k: v for k, v in known.items() if "000003" not in k}
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("family", "damage", "message"),
    [
        ("janus", drop_decoder, "vqmodel.decoder.conv_out.weight"),
        ("emu3", drop_decoder, "vqmodel.decoder.conv_out.weight"),
        ("janus", spoil_decoder, "NaN or infinite values in model.vqmodel.decoder.conv_out.weight"),
        ("janus", drop_processor, "expected a processor of images and texts, found none"),
        ("emu3", forget_tokens, "names 31 image tokens and the codebook has 32"),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    copied_unified: Build, family: str, damage: Callable[[Path], None], message: str
) -> None:
    """Also what only drawing needs, and also where it is to describe: one model is gated."""
    folder = copied_unified(family)
    damage(folder)

    with pytest.raises(CheckpointError, match=message):
        bind_text(spec(folder), "describer").load()


def test_a_drawing_of_another_size_than_the_decoder_takes_is_refused(
    copied_unified: Build,
) -> None:
    """A configuration that was edited by hand must not end in a reshaping error."""
    folder = copied_unified("janus")
    configure(folder, "vision_config", num_image_tokens=9)

    with pytest.raises(CheckpointError, match="9 are drawn and the decoder takes 16"):
        bind_text(spec(folder), "generator").load()
