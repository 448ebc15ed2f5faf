"""The parameters of every adapter: what is documented is read, and all else is refused by name."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from runpy import run_path
from typing import Any, get_args, get_type_hints

import pytest

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import ModelSpec, parse_params
from tests.models.binding import bind_text
from tests.models.files import (
    LLAVA,
    STABLE_DIFFUSION,
    VIT,
    write_checkpoint,
    write_pipeline,
    write_tensors,
)
from tests.tiny.common import skip_before

pytestmark = pytest.mark.models

CONFIGS: dict[str, dict[str, Any]] = {
    "llava": LLAVA,
    "vit": VIT,
    "detr": {"architectures": ["DetrForObjectDetection"], "model_type": "detr"},
    "owl": {
        "architectures": ["Owlv2ForObjectDetection"],
        "model_type": "owlv2",
        "text_config": {},
        "vision_config": {},
    },
    "timm": {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {"input_size": [3, 32, 32]}},
    "blip": {"architectures": ["BlipForConditionalGeneration"], "model_type": "blip"},
    **{
        name.lower(): {
            "architectures": [f"{name}ForConditionalGeneration"],
            "model_type": name.lower(),
            "vq_config": {},
        }
        for name in ("Janus", "Emu3")
    },
}

PIPELINES = {
    "stable-diffusion": "StableDiffusionPipeline",
    "flux": "FluxPipeline",
    "pix2pix": "StableDiffusionInstructPix2PixPipeline",
}

OF_TEXTS = "allow_pickle=false&variant=fp16&trust_remote_code=true&tokenizer={folders}/llava"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each name, and LoRA weights of a pipeline in `lora/`."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in CONFIGS.items():
        own = write_checkpoint(folder / name, config)
        if name != "blip":
            (own / "chat_template.jinja").write_text("{{ messages }}")
            for file in ("tokenizer.json", "processor_config.json"):
                (own / file).write_text("{}")
    for name, kind in PIPELINES.items():
        checker = {} if name == "flux" else {"safety_checker": [None, None]}
        index = {key: own for key, own in STABLE_DIFFUSION.items() if key != "safety_checker"}
        write_pipeline(folder / name, {**index, **checker, "_class_name": kind})
    shapes = {"unet.q.lora_A.weight": (4, 8), "unet.q.lora_B.weight": (8, 4)}
    write_tensors(folder / "lora" / "pytorch_lora_weights.safetensors", shapes)
    write_tensors(folder / "weights.safetensors", {"w": (1,)})
    (folder / "inception-2015-12-05.pt").write_bytes(b"weights")
    return folder


SCHEMES = {
    "openai": "openai:m?revision=1&",
    "serve": f"serve:{{folders}}/llava?python={sys.executable}&",
    "unicom": "unicom:{folders}/weights.safetensors?",
    "cleanfid": "cleanfid:?weights={folders}/inception-2015-12-05.pt&",
    "shapes": "shapes:?",
}
"""How specs begin that are no folder's."""

