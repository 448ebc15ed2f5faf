"""Loading a text model: the model, what prepares its inputs, and the facts that their use needs."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from PIL import Image

from pytest_cepbench.errors import CheckpointError, MissingDependencyError
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, has_processor
from pytest_cepbench.models.checkpoints.format_detection import architecture_of
from pytest_cepbench.models.checkpoints.loaded_checks import (
    check_image_token,
    check_tokens,
    check_vocabulary,
    media_tokens,
    refuse_missing,
    refuse_unused,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import (
    explained,
    from_pretrained,
    input_device,
    loading,
)
from pytest_cepbench.models.sounds.feature_extractor import SoundReader, Wave, load_reader
from pytest_cepbench.models.text_model.parameters import DAY, TextModelParams, has_chat_template
from pytest_cepbench.models.torch_runtime import backend_option, quiet

if TYPE_CHECKING:
    import torch

P = TypeVar("P", bound=TextModelParams)

Conversation = list[dict[str, Any]]
"""Turns as chat templates of transformers take them."""

_TEXTS_ALONE: Mapping[str, Any] = {
    "return_dict_in_generate": False,
    "num_return_sequences": 1,
    "token_healing": False,
    "is_assistant": False,
    "prompt_lookup_num_tokens": None,
    "assistant_early_exit": None,
    "use_mtp": False,
    "max_time": None,
}
"""Settings of a generation_config.json that are not followed: `generate` would return more than the
prompt and one text of each input, or change the prompt, take one input at a time, or end a text by
the clock. What serves speed alone goes with them."""

_PROBE = "describe"

_TODAY = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
"""How a chat template asks for the day: each one would be another prompt."""

_COUNTING = ("patch_size", "vision_feature_select_strategy", "num_image_tokens")
"""Settings by which processors count the tokens of an image."""


@dataclass(frozen=True)
class LoadedTextModel:
    """The parts of a loaded image-text-to-text model.

    processor: joins image and text; None where the checkpoint has an image processor alone.
    chat_template: the template's text, or None.
    generation_config: transformers' object with the settings in force.
    positions: tokens of the longest text that it was made for, which where positions are learned
        is the longest there can be; None where its configuration does not say.
    sounds: what it reads of sounds; None where it reads none.
    """

    model: Any
    processor: Any
    image_processor: Any
    tokenizer: Any
    chat_template: str | None
    generation_config: Any
    positions: int | None
    sounds: SoundReader | None = None

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        return input_device(self.model)

    def chat_inputs(self, conversations: Sequence[Conversation]) -> Any:
        """What the model reads of conversations, by its chat template, padded on the left."""
        return self.processor.apply_chat_template(
            list(conversations),
            chat_template=self.chat_template,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
        )

    def sound_inputs(self, waves: Sequence[Wave], prompt: str, system: str) -> Any:
        """What the model reads of waves: by its chat template with a prompt, else of them alone."""
        assert self.sounds is not None
        if self.chat_template is None:
            return self.sounds.features(waves)
        asked = [[wave, prompt] if prompt else [wave] for wave in waves]
        # Before transformers 4.55 its own way through the template needs librosa.
        return self.processor(
            text=[self.chat_text(conversation(pieces, system)) for pieces in asked],
            audio=list(waves),
            return_tensors="pt",
            padding=True,
        )

    def chat_text(self, conversation: Conversation) -> str:
        """A conversation as the chat template writes it, before it is made tokens."""
        text: str = self.processor.apply_chat_template(
            conversation,
            chat_template=self.chat_template,
            add_generation_prompt=True,
            tokenize=False,
        )
        return text


def conversation(pieces: Sequence[Any], system: str = "") -> Conversation:
    """A message of texts, images and waves, behind a system prompt where there is one."""
    kinds = {str: "text", np.ndarray: "audio"}
    turns = [("system", [system])] if system else []
    return [
        {
            "role": role,
            "content": [
                {"type": (kind := kinds.get(type(part), "image")), kind: part} for part in parts
            ],
        }
        for role, parts in [*turns, ("user", pieces)]
    ]


def _written_day(asked: re.Match[str]) -> str:
    return f"{asked[1]}{DAY.strftime(asked[2])}{asked[1]}"


def any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Matches each of some tokens as it is spelled, and no other text."""
    # The longest first, where one token begins another.
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def load_text_model(plan: LoadPlan[P], settings: Mapping[str, Any]) -> LoadedTextModel:
    """Load an image-text-to-text checkpoint, or one that writes of sounds, onto its device.

    settings: the generation settings in force.

    Raises CheckpointError for parts that are missing, damaged or do not fit, ModelError when the
    device cannot be used or is too small, MissingDependencyError for a package that it needs.
    """
    import transformers

    checkpoint, chat = plan.checkpoint, has_chat_template(plan.checkpoint)
    model_class: Any = transformers.AutoModelForImageTextToText
    name = architecture_of(checkpoint.config)
    if "image" not in checkpoint.reads:
        # The auto class of such models was another one in each of several releases.
        model_class = getattr(transformers, name, transformers.AutoModelForSpeechSeq2Seq)
    elif checkpoint.config.get("model_type") == "phi4_multimodal":
        # transformers lists it among the models of texts.
        model_class = getattr(transformers, name, model_class)
    with loading(plan):
        model, info = from_pretrained(model_class, plan)
        missing = {name for name in info["missing_keys"] if not name.endswith("position_ids")}
        if model.config.model_type == "vision-encoder-decoder":
            # It reads the encoder's last hidden state; a pooler is made and never used.
            missing = {name for name in missing if not name.startswith("encoder.pooler.")}
        refuse_missing(checkpoint, missing)
        if not plan.params.allow_unused:
            refuse_unused(checkpoint, info["unexpected_keys"])
        with checkpoint.preparation_folder() as folder:
            processor, image_processor, tokenizer = _read_processors(plan, model, folder, chat=chat)
            sounds = None
            if "sound" in checkpoint.reads:
                sounds = load_reader(checkpoint, folder, model, processor)
        check_vocabulary(checkpoint.tokenizer_folder, type(tokenizer).__name__)
        _check_counting(checkpoint, model.config, processor)
        check_image_token(checkpoint.tokenizer_folder, processor, model.config)
        check_tokens(checkpoint.tokenizer_folder, tokenizer, model, media_tokens(model.config))
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if not model.config.is_encoder_decoder:
            # Padded on the right, a decoder would write on after the padding.
            tokenizer.padding_side = "left"
        config = generation_config(model, tokenizer, settings)
    take_weights(checkpoint, {"": model}, made_up=info["missing_keys"])
    template = getattr(processor, "chat_template", None) or tokenizer.chat_template
    if isinstance(template, dict):  # several in one checkpoint come by name
        if chat and "default" not in template:
            raise CheckpointError(
                f"{checkpoint.path}: of its chat templates ({', '.join(template)}) none is called "
                "default. Save the one that the model is asked by as chat_template.jinja"
            )
        template = template.get("default")
    # Rotary positions, which chat models have, end nowhere hard.
    text = getattr(model.config, "decoder", None) or model.config.get_text_config(decoder=True)
    names = ("n_positions", "max_position_embeddings", "max_target_positions")
    ends = (getattr(text, name, None) for name in names)
    positions = next((int(end) for end in ends if end is not None), None)
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    if positions is not None and (factor := rope.get("factor")):
        # Stretched (YaRN, say): the configuration states how many there were before, or after.
        before = rope.get("original_max_position_embeddings") or positions
        positions = max(positions, int(factor * before))
    if positions is not None and hasattr(model.generation_config, "no_timestamps_token_id"):
        positions -= 3  # Whisper begins with its language, its task, and that it writes no times
    loaded = LoadedTextModel(
        model=model,
        processor=processor,
        image_processor=image_processor,
        tokenizer=tokenizer,
        chat_template=_TODAY.sub(_written_day, str(template)) if chat else None,
        generation_config=config,
        positions=positions,
        sounds=sounds,
    )
    if chat:
        _check_template(checkpoint, loaded, "the text of a message", [_PROBE])
        # Not of a judge's own prompt: one that was trained to judge may need no instructions.
        if plan.params.system_prompt:
            check_system_prompt(checkpoint, loaded)
    return loaded


