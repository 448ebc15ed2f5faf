"""Loading a text model: the model, what prepares its inputs, and the facts that their use needs."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_cepbench.errors import CheckpointError, MissingDependencyError
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.loading import (
    from_pretrained,
    loading,
    refuse_missing,
    refuse_unused,
    take_weights,
)
from pytest_cepbench.models.checkpoints.placement import input_device
from pytest_cepbench.models.checkpoints.tokenizer_checks import (
    check_image_token,
    check_tokens,
    check_vocabulary,
    embedded_tokens,
    image_token,
    media_tokens,
)
from pytest_cepbench.models.text_model.parameters import TextModelParams
from pytest_cepbench.models.torch_runtime import backend_option

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

_COUNTING = ("patch_size", "vision_feature_select_strategy", "num_image_tokens")
"""Settings by which processors count the tokens of an image."""

_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")


@dataclass(frozen=True)
class LoadedTextModel:
    """The parts of a loaded image-text-to-text model.

    processor: joins image and text; None where the checkpoint has an image processor alone.
    chat_template: the template's text, or None.
    generation_config: transformers' object with the settings in force.
    embeddings: tokens that the weights know; None where the model does not say.
    image_token: the id that stands for the image, None where there is none.
    positions: longest text in tokens where positions are learned, else None.
    keeps_prompt: whether a text given with the image is part of the text (a caption that the model
        continues).
    """

    model: Any
    processor: Any
    image_processor: Any
    tokenizer: Any
    chat_template: str | None
    generation_config: Any
    embeddings: int | None
    image_token: int | None
    positions: int | None
    keeps_prompt: bool

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
    """A message of texts and images, behind a system prompt where there is one."""
    turns = [("system", [system])] if system else []
    return [
        {
            "role": role,
            "content": [
                {"type": "text", "text": part}
                if isinstance(part, str)
                else {"type": "image", "image": part}
                for part in parts
            ],
        }
        for role, parts in [*turns, ("user", pieces)]
    ]


def any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Matches each of some tokens as it is spelled, and no other text."""
    # The longest first, where one token begins another.
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def load_text_model(
    plan: LoadPlan[P], settings: Mapping[str, Any], *, chat: bool
) -> LoadedTextModel:
    """Load an image-text-to-text checkpoint onto its device.

    settings: the generation settings in force. chat: whether the checkpoint has a chat template.

    Raises CheckpointError for parts that are missing, damaged or do not fit, ModelError when the
    device cannot be used or is too small, MissingDependencyError for a package that it needs.
    """
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

    with loading(plan):
        model = _load_model(plan)
        with plan.checkpoint.preparation_folder() as folder:
            processor, image_processor, tokenizer = _read_processors(plan, model, folder)
        _check_fit(plan, model, processor, tokenizer)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if not model.config.is_encoder_decoder:
            # Padded on the right, a decoder would write on after the padding.
            tokenizer.padding_side = "left"
        config = generation_config(model, tokenizer, settings)
    take_weights(plan.checkpoint, {"": model})
    return LoadedTextModel(
        model=model,
        processor=processor,
        image_processor=image_processor,
        tokenizer=tokenizer,
        chat_template=_chat_template(processor, tokenizer) if chat else None,
        generation_config=config,
        embeddings=embedded_tokens(model),
        image_token=image_token(model.config),
        positions=_positions(model),
        keeps_prompt=model.config.model_type == "blip",
    )


def _load_model(plan: LoadPlan[P]) -> Any:
    from transformers import AutoModelForImageTextToText

    params = plan.params
    options: dict[str, Any] = {"trust_remote_code": plan.checkpoint.options.trust_remote_code}
    if (variant := plan.checkpoint.options.variant) is not None:
        options["variant"] = variant
    model, info = from_pretrained(AutoModelForImageTextToText, plan, **options)
    missing = {name for name in info["missing_keys"] if not name.endswith("position_ids")}
    if model.config.model_type == "vision-encoder-decoder":
        # It reads the encoder's last hidden state; a pooler is made and never used.
        missing = {name for name in missing if not name.startswith("encoder.pooler.")}
    refuse_missing(plan.checkpoint, missing)
    if not params.allow_unused:
        refuse_unused(plan.checkpoint, info["unexpected_keys"])
    return model


