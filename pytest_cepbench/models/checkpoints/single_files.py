"""Single files of weights: what each holds, by the names of its tensors, and how it is given.

Authors publish pipelines, and components of them, as one file in a layout of their own. diffusers
reads both, with the configuration of a pipeline of the same family beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.models.checkpoints.checkpoint_files import tensor_shapes

PIPELINE_SUFFIXES = (".safetensors", ".ckpt")
"""How files end that can hold a whole pipeline."""

COMPONENT_SUFFIX = ".safetensors"
"""How files end that can hold the weights of one component."""

_DENOISER = "model.diffusion_model."

_WHOLE = ("first_stage_model.", "cond_stage_model.", "conditioner.", "text_encoders.", "vae.")
"""How tensors of a whole pipeline's other parts begin, in the layouts of the authors."""

_FAMILIES = {
    "joint_blocks.37.": "stabilityai/stable-diffusion-3.5-large",
    "joint_blocks.": "stabilityai/stable-diffusion-3-medium-diffusers",
    "guidance_in.": "black-forest-labs/FLUX.1-dev",
    "double_blocks.": "black-forest-labs/FLUX.1-schnell",
    "conditioner.embedders.1.": "stabilityai/stable-diffusion-xl-base-1.0",
    "conditioner.embedders.0.": "stabilityai/stable-diffusion-xl-refiner-1.0",
    "cond_stage_model.model.": "stabilityai/stable-diffusion-2-1",
    "cond_stage_model.": "stable-diffusion-v1-5/stable-diffusion-v1-5",
}
"""What the beginning of a tensor's name, after its component's, tells of the family: a published
pipeline of that. The first that fits."""

TEXT_ENCODERS = (
    "cond_stage_model.transformer.", "conditioner.embedders.0.transformer.",
    "text_encoders.clip_l.transformer.", "text_encoders.clip_g.transformer.",
    "text_encoders.t5xxl.transformer.",
)  # fmt: skip
"""Before the names that transformers has for a text encoder's tensors."""

_CLIP = ("cond_stage_model.", "conditioner.embedders.", "text_encoders.clip_")

_T5 = ("text_encoders.t5xxl.",)


def describe_file(path: Path) -> str | None:
    """What a file of weights is and how it is given, for a message; None where that is unknown.

    Raises CheckpointError for safetensors that are not whole.
    """
    if path.suffix == ".gguf":
        return (
            f"{path}: GGUF is not read: give a folder that save_pretrained wrote, a pipeline in "
            f"one file ({' or '.join(PIPELINE_SUFFIXES)}) or a component in one "
            f"({COMPONENT_SUFFIX})"
        )
    if path.suffix == ".ckpt":
        return (
            f"{path}: pickled weights without a configuration. Of a whole pipeline: add "
            "?config=PIPELINE&allow_pickle=true, where PIPELINE is the folder or hub id of a "
            "pipeline of the same family, if you trust where they come from. Of a training with "
            "Lightning: load it in the training's own code and write the model inside with "
            "save_pretrained(FOLDER), then give FOLDER"
        )
    if path.suffix != ".safetensors":
        return None
    names = tensor_shapes(path)
    if any(name.startswith(_WHOLE) for name in names):
        family = _family(names)
        like = f" such as {family}" if family else ""
        return (
            f"{path}: a whole pipeline in one file, which is read with the configuration of its "
            f"family: add ?config=PIPELINE, the folder or hub id of a pipeline of diffusers{like}"
        )
    if any(name.startswith(_DENOISER) for name in names) or _family(names):
        component = "unet" if any("input_blocks." in name for name in names) else "transformer"
        return f'{path}: weights of one component: write "PIPELINE?{component}={path}"'
    return None


def _family(names: Collection[str]) -> str | None:
    bare = [name.removeprefix(_DENOISER) for name in names]
    for beginning, family in _FAMILIES.items():
        if any(name.startswith(beginning) for name in bare):
            return family
    return None


def supplied_components(path: Path, index: Mapping[str, Any]) -> tuple[str, ...]:
    """The components of a pipeline whose weights a single file holds, or that are not loaded.

    index: of the pipeline whose configuration goes with the file. Denoiser and autoencoder always
    come from the file; text encoders where it has them, else from the folder of the configuration.
    The safety checker is not loaded at all. In a pickled file, CLIP is taken to be there.
    """
    names = tensor_shapes(path) if path.suffix == ".safetensors" else _CLIP
    has_clip = any(name.startswith(_CLIP) for name in names)
    has_t5 = any(name.startswith(_T5) for name in names)
    supplied = []
    for component, value in index.items():
        if not isinstance(value, list) or len(value) != 2 or not value[0]:
            continue
        library, class_name = value
        own = library == "diffusers" and "Scheduler" not in str(class_name)
        clip = has_clip and str(class_name).startswith("CLIPTextModel")
        t5 = has_t5 and str(class_name).startswith("T5")
        if own or clip or t5 or component == "safety_checker":
            supplied.append(component)
    return tuple(supplied)
