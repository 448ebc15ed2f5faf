"""Describers: any transformers image-text-to-text checkpoint, with a chat template or without.

Images go in batches, padded on the left. Describing is greedy unless the spec says do_sample=true;
then each image is a call of its own under its own seed, because transformers draws from the global
generator, and the tokens of a batch would depend on its neighbours.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint, read_json
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber, load_describer
from pytest_cepbench.models.load_plan import (
    Adapter,
    ImageTextParams,
    LoadPlan,
    check_at_least,
)
from pytest_cepbench.models.torch_runtime import is_out_of_memory, quiet, seeded

DEFAULT_MAX_NEW_TOKENS = 512
"""Room for a full and precise description; the longest that the papers' prompts ask for is a
paragraph. Applies where neither the spec nor the checkpoint says how long."""

# Where tokens are sampled and no setting is given: transformers' values, stated so that they enter
# keys.
_SAMPLING: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 50}

_GENERATION = (
    "max_new_tokens", "min_new_tokens", "num_beams", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", *_SAMPLING,
)  # fmt: skip

_NUMBERS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("temperature", lambda value: value >= 0, "a number from 0 upwards"),
    ("top_p", lambda value: 0 < value <= 1, "above 0 and at most 1"),
    ("repetition_penalty", lambda value: value > 0, "a number above 0"),
    ("length_penalty", lambda _: True, "a finite number"),
)


@dataclass(frozen=True)
class DescriberParams(ImageTextParams):
    """Parameters of a describer's spec, with those of `ImageTextParams`.

    system_prompt: goes before the prompt, for a checkpoint with a chat template.
    prompt_template: for a checkpoint without a chat template: the text that goes with the image,
        `{prompt}` standing for the suite's prompt. None gives the image alone (a captioner).
    do_sample: draw tokens from the seed instead of taking the likeliest (greedy, the default).
    max_new_tokens: None means the checkpoint's own limit, else `DEFAULT_MAX_NEW_TOKENS`. Where a
        checkpoint without a chat template has learned positions, no text is longer than these.
    The other generation parameters are transformers'; None leaves the checkpoint's own setting.
    temperature=0 is greedy; top_k=0 means no limit.
    Raises ValueError for values out of range and for sampling parameters without do_sample.
    """

    system_prompt: str | None = None
    prompt_template: str | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    do_sample: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    num_beams: int | None = None
    repetition_penalty: float | None = None
    length_penalty: float | None = None
    no_repeat_ngram_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "max_new_tokens", "num_beams")
        check_at_least(self, 0, "min_new_tokens", "top_k", "no_repeat_ngram_size")
        for name, valid, expected in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and valid(value)):
                msg = f"{name} must be {expected}, got {value}"
                raise ValueError(msg)
        if (self.min_new_tokens or 0) > (self.max_new_tokens or math.inf):
            least, most = self.min_new_tokens, self.max_new_tokens
            msg = f"min_new_tokens={least} is above max_new_tokens={most}"
            raise ValueError(msg)
        self._check_sampling()

    def _check_sampling(self) -> None:
        if self.do_sample and self.temperature == 0:
            msg = "temperature=0 is greedy: leave out do_sample=true, or give a temperature above 0"
            raise ValueError(msg)
        sampling = [n for n in _SAMPLING if getattr(self, n) is not None]
        if self.temperature == 0:
            sampling.remove("temperature")
        if sampling and not self.do_sample:
            msg = f"{sampling[0]} acts on sampling only: add do_sample=true, or leave it out"
            raise ValueError(msg)

    @property
    def seeded(self) -> bool:
        """Greedy describing does not depend on the seed."""
        return self.do_sample


def generation_settings(
    params: DescriberParams, stored: Mapping[str, Any], *, chat: bool
) -> dict[str, Any]:
    """The generation settings in force: the spec's, else those of the checkpoint's own
    generation_config.json, sampling settings only where tokens are sampled.

    A checkpoint's own do_sample does not count: describing is greedy unless the spec says
    otherwise. Its max_length counts for a captioner, whose text begins with one start token; where
    there is a chat template, max_length is the size of the context.
    """
    settings: dict[str, Any] = {"do_sample": params.do_sample}
    for name in _GENERATION:
        if name in _SAMPLING and not params.do_sample:
            continue
        value = getattr(params, name)
        if value is None:
            value = stored.get(name)
        if value is not None:
            settings[name] = value
    if params.do_sample:
        settings = _SAMPLING | settings
    length = stored.get("max_length")
    longest = DEFAULT_MAX_NEW_TOKENS if chat or not length else max(1, length - 1)
    settings.setdefault("max_new_tokens", longest)
    return settings


def has_chat_template(checkpoint: Checkpoint) -> bool:
    """True for a checkpoint with a chat template, in any of the files that transformers reads."""
    folder = checkpoint.path
    if checkpoint.config.get("model_type") == "vision-encoder-decoder":
        return False  # its decoder is a plain language model that never sees the prompt
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    configs = (folder / name for name in ("processor_config.json", "tokenizer_config.json"))
    return any(path.is_file() and bool(read_json(path).get("chat_template")) for path in configs)


def stored_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """The settings of a checkpoint's own generation_config.json; empty where it has none."""
    path = checkpoint.path / "generation_config.json"
    return read_json(path) if path.is_file() else {}


