"""Keys under which stores hold results: same inputs, same keys, whatever the code is called."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.chains.chain import CaptionRules, ChainPlan, derive_seed
from pytest_cepbench.chains.steps import key_of
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Battle, RoleName
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.studies.rated_items import RatedItems
from tests.chains.roles import battle_inputs
from tests.golden.frozen import assert_frozen
from tests.models.binding import bind_text
from tests.models.files import (
    LLAVA,
    VIT,
    safetensors_bytes,
    write_checkpoint,
    write_pipeline,
)
from tests.ratings.studies import cast, side_vote, write_rated

PIXELS = ImageArtifact(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))

CONFIGS: dict[str, dict[str, Any]] = {
    "llava": LLAVA,
    "vit": VIT,
    "timm": {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 0,
        "num_features": 192,
        "pretrained_cfg": {"input_size": [3, 32, 32]},
    },
    "janus": {
        "architectures": ["JanusForConditionalGeneration"],
        "model_type": "janus",
        "vision_config": {"model_type": "janus_vision_model"},
        "text_config": {"model_type": "llama"},
        "vq_config": {},
    },
    "janus-chat": {
        "architectures": ["JanusForConditionalGeneration"],
        "model_type": "janus",
        "vq_config": {},
    },
    "emu3": {
        "architectures": ["Emu3ForConditionalGeneration"],
        "model_type": "emu3",
        "text_config": {"model_type": "emu3_text_model"},
        "vq_config": {},
    },
    "owl": {
        "architectures": ["Owlv2ForObjectDetection"],
        "model_type": "owlv2",
        "text_config": {},
        "vision_config": {},
    },
    "mask2former": {
        "architectures": ["Mask2FormerForUniversalSegmentation"],
        "model_type": "mask2former",
    },
    "detr": {"architectures": ["DetrForObjectDetection"], "model_type": "detr"},
}

MODULES = """[
{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
]"""

USERS = """\
class Describer:
    fingerprint, seeded = "mine/3", True
    def __init__(self, mood="calm"): self.mood = mood
    def describe(self, images, prompt, seeds): return ["a cat"] * len(images)
class Judge:
    fingerprint = "strict/1"
    def judge(self, battles, seeds): return ["tie"] * len(battles)
"""


def _write_checkpoints(folder: Path) -> None:
    for name, config in CONFIGS.items():
        write_checkpoint(folder / name, config)
    chat = write_checkpoint(folder / "chat", LLAVA)
    (chat / "chat_template.jinja").write_text("{{ messages }}")
    for name in ("emu3", "janus-chat"):
        (folder / name / "chat_template.jinja").write_text("")
    write_pipeline(folder / "diffusion")
    write_checkpoint(
        folder / "clip",
        {"model_cfg": {"embed_dim": 8, "vision_cfg": {}, "text_cfg": {}}, "preprocess_cfg": {}},
        "open_clip_model.safetensors",
        index="open_clip_config.json",
    )
    sentences = write_checkpoint(
        folder / "sentences", {"architectures": ["BertModel"], "model_type": "bert"}
    )
    (sentences / "modules.json").write_text(MODULES)
    (sentences / "config_sentence_transformers.json").write_text("{}")
    write_checkpoint(sentences / "1_Pooling", {"word_embedding_dimension": 8}, None)
    (folder / "unicom.safetensors").write_bytes(safetensors_bytes())
    (folder / "inception-2015-12-05.pt").write_bytes(b"weights")
    (folder / "golden_models.py").write_text(USERS)
    _write_ratings(folder / "votes")


def _write_ratings(folder: Path) -> None:
    """A study of one battle, which one person has judged."""
    rated = RatedItems("pair", "toy")
    answers = [[Part(text="a cat")], [Part(text="a dog")]]
    rated.items.append(make_item("pair", [Part(text="what?")], answers))
    ratings = write_rated(folder, rated, ("ada",))
    cast(ratings, side_vote(rated.items[0], "ada", "Tie(B)"))


SPECS: tuple[tuple[RoleName, str], ...] = (
    ("describer", "llava?device=cpu"),
    (
        "describer",
        "llava?device=cpu&max_new_tokens=64&do_sample=true&temperature=0.5&dtype=float16",
    ),
    ("generator", "diffusion?device=cpu"),
    (
        "generator",
        "diffusion?device=cpu&num_inference_steps=4&guidance_scale=2.5&height=64&width=64",
    ),
    ("describer", "janus?device=cpu"),
    ("generator", "janus?device=cpu"),
    ("generator", "janus?device=cpu&guidance_scale=2&image_top_k=5"),
    ("encoder", "vit?device=cpu"),
    ("encoder", "vit?device=cpu&pooling=cls&attn_implementation=eager"),
    ("encoder", "timm?device=cpu"),
    ("encoder", "clip?device=cpu"),
    ("encoder", "sentences?device=cpu"),
    ("encoder", "unicom:unicom.safetensors?device=cpu"),
    ("encoder", "cleanfid:?weights=inception-2015-12-05.pt&device=cpu"),
    ("detector", "owl?device=cpu"),
    ("detector", "mask2former?device=cpu"),
    ("detector", "mask2former?device=cpu&threshold=0.2&max_per_class=3"),
    ("detector", "detr?device=cpu"),
    ("describer", "llava?device=cpu&reasoning=keep"),
    ("describer", "openai:m?base_url=http://127.0.0.1:1/v1&revision=1"),
    ("describer", "openai:m?revision=1&reasoning=keep&max_pixels=262144"),
    ("describer", "openai:m?revision=1&temperature=0.5&max_tokens=9&system_prompt=be brief"),
    ("describer", "openai:m?weights=llava"),
    ("generator", "openai:m?revision=1"),
    ("generator", "openai:m?revision=1&height=64&width=64"),
    ("judge", "openai:m?revision=1"),
    ("judge", "openai:m?revision=1&prompt=opening-gpt&max_pixels=262144"),
    ("judge", "chat?device=cpu"),
    ("judge", "chat?device=cpu&prompt=opening-intjudge&max_pixels=262144&system_prompt=be brief"),
    ("writer", "llava?device=cpu&prompt_template={prompt}"),
    ("writer", "janus-chat?device=cpu"),
    ("writer", "openai:m?revision=1"),
    ("editor", "diffusion?device=cpu"),
    ("editor", "diffusion?device=cpu&strength=0.5&num_inference_steps=4&height=64&width=64"),
    ("interleaver", "janus-chat?device=cpu"),
    ("interleaver", "emu3?device=cpu"),
    ("describer", "serve:llava?python=python3"),
    ("describer", "serve:llava?engine=sglang&python=python3&dtype=bfloat16&quantization=fp8"),
    ("judge", "serve:llava?engine=transformers&python=python3&prompt=letters"),
    ("writer", "serve:llava?python=python3&engine_args=--x y"),
    ("describer", "shapes:"),
    ("describer", "shapes:?miss=0.1"),
    ("generator", "shapes:"),
    ("encoder", "shapes:"),
    ("detector", "shapes:"),
    ("interleaver", "shapes:"),
    ("interleaver", "shapes:?miss=0.1&drift=1&stop=0.05"),
    ("writer", "shapes:"),
    ("judge", "shapes:"),
    ("judge", "shapes:?flip=0.1"),
    ("describer", "python:golden_models:Describer"),
    ("describer", "python:golden_models:Describer?mood=brisk"),
    ("judge", "python:golden_models:Judge"),
    ("vqa", "chat?device=cpu"),
    ("vqa", "chat?device=cpu&max_pixels=262144&system_prompt=be brief"),
    ("vqa", "openai:m?revision=1"),
    ("vqa", "openai:m?revision=1&logprobs=false"),
    ("vqa", "shapes:"),
    ("vqa", "shapes:?yes=0.1"),
    ("judge", "human:votes"),
    ("judge", "human:votes?votes=shares&annotator=ada"),
)  # fmt: skip


@pytest.mark.models
def test_every_adapter_gives_its_identities_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a spec is bound to: adapter version, parameters with defaults, and one step's key."""
    if find_spec("torch") is None:  # importing it takes seconds, and binding does without
        pytest.skip("checkpoints need the [models] extra")
    _write_checkpoints(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    installed = metadata.version  # clean-fid's is part of a key, which is to be the same everywhere
    monkeypatch.setattr(
        metadata, "version", lambda name: "1.0" if name == "clean-fid" else installed(name)
    )
    bound_roles = {f"{role} {spec}": bind_text(spec, role) for role, spec in SPECS}
    frozen = {
        name: {
            **bound.identity,
            "seeded": bound.seeded,
            "key": key_of(bound, "describe", 7, [["image", PIXELS.digest]]),
        }
        for name, bound in bound_roles.items()
    }
    assert_frozen("identities.json", frozen)


def _bound(role: RoleName, *, seeded: bool) -> BoundRole:
    return BoundRole(
        role,
        "s",
        "w",
        "f" * 64,
        "a/1",
        lambda: None,  # type: ignore[arg-type,return-value] # never loaded
        {"x": 1},
        seeded,
    )


def test_keys_of_steps() -> None:
    """Keys of each role's kinds of inputs, and the seeds, digests and prompts that enter them."""
    text = digest_text("a red square \N{SNOWMAN}")
    battle = Battle(("what?", PIXELS.to_pil()), ("a cat",), ("a dog", PIXELS.to_pil()))
    plan = ChainPlan("image", 6, "d", "Draw: {description}", 3, CaptionRules(True, 2))
    inputs: dict[RoleName, list[list[str]]] = {
        "describer": [["image", PIXELS.digest]],
        "generator": [["text", text]],
        "encoder": [["crop", PIXELS.digest]],
        "detector": [["image", PIXELS.digest], ["query", digest_text("cat")]],
        "judge": battle_inputs(battle),
    }
    frozen = {
        "image digest": PIXELS.digest,
        "text digest": text,
        "seeds": [derive_seed(run, sample, g) for run, sample, g in ((0, "a", 1), (7, "b/ä", 12))],
        "drawing prompt": plan.drawing_prompt("A *red* cat sits here."),
        "judge inputs": inputs["judge"],
        "keys": {
            f"{role} {'seeded' if seeded else 'unseeded'}": key_of(
                _bound(role, seeded=seeded), "p", 7, kinds
            )
            for role, kinds in inputs.items()
            for seeded in (False, True)
        },
    }
    assert_frozen("step_keys.json", frozen)