REFUSED: dict[tuple[str, str], dict[str, str]] = {
    # -- every checkpoint of transformers: where its parts lie, and how it is divided --------------
    ("describer", "llava"): {
        "adapters=x,x&weights=1": "one for each of the 2 adapters, got '1'",
        "adapters=x&weights=nan": "finite numbers",
        "weights=1": "weights are those of adapters",
        "adapters=x,": "folders or hub ids with commas",
        "merge=false": "merge is for adapters",
        "base={folders}/blip": "is a whole model",
        "revision=main": "revision is for hub ids",
        "device_map=even": "device_map must be auto, balanced, balanced_low_0, sequential, got",
        "device_map=auto&device=cuda:1": "leave out device=cuda:1",
        "dtype=int8": "dtype must be auto, float32",
        "device=gpu": "device must be auto",
        "batch_size=0": "batch_size must be",
        "backend=cv2": "backend must be pil or torchvision",
        # -- what writes texts ---------------------------------------------------------------------
        "max_tokens=8": "unknown parameter .* 'max_tokens'. Did you mean 'max_new_tokens'",
        "unet=x": "unknown parameter .* 'unet'",
        "max_new_tokens=0": "max_new_tokens must be at least 1",
        "min_new_tokens=9&max_new_tokens=8": "above max_new_tokens",
        "temperature=0.7": "temperature acts on sampling only: add do_sample=true",
        "top_p=0.9": "top_p acts on sampling only",
        "do_sample=true&temperature=0": "temperature=0 is greedy",
        "do_sample=true&temperature=nan": "temperature must be a number, at least 0",
        "do_sample=true&top_p=1.5": "top_p must be a number, above 0 and at most 1",
        "prompt_template={{prompt}}": "this one has its own",
    },
    ("describer", "blip"): {"system_prompt=x": "system_prompt needs a chat template"},
    ("judge", "llava"): {
        "prompt=gpt": "prompt must be criteria, letters, opening-gpt",
        "max_pixels=0": "at least 1",
        "temperature=1": "unknown",
    },
    ("judge", "blip"): {"device=cpu": "cannot be the judge: .* no chat template"},
    ("vqa", "blip"): {"device=cpu": "cannot be the VQA model: .* no chat template"},
    # -- encoders and detectors --------------------------------------------------------------------
    ("encoder", "vit"): {"pooling=max": "pooling must be auto, cls, pooler, mean, got 'max'"},
    ("encoder", "timm"): {
        "pooling=cls": "unknown parameter for the encoder timm vit_tiny_patch16_224",
        "crop_pct=0": "crop_pct must be a number, above 0 and at most 1, got 0.0",
        "crop_pct=nan": "crop_pct must be a number, .* got nan",
        "interpolation=nearest": "interpolation must be bilinear or bicubic, got 'nearest'",
    },
    ("encoder", "unicom"): {"dtype=half": "dtype must be auto"},
    ("encoder", "cleanfid"): {"mode=clean": "unknown parameter for the encoder clean-fid"},
    ("detector", "owl"): {
        "threshold=1.1": "threshold must be a number, at least 0 and at most 1, got 1.1",
        "max_per_class=3": "unknown parameter for the detector Owlv2.*'max_per_class'",
    },
    ("detector", "detr"): {"max_per_class=-1": "max_per_class must be at least 1"},
    # -- servers -----------------------------------------------------------------------------------
    ("describer", "openai"): {
        "weights=x": "give weights=FOLDER .* or revision=NAME.* one of them",
        "quality=hd": "unknown parameter .* 'quality'",
        "concurrency=0": "concurrency must be at least 1",
        "timeout=0": "timeout must be a number, above 0",
        "retries=-1": "retries must be at least 0",
        "patience=nan": "patience must be a number, at least 0",
        "temperature=-1": "temperature must be a number, at least 0",
        "reasoning=drop": "reasoning must be strip or keep, got 'drop'",
        "base_url=localhost:8000": "base_url must begin with http",
    },
    ("judge", "openai"): {
        "prompt=opening": "prompt must be criteria, letters, opening-gpt, opening-intjudge, got",
        "max_pixels=0": "max_pixels must be at least 1, got 0",
    },
    ("vqa", "openai"): {
        "temperature=1": "temperature of a VQA model must be 0",
        "prompt=letters": "unknown parameter for the vqa over the API 'prompt'",
    },
    ("generator", "openai"): {"height=9": "height and width go together"},
    ("describer", "serve"): {
        "engine=vlm": "unknown engine 'vlm'. Did you mean 'vllm'.*sglang, transf",
        "base_url=http://x/v1": "unknown parameter .* 'base_url'",
        "engine=transformers&max_num_seqs=9": "unknown parameter for transformers",
        "start_timeout=0": "start_timeout must be a number, above 0",
        "devices=$HOME": "devices must be numbers or names",
        "gpu_memory_utilization=2": "at most 1, got 2",
        "tensor_parallel_size=0": "tensor_parallel_size must be at least 1",
        "engine_args=--x 'y": "cannot be read as a shell reads it",
        "engine_args=--trust-remote-code": "--trust-remote-code is set by the run",
        "engine_args=--trust-rem": "--trust-rem is set by the run",
        "engine_args=--port=1": "--port is set by the run",
        "engine_args=--tensor_parallel_size 5": "or by a parameter of the spec",
        "engine_args=--tokenizer other": "no fingerprint would cover",
        "engine_args=--lora-modules a=/x": "no fingerprint would cover",
        "engine_args=--some-config /etc/passwd": "names /etc/passwd, a file",
    },
    # -- the rule-based world ----------------------------------------------------------------------
    ("describer generator", "shapes"): {
        "mis=0.1": "unknown parameter for the shapes .* 'mis'.*'miss'",
        "miss=1.5": "miss is a probability in .0, 1., got 1.5",
        "swap=nan": "swap is a probability in .0, 1., got nan",
    },
    ("encoder", "shapes"): {"miss=0.1": "unknown parameter for the shapes encoder 'miss'"},
    ("interleaver", "shapes"): {"flip=.1": "unknown parameter for the shapes interleaver 'flip'"},
    ("writer", "shapes"): {"no_image=.1": "unknown parameter for the shapes writer 'no_image'"},
    ("judge", "shapes"): {"flip=2": "flip is a probability in .0, 1., got 2.0"},
    ("vqa", "shapes"): {"yes=2": "yes is a probability in .0, 1., got 2.0"},
    # -- unified models, in either role ------------------------------------------------------------
    ("describer generator", "janus"): {
        "guidence_scale=3": "'guidence_scale'.*guidance_scale",
        "image_area=4096": "'image_area'.*image_temperature",
        "num_inference_steps=3": "JanusForConditionalGeneration 'num_inference_steps'",
        "guidance_scale=0.5": "guidance_scale must be a number, at least 1",
        "image_top_k=4&image_do_sample=false": "image_top_k acts on sampling only",
        "image_temperature=0": "image_temperature must be a number, above 0",
        "image_top_p=2": "image_top_p must be a number, above 0",
        "image_batch_size=0": "image_batch_size must be at least 1",
        "top_p=0.5": "top_p acts on sampling only: add do_sample=true",
    },
    ("describer generator", "emu3"): {"image_ratio=wide": "image_ratio must be width:height"},
    # -- pipelines ---------------------------------------------------------------------------------
    ("generator", "stable-diffusion"): {
        "steps=3": "unknown parameter for the generator StableDiffusionPipeline 'steps'",
        "backend=pil": "unknown parameter .* 'backend'",
        "height=0": "height must be at least 1, got 0",
        "guidance_scale=nan": "guidance_scale must be a number, finite, got nan",
        "batch_size=0": "batch_size must be at least 1",
        "dtype=int8": "dtype must be auto, float32",
        "device=tpu": "device must be auto, cpu",
        "lora_scale=1": "lora_scale without LoRA weights",
        "fuse=false": "fuse without LoRA weights",
        "lora={folders}/lora&lora_scale=1,2": "2 numbers for 1 LoRA weights",
        "lora={folders}/lora&lora_scale=strong": "numbers separated by commas, got 'strong'",
        "lora={folders}/lora&lora_scale=nan": "finite numbers",
        "lora=x,": "lora='x,' has an empty place in its list",
        "offload=model": "offload=model moves parts of a pipeline to an accelerator",
    },
    ("generator", "flux"): {"safety_checker=false": "no safety_checker"},
    ("editor", "flux"): {
        "strength=0": "strength must be a number, above 0 and at most 1, got 0.0",
        "strength=1.5": "at most 1",
        "height=32": "height and width go together",
    },
    ("editor", "pix2pix"): {
        "image_guidance_scale=0.5": "image_guidance_scale must be a number, at least 1"
    },
}