def _check_prompting(plan: LoadPlan[DescriberParams]) -> None:
    """Raise SpecError for a prompt that the checkpoint has no use for."""
    spec, params, chat = plan.spec, plan.params, has_chat_template(plan.checkpoint)
    if params.system_prompt is not None and not chat:
        msg = (
            f"model spec {spec.text!r}: system_prompt needs a chat template, and the checkpoint "
            "has none. Say with prompt_template which text goes with the image"
        )
        raise SpecError(msg)
    if params.prompt_template is not None and chat:
        msg = (
            f"model spec {spec.text!r}: prompt_template is for checkpoints without a chat "
            "template, and this one has its own. Leave it out"
        )
        raise SpecError(msg)


def _settings(plan: LoadPlan[DescriberParams]) -> dict[str, Any]:
    chat = has_chat_template(plan.checkpoint)
    return generation_settings(plan.params, stored_settings(plan.checkpoint), chat=chat)


def _decisive(plan: LoadPlan[DescriberParams]) -> dict[str, Any]:
    params = plan.params
    return {
        "dtype": plan.dtype,
        "attn_implementation": params.attn_implementation,
        "backend": params.backend,
        "system_prompt": params.system_prompt,
        "prompt_template": params.prompt_template,
        **_settings(plan),
    }


def _load(plan: LoadPlan[DescriberParams]) -> TransformersDescriber:
    chat = has_chat_template(plan.checkpoint)
    return TransformersDescriber(plan, load_describer(plan, _settings(plan), chat=chat))