def _read_processors(plan: LoadPlan[P], model: Any, path: Path) -> tuple[Any, Any, Any]:
    """Processor (or None), image processor, tokenizer. path: the folder that holds their files."""
    from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer

    options = {"trust_remote_code": plan.checkpoint.options.trust_remote_code}
    backend = backend_option(plan.params.backend)
    if model.config.model_type == "vision-encoder-decoder":
        # These were saved as a tokenizer and an image processor, which no processor class joins.
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
        images = AutoImageProcessor.from_pretrained(path, **backend, **options)
        return None, images, tokenizer
    try:
        processor = AutoProcessor.from_pretrained(path, **options)
    except (ImportError, ValueError, OSError) as error:
        _refuse_without_torchvision(plan, error)
        if not any((path / name).is_file() for name in _PROCESSOR_FILES):
            raise CheckpointError(_no_processor(plan, "none")) from error
        raise
    if not (hasattr(processor, "image_processor") and hasattr(processor, "tokenizer")):
        _refuse_without_torchvision(plan, None)
        raise CheckpointError(_no_processor(plan, f"a {type(processor).__name__}"))
    processor.image_processor = AutoImageProcessor.from_pretrained(path, **backend, **options)
    return processor, processor.image_processor, processor.tokenizer


def _no_processor(plan: LoadPlan[P], present: str) -> str:
    return (
        f"{plan.checkpoint.path}: expected a processor of images and texts, found {present}. Save "
        "the model's processor into the folder too (processor.save_pretrained)"
    )


def _check_fit(plan: LoadPlan[P], model: Any, processor: Any, tokenizer: Any) -> None:
    """Raise CheckpointError where the tokenizer cannot be the one of the weights."""
    path = plan.checkpoint.tokenizer_folder
    check_vocabulary(path, type(tokenizer).__name__)
    _check_counting(plan, model.config, processor)
    check_image_token(path, processor, model.config)
    check_tokens(path, tokenizer, model, media_tokens(model.config))


def _check_counting(plan: LoadPlan[P], config: Any, processor: Any) -> None:
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
    file = plan.checkpoint.preparation_file("processor_config.json")
    raise CheckpointError(
        f"{file}: no {' and no '.join(lacking)}, by which a {type(processor).__name__} counts the "
        f"tokens of an image. Add what the model was made with; its config.json says "
        f"{json.dumps(known)}"
    )


def _refuse_without_torchvision(plan: LoadPlan[P], error: Exception | None) -> None:
    # Qwen2-VL's and SmolVLM's processors hold a video processor, which exists with torchvision
    # alone; transformers then speaks of image tokens or hands back a bare tokenizer.
    if util.find_spec("torchvision") is None:
        raise MissingDependencyError(
            f"{plan.checkpoint.path}: the processor of {plan.checkpoint.what} could not be made, "
            "and torchvision, which several need, is not installed. Install the torchvision "
            "release that belongs to the installed torch"
        ) from error


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


def _chat_template(processor: Any, tokenizer: Any) -> str:
    template = getattr(processor, "chat_template", None) or tokenizer.chat_template
    # Several templates in one checkpoint come by name.
    return str(template["default"] if isinstance(template, dict) else template)


def _positions(model: Any) -> int | None:
    """Where learned positions end; rotary ones, which chat models have, end nowhere hard."""
    config = model.config
    text = getattr(config, "decoder", None) or config.get_text_config(decoder=True)
    for name in ("n_positions", "max_position_embeddings"):
        value = getattr(text, name, None)
        if value is not None:
            return int(value)
    return None
