"""The parameters of a describer's spec, and the generation settings that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.models.load_plan import CheckpointParams
from pytest_cepbench.models.torch_runtime import IMAGE_BACKENDS

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
class DescriberParams(CheckpointParams):
    """Parameters of a describer's spec, with those of `CheckpointParams`.

    variant: weights variant, such as fp16.
    trust_remote_code: run the checkpoint's Python files.
    allow_unused: leave out tensors that the architecture does not know, instead of refusing them.
    attn_implementation: eager, sdpa, flash_attention_2, ...; None leaves transformers' choice.
    backend: of the image processor, pil or torchvision. The two differ by a level of a pixel here
        and there, so one is pinned: Pillow's, which every installation has; a processor that comes
        in one form only is used in that form.
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

    variant: str | None = None
    trust_remote_code: bool = False
    allow_unused: bool = False
    attn_implementation: str | None = None
    backend: str = "pil"
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
        self._at_least("max_new_tokens", 1)
        self._at_least("min_new_tokens", 0)
        self._at_least("num_beams", 1)
        self._at_least("top_k", 0)
        self._at_least("no_repeat_ngram_size", 0)
        for name, valid, expected in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and valid(value)):
                msg = f"{name} must be {expected}, got {value}"
                raise ValueError(msg)
        if self.backend not in IMAGE_BACKENDS:
            msg = f"backend must be {' or '.join(IMAGE_BACKENDS)}, got {self.backend!r}"
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
        given = [n for n in _SAMPLING if getattr(self, n) is not None]
        if self.temperature == 0:
            given.remove("temperature")
        if given and not self.do_sample:
            msg = f"{given[0]} acts on sampling only: add do_sample=true, or leave it out"
            raise ValueError(msg)

    def _at_least(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if value is not None and value < low:
            msg = f"{name} must be {low} or more, got {value}"
            raise ValueError(msg)


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
        given = getattr(params, name)
        value = stored.get(name) if given is None else given
        if value is not None:
            settings[name] = value
    if params.do_sample:
        settings = _SAMPLING | settings
    length = stored.get("max_length")
    longest = DEFAULT_MAX_NEW_TOKENS if chat or not length else max(1, length - 1)
    settings.setdefault("max_new_tokens", longest)
    return settings