def check_system_prompt(checkpoint: Checkpoint, loaded: LoadedTextModel) -> None:
    """Warn of a chat template that does not show the model a system prompt that it is given."""
    with suppress(CheckpointError):  # it fails again where the model is asked
        _check_template(checkpoint, loaded, "the system prompt", ["say"], _PROBE)


def _check_template(
    checkpoint: Checkpoint,
    loaded: LoadedTextModel,
    what: str,
    texts: Sequence[str],
    system: str = "",
) -> None:
    """Warn of a chat template that leaves out one of two texts. Raises CheckpointError for one that
    fails.
    """
    pieces = [Image.new("RGB", (64, 64))] if "image" in checkpoint.reads else []
    with explained(checkpoint), quiet():  # a template is a program, which may raise
        text = loaded.chat_text(conversation([*pieces, *texts], system))
    if _PROBE not in text.casefold() or "'type':" in text:
        msg = (
            f"{checkpoint.path}: its chat template leaves out {what}, or writes it as Python "
            "code, so the model does not read what it is asked. A message's content is a list "
            "of parts here, as for other models of images"
        )
        warnings.warn(msg, stacklevel=3)


def _read_processors(
    plan: LoadPlan[P], model: Any, path: Path, *, chat: bool
) -> tuple[Any, Any, Any]:
    """Processor (or None), image processor (or None), tokenizer.

    path: the folder that holds their files. chat: whether there is a chat template.
    """
    from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer

    checkpoint, backend = plan.checkpoint, backend_option(plan.params.backend)
    options = checkpoint.options.code
    if model.config.model_type == "vision-encoder-decoder":
        # These were saved as a tokenizer and an image processor, which no processor class joins.
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
        images = AutoImageProcessor.from_pretrained(path, **backend, **options)
        return None, images, tokenizer
    if "image" not in checkpoint.reads:
        if not chat:
            return None, None, AutoTokenizer.from_pretrained(path, **options)
        processor = AutoProcessor.from_pretrained(path, **options)
        return processor, None, processor.tokenizer
    processor = None
    reason: Exception | None = None
    try:
        processor = AutoProcessor.from_pretrained(path, **options)
    except (ImportError, ValueError, OSError) as error:
        reason = error
    if not (hasattr(processor, "image_processor") and hasattr(processor, "tokenizer")):
        # Qwen2-VL's and SmolVLM's processors hold a video processor, which exists with torchvision
        # alone; transformers then speaks of image tokens or hands back a bare tokenizer.
        if util.find_spec("torchvision") is None:
            raise MissingDependencyError(
                f"{checkpoint.path}: the processor of {checkpoint.what} could not be made, "
                "and torchvision, which several need, is not installed. Install the torchvision "
                "release that belongs to the installed torch"
            ) from reason
        if reason is not None and has_processor(path):
            raise reason
        present = "none" if reason is not None else f"a {type(processor).__name__}"
        raise CheckpointError(
            f"{checkpoint.path}: expected a processor of images and texts, found {present}. Save "
            "the model's processor into the folder too (processor.save_pretrained)"
        ) from reason
    processor.image_processor = AutoImageProcessor.from_pretrained(path, **backend, **options)
    return processor, processor.image_processor, processor.tokenizer