@pytest.mark.parametrize(
    ("role", "name", "query", "words"),
    [
        (role, name, query, words)
        for (roles, name), rows in REFUSED.items()
        for query, words in rows.items()
        for role in roles.split()
    ],
)
def test_a_wrong_parameter_is_refused_by_name_at_binding(
    folders: Path, role: RoleName, name: str, query: str, words: str
) -> None:
    """One that is unknown, out of range or without effect costs no loading, and is not dropped in
    silence: the message names it, and what would be right.
    """
    if name in ("janus", "emu3"):
        skip_before("unified models", "transformers", "5.0")
    text = SCHEMES.get(name, f"{{folders}}/{name}?") + query
    with pytest.raises(SpecError, match=words) as raised:
        bind_text(text.format(folders=folders), role)
    assert "\n" not in str(raised.value)
    assert repr(text.format(folders=folders)) in str(raised.value)


GENERATE = run_path(str(Path(__file__).parents[2] / "docs" / "generate.py"))

DOCUMENTED: dict[str, type[Any]] = {
    name: GENERATE["_class"](place) for name, place in GENERATE["_ADAPTERS"].items()
}
"""The classes of parameters that the tables of the reference are written from."""


@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_is_documented_is_read_and_values_of_other_kinds_are_refused(name: str) -> None:
    """Each parameter takes its default as a text; what is refused is named, with what is meant."""
    kind, hints = DOCUMENTED[name], get_type_hints(DOCUMENTED[name])
    needed = {"revision": "1"} if name == "server" else {}
    own = {field.name: field for field in dataclasses.fields(kind) if field.init}

    def parse(**params: str) -> Any:
        return parse_params(ModelSpec("m", "", "m", needed | params), kind, "a test")

    for parameter in own.keys() - needed.keys():
        assert parse(**{parameter: str(own[parameter].default)}) == parse()
        hint = hints[parameter]
        if types.NoneType in get_args(hint):
            (hint,) = set(get_args(hint)) - {types.NoneType}
        if hint is not str:
            with pytest.raises(SpecError, match=f"'{parameter}' must be {hint.__name__}, got 'x'"):
                parse(**{parameter: "x"})
        wrong = f"unknown parameter for a test '{parameter}s'. Did you mean '{parameter}'"
        with pytest.raises(SpecError, match=wrong):
            parse(**{f"{parameter}s": "1"})


@pytest.mark.parametrize(
    ("role", "name", "query"),
    [
        *((role, "llava", OF_TEXTS) for role in ("describer", "writer", "judge", "vqa")),
        *((role, "janus", OF_TEXTS) for role in ("describer", "writer", "generator")),
        ("interleaver", "janus", OF_TEXTS),
        ("encoder", "vit", OF_TEXTS),
        ("detector", "detr", f"{OF_TEXTS}&processor={{folders}}/llava"),
        ("generator", "flux", "allow_pickle=false&variant=fp16&unet={folders}/weights.safetensors"),
        ("editor", "flux", "trust_remote_code=false&lora={folders}/lora"),
    ],
)
def test_every_role_takes_the_source_options_of_its_library(
    folders: Path, role: RoleName, name: str, query: str
) -> None:
    """Which files are read is the checkpoint's matter, whatever role it plays."""
    if name == "janus":
        skip_before("unified models", "transformers", "5.0")
    bound = bind_text(f"{folders / name}?{query.format(folders=folders)}", role)
    assert (bound.role, len(bound.fingerprint)) == (role, 64)