class TransformersDescriber:
    """A loaded describer: holds the model, its tokenizer and its image processor."""

    def __init__(self, plan: LoadPlan[DescriberParams], loaded: LoadedDescriber) -> None:
        self._plan = plan
        self._loaded = loaded
        self._chat = loaded.chat_template is not None

    @property
    def loaded(self) -> LoadedDescriber:
        """The model and what prepares its inputs."""
        return self._loaded

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._loaded.model.to(device)

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """Describe each image; one text per image, special tokens and outer spaces taken off.

        Raises ModelError when the checkpoint's parts do not fit together or it needs a text that it
        was not given.
        """
        if not self._plan.params.do_sample:
            return self._generate(images, prompt)
        texts = []
        for image, seed in zip(images, seeds, strict=True):
            with seeded(self._loaded.model.device, seed):
                texts += self._generate([image], prompt)
        return texts

    def _generate(self, images: Sequence[Image.Image], prompt: str) -> list[str]:
        import torch

        try:
            with quiet(), torch.inference_mode():
                inputs = self._inputs(images, prompt)
                self._check_vocabulary(inputs)
                output = self._loaded.model.generate(
                    **inputs, generation_config=self._generation_config(inputs)
                )
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            # What libraries raise when an image comes without the text that its model needs.
            if self._chat or self._plan.params.prompt_template or is_out_of_memory(error):
                raise
            raise ModelError(self._no_template(error)) from error
        texts: list[str] = self._loaded.tokenizer.batch_decode(
            self._new_tokens(inputs, output), skip_special_tokens=True
        )
        return [text.strip() for text in texts]

    def _inputs(self, images: Sequence[Image.Image], prompt: str) -> Any:
        loaded, template = self._loaded, self._plan.params.prompt_template
        if self._chat:
            inputs = loaded.processor.apply_chat_template(
                [self._conversation(image, prompt) for image in images],
                chat_template=loaded.chat_template,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
                processor_kwargs={"padding": True},
            )
        elif template is not None and loaded.processor is not None:
            text = template.replace("{prompt}", prompt)
            inputs = loaded.processor(
                images=[[image] for image in images],
                text=[text] * len(images),
                padding=True,
                return_tensors="pt",
            )
        else:
            process = loaded.processor or loaded.image_processor
            inputs = process(images=list(images), return_tensors="pt")
        return inputs.to(loaded.model.device, loaded.model.dtype)

    def _conversation(self, image: Image.Image, prompt: str) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = [{"type": "image", "image": image}]
        if prompt:
            content.append({"type": "text", "text": prompt})
        messages = [{"role": "user", "content": content}]
        system = self._plan.params.system_prompt
        if system:
            text = [{"type": "text", "text": system}]
            messages.insert(0, {"role": "system", "content": text})
        return messages

    def _check_vocabulary(self, inputs: Any) -> None:
        # Out of range, the lookup dies with an IndexError on a CPU and takes the process's whole
        # CUDA context with it on an accelerator.
        loaded = self._loaded
        if "input_ids" not in inputs or loaded.embeddings is None:
            return
        ids = inputs["input_ids"]
        # Several models keep their image token outside the vocabulary and never look it up.
        if loaded.image_token is not None:
            ids = ids[ids != loaded.image_token]
        highest = int(ids.max())
        if highest >= loaded.embeddings:
            msg = (
                f"{self._plan.checkpoint.path}: the tokenizer gives token {highest}, and the "
                f"weights know {loaded.embeddings} tokens: the tokenizer is not the one of these "
                "weights"
            )
            raise ModelError(msg)

    def _generation_config(self, inputs: Any) -> Any:
        """The settings in force, shortened where learned positions end.

        Only without a chat template: there the text is the same for every image, so a limit that
        depends on its length does not make a description depend on its batch.
        """
        loaded = self._loaded
        config = copy.deepcopy(loaded.generation_config)
        if not self._chat and loaded.positions is not None:
            used = inputs["input_ids"].shape[1] if "input_ids" in inputs else 1
            config.max_new_tokens = max(1, min(config.max_new_tokens, loaded.positions - used))
        return config

    def _new_tokens(self, inputs: Any, output: Any) -> list[Any]:
        """The tokens after the prompt; some models repeat it in front, others do not."""
        if "input_ids" not in inputs or self._loaded.keeps_prompt:
            return list(output)
        length = inputs["input_ids"].shape[1]
        return [
            row[length:] if row[:length].equal(prompt) else row
            for row, prompt in zip(output, inputs["input_ids"], strict=True)
        ]

    def _no_template(self, error: Exception) -> str:
        return (
            f"{self._plan.checkpoint.path}: {self._plan.checkpoint.what} has no chat template, so "
            f"it was given the image alone, and failed: {type(error).__name__}: {error}. If it "
            "needs a "
            "text, add prompt_template to its spec, with {prompt} where the suite's prompt goes "
            "and the model's own image token where it wants one"
        )


ADAPTER = Adapter(
    "transformers-describer/1",
    ("torch", "transformers"),
    DescriberParams,
    _load,
    check=_check_prompting,
    decisive=_decisive,
)