def _check_counting(checkpoint: Checkpoint, config: Any, processor: Any) -> None:
    """Raise CheckpointError for a processor that cannot count the tokens of an image.

    Those saved before transformers counted them there (4.46) have no numbers for it.
    """
    lacking = [name for name in _COUNTING if getattr(processor, name, "") is None]
    if not lacking:
        return
    places = (config, getattr(config, "vision_config", None))
    known = {
        name: getattr(place, name) for name in lacking for place in places if hasattr(place, name)
    }
    file = checkpoint.preparation_file("processor_config.json")
    raise CheckpointError(
        f"{file}: no {' and no '.join(lacking)}, by which a {type(processor).__name__} counts the "
        f"tokens of an image. Add what the model was made with; its config.json says "
        f"{json.dumps(known)}"
    )


def generation_config(model: Any, tokenizer: Any, settings: Mapping[str, Any]) -> Any:
    """The model's own generation configuration, with the settings in force."""
    stored = model.generation_config
    # In the model's too: transformers takes from there what a call leaves out.
    for name, neutral in _TEXTS_ALONE.items():
        if hasattr(stored, name):
            setattr(stored, name, neutral)
    config = copy.deepcopy(stored)
    if not settings["do_sample"]:
        # Left in place they change nothing, and transformers warns about each of them.
        for name, neutral in (("temperature", 1.0), ("top_p", 1.0), ("top_k", 50)):
            setattr(config, name, neutral)
    for name, value in settings.items():
        setattr(config, name, value)
    config.max_length = None  # max_new_tokens says how long; with both given, transformers warns
    if config.pad_token_id is None:
        config.pad_token_id = tokenizer.pad_token_id
    return config
