"""Parameters of texts that an image-text-to-text checkpoint writes, and the settings in force."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.checkpoints import Checkpoint, read_json
from pytest_cepbench.models.load_plan import ImageTextParams, LoadPlan
from pytest_cepbench.models.model_spec import check_at_least, check_reasoning

# Where tokens are sampled and no setting is given: transformers' values, stated so that they enter
# keys.
_SAMPLING: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 50}

_GENERATION = (
    "max_new_tokens", "min_new_tokens", "num_beams", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size",
)  # fmt: skip

_NUMBERS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("temperature", lambda value: value >= 0, "a number from 0 upwards"),
    ("top_p", lambda value: 0 < value <= 1, "above 0 and at most 1"),
    ("repetition_penalty", lambda value: value > 0, "a number above 0"),
    ("length_penalty", lambda _: True, "a finite number"),
)


@dataclass(frozen=True)
class GenerationParams(ImageTextParams):
    """Parameters of a text by transformers' own `generate`, with those of `ImageTextParams`.

    do_sample: draw tokens from the seed instead of taking the likeliest (greedy, the default).
    temperature, top_p, top_k: of sampling, as in transformers; None leaves the checkpoint's own
        setting. temperature=0 is greedy; top_k=0 means no limit.
    reasoning: strip (reasoning is no part of the answer) or keep.
    system_prompt: goes before the prompt, for a checkpoint with a chat template.
    prompt_template: for a checkpoint without a chat template: the text that goes with the image,
        `{prompt}` standing for what the model is asked.
    max_new_tokens: None means the checkpoint's own limit, else the role's default. Where a
        checkpoint without a chat template has learned positions, no text is longer than these.
    The other parameters are transformers'; None leaves the checkpoint's own setting.
    Raises ValueError for values out of range and for sampling parameters without do_sample.
    """

    do_sample: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    reasoning: str = "strip"
    system_prompt: str | None = None
    prompt_template: str | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    num_beams: int | None = None
    repetition_penalty: float | None = None
    length_penalty: float | None = None
    no_repeat_ngram_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reasoning(self.reasoning)
        check_at_least(self, 0, "top_k")
        for name, valid, expected in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and valid(value)):
                raise ValueError(f"{name} must be {expected}, got {value}")
        self._check_sampling()
        check_at_least(self, 1, "max_new_tokens", "num_beams")
        check_at_least(self, 0, "min_new_tokens", "no_repeat_ngram_size")
        if (self.min_new_tokens or 0) > (self.max_new_tokens or math.inf):
            least, most = self.min_new_tokens, self.max_new_tokens
            raise ValueError(f"min_new_tokens={least} is above max_new_tokens={most}")

    def _check_sampling(self) -> None:
        if self.do_sample and self.temperature == 0:
            raise ValueError(
                "temperature=0 is greedy: leave out do_sample=true, or give a temperature above 0"
            )
        sampling = [n for n in _SAMPLING if getattr(self, n) is not None]
        if self.temperature == 0:
            sampling.remove("temperature")
        if sampling and not self.do_sample:
            raise ValueError(
                f"{sampling[0]} acts on sampling only: add do_sample=true, or leave it out"
            )

    @property
    def seeded(self) -> bool:
        """Greedy writing does not depend on the seed."""
        return self.do_sample


P = TypeVar("P", bound=GenerationParams)


def generation_settings(
    checkpoint: Checkpoint, params: GenerationParams, longest: int
) -> dict[str, Any]:
    """The generation settings in force: the spec's, else those of the checkpoint's own
    generation_config.json, sampling settings only where tokens are sampled.

    longest: new tokens where neither says how many.

    A checkpoint's own do_sample does not count: writing is greedy unless the spec says otherwise.
    Its max_length counts for a captioner, whose text begins with one start token; where there is a
    chat template, max_length is the size of the context.
    """
    stored, chat = stored_settings(checkpoint), has_chat_template(checkpoint)
    settings: dict[str, Any] = {"do_sample": params.do_sample}
    if params.do_sample:
        for name, default in _SAMPLING.items():
            choices = (getattr(params, name), stored.get(name), default)
            settings[name] = next(choice for choice in choices if choice is not None)
    for name in _GENERATION:
        value = getattr(params, name)
        if value is None:
            value = stored.get(name)
        if value is not None:
            settings[name] = value
    length = stored.get("max_length")
    settings.setdefault("max_new_tokens", longest if chat or not length else max(1, length - 1))
    return settings


def decisive_settings(plan: LoadPlan[P], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a text besides the checkpoint, for keys; settings: of generation, in force."""
    params = plan.params
    return {
        "dtype": plan.dtype,
        "attn_implementation": params.attn_implementation,
        "backend": params.backend,
        "system_prompt": params.system_prompt,
        "prompt_template": params.prompt_template,
        **({"reasoning": "keep"} if params.reasoning == "keep" else {}),
        **settings,
    }


def check_prompting(plan: LoadPlan[P]) -> None:
    """Raise SpecError for a prompt that the checkpoint has no use for."""
    spec, params, chat = plan.spec, plan.params, has_chat_template(plan.checkpoint)
    if params.system_prompt is not None and not chat:
        raise SpecError(
            f"model spec {spec.text!r}: system_prompt needs a chat template, and the checkpoint "
            "has none. Say with prompt_template which text goes with the image"
        )
    if params.prompt_template is not None and chat:
        raise SpecError(
            f"model spec {spec.text!r}: prompt_template is for checkpoints without a chat "
            "template, and this one has its own. Leave it out"
        )


def has_chat_template(checkpoint: Checkpoint) -> bool:
    """True for a checkpoint with a chat template, in any of the files that transformers reads."""
    if checkpoint.config.get("model_type") == "vision-encoder-decoder":
        return False  # its decoder is a plain language model that never sees the prompt
    templates = ("chat_template.jinja", "chat_template.json")
    if any(checkpoint.preparation_file(name).is_file() for name in templates):
        return True
    names = ("processor_config.json", "tokenizer_config.json")
    configs = [checkpoint.preparation_file(name) for name in names]
    return any(path.is_file() and bool(read_json(path).get("chat_template")) for path in configs)


def stored_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """The settings of a checkpoint's own generation_config.json; empty where it has none."""
    path = checkpoint.path / "generation_config.json"
    return read_json(path) if path.is_file() else {}
