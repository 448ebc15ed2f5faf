"""The parameters of `openai:` specs: how a server is reached, and what it is asked for.

All that a request asks for enters keys.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.models.spec import (
    ModelSpec,
    check_at_least,
    check_reasoning,
    parse_params,
    split_params,
)
from pytest_cepbench.models.text_model.interleaver import PROMPTS
from pytest_cepbench.models.text_model.judge_prompts import (
    DEFAULT_PROMPT,
    JUDGE_PROMPTS,
    check_prompt,
)

MODALITIES = ("text", "image")
"""Kinds of content that an interleaver is asked for."""

_SIZE = re.compile(r"[1-9][0-9]*x[1-9][0-9]*|auto")


@dataclass(frozen=True)
class RequestLimits:
    """How many requests a server gets and how long each is waited for; no answer depends on it.

    concurrency: most requests in flight.
    timeout: seconds that one request may take.
    retries: most repetitions of a request.
    patience: seconds that one answer may take in all, failed requests included.
    max_retry_wait: longest pause, in seconds, that the server did not ask for.
    Raises ValueError for a value outside its range.
    """

    concurrency: int = 16
    timeout: float = 120.0
    retries: int = 8
    patience: float = 300.0
    max_retry_wait: float = 60.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "concurrency")
        check_at_least(self, 0, "retries")
        check_number(self, "timeout", above=True)
        check_number(self, "patience", "max_retry_wait")


@dataclass(frozen=True)
class ServerParams(RequestLimits):
    """How a server is reached; none of these can change an answer, except by naming another model.

    base_url: where the API begins, mostly .../v1; None is OPENAI_BASE_URL, else the client's own.
    key_env: NAME of the environment variable that holds the key; None sends none.
    weights: folder of the checkpoint that is served. revision: name that the user changes with the
        weights. Exactly one of them is the model's identity.
    price_in, price_out: of a million tokens, in the user's currency.
    price_image: of one image.
    Raises ValueError for a value outside its range.
    """

    base_url: str | None = None
    key_env: str | None = "OPENAI_API_KEY"
    weights: str | None = None
    revision: str | None = None
    price_in: float = 0.0
    price_out: float = 0.0
    price_image: float = 0.0

    def __post_init__(self) -> None:
        if self.base_url is not None and not re.match(r"https?://[^/]", self.base_url):
            raise ValueError(
                f"base_url must begin with http:// or https:// and a host, got {self.base_url!r}"
            )
        super().__post_init__()
        check_number(self, "price_in", "price_out", "price_image")
        if (self.weights is None) == (self.revision is None):
            raise ValueError(
                "give weights=FOLDER (the checkpoint that is served) or revision=NAME (a name that "
                "you change with the weights; of a hosted model its date), one of them: a server "
                "can serve other weights under the same name, and answers of other weights must "
                "not be taken for its own"
            )


def check_number(params: object, *names: str, least: float = 0.0, above: bool = False) -> None:
    """Raise ValueError naming a parameter that is given and no finite number from `least` on.

    above: whether `least` itself is too small.
    """
    for name in names:
        value = getattr(params, name)
        if value is None:
            continue
        if not math.isfinite(value) or value < least or (above and value == least):
            wanted = f"above {least:g}" if above else f"a number from {least:g} upwards"
            raise ValueError(f"{name} must be {wanted}, got {value}")


@dataclass(frozen=True)
class ChatParams:
    """Parameters of a request for a text; each can change the answer.

    temperature, top_p: as in the API; None sends nothing. 0 is greedy where the server honours it.
    max_tokens: longest answer; None leaves it to the server.
    system_prompt: goes first. Of a judge: in the place of its own. Of a writer: before that of the
        suite, in one message.
    max_pixels: larger images are made smaller, to at most so many pixels; None sends them whole.
    reasoning: strip (reasoning is no part of the answer) or keep; of judges and VQA models it never
        is.
    dtype: that the server was started with; it is not sent.
    Raises ValueError for a value outside its range.
    """

    temperature: float | None = 0.0
    top_p: float | None = None
    max_tokens: int | None = 512
    system_prompt: str | None = None
    max_pixels: int | None = None
    reasoning: str = "strip"
    dtype: str | None = None

    def __post_init__(self) -> None:
        check_reasoning(self.reasoning)
        check_number(self, "temperature")
        check_number(self, "top_p", above=True)
        check_at_least(self, 1, "max_tokens", "max_pixels")

    @property
    def sampled(self) -> bool:
        """True where tokens are sampled, so that the seed matters; None leaves it to the server."""
        return self.temperature is None or self.temperature > 0

    @property
    def decisive(self) -> dict[str, Any]:
        """What enters the keys of results."""
        # How images and seeds are sent was once a choice, and is in all keys since.
        decisive = {**dataclasses.asdict(self), "image_format": "png", "send_seed": "auto"}
        if self.reasoning == "strip":
            del decisive["reasoning"]  # as in keys from before there was the parameter
        return {name: value for name, value in decisive.items() if value is not None}


@dataclass(frozen=True)
class LikelihoodParams(ChatParams):
    """Parameters of a request whose answer may come with the probabilities of its tokens.

    logprobs: whether the server is asked for them.
    Raises ValueError for a value outside its range.
    """

    logprobs: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reasoning != "strip":
            raise ValueError(
                "reasoning=keep is for texts: a verdict or answer inside reasoning never counts"
            )


@dataclass(frozen=True)
class JudgeParams(LikelihoodParams):
    """Parameters of a judge's request; `logprobs` only where the prompt's verdicts are letters.

    prompt: criteria, letters, opening-gpt or opening-intjudge: what it is shown, and how its
        verdicts are worded.
    Raises ValueError for a value outside its range.
    """

    prompt: str = DEFAULT_PROMPT

    def __post_init__(self) -> None:
        super().__post_init__()
        check_prompt(self.prompt)
        if self.logprobs and not JUDGE_PROMPTS[self.prompt].letters:
            letters = " or ".join(name for name, prompt in JUDGE_PROMPTS.items() if prompt.letters)
            raise ValueError(
                f"logprobs=true reads the probabilities of one token, and several verdicts of "
                f"prompt={self.prompt} begin with the same one: add prompt={letters}"
            )

    @property
    def decisive(self) -> dict[str, Any]:
        """With the version of the prompt."""
        decisive = {**super().decisive, "prompt": JUDGE_PROMPTS[self.prompt].version}
        if not self.logprobs:
            del decisive["logprobs"]  # as in keys from before there was the parameter
        return decisive


@dataclass(frozen=True)
class VqaParams(LikelihoodParams):
    """Parameters of a VQA model's request; without `logprobs` an answer is right or wrong.

    max_tokens: longest answer: a word, and room for what some models write before it.
    Raises ValueError for a value outside its range.
    """

    max_tokens: int | None = 16
    logprobs: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampled:
            raise ValueError(
                "temperature of a VQA model must be 0, since its answers have no seed, got "
                f"{self.temperature}"
            )


@dataclass(frozen=True)
class WriterParams(ChatParams):
    """Parameters of a writer's request: those of `ChatParams`, with room for an answer of ten
    steps.
    """

    max_tokens: int | None = 2048


@dataclass(frozen=True)
class InterleaverParams(ChatParams):
    """Parameters of a request for texts and images: those of `ChatParams`, where `system_prompt`
    goes in the place of the built-in one, and the server says how long an answer may be and how it
    is sampled: greedy images are poor ones.
    """

    temperature: float | None = None
    max_tokens: int | None = None

    @property
    def decisive(self) -> dict[str, Any]:
        """With what is asked for."""
        return {**super().decisive, "prompt": PROMPTS, "modalities": ",".join(MODALITIES)}


@dataclass(frozen=True)
class ImageParams:
    """Parameters of a generator's request; each can change the image.

    size: WIDTHxHEIGHT or auto.
    height, width: the same in two numbers.
    quality: as in the API.
    num_inference_steps, guidance_scale, negative_prompt: of vLLM-Omni, SGLang and others.
    dtype: that the server was started with; it is not sent.
    Raises ValueError for a value outside its range.
    """

    size: str | None = None
    height: int | None = None
    width: int | None = None
    quality: str | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    negative_prompt: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "height", "width", "num_inference_steps")
        check_number(self, "guidance_scale", least=-math.inf)
        if self.size is not None and not _SIZE.fullmatch(self.size):
            raise ValueError(f"size must be WIDTHxHEIGHT or auto, got {self.size!r}")
        if (self.height is None) != (self.width is None):
            raise ValueError("height and width go together: give both, or size=WIDTHxHEIGHT")
        if self.size is not None and self.height is not None:
            raise ValueError("size and height say the same: give one of them")

    @property
    def wanted_size(self) -> str | None:
        """The size as the API expects it."""
        return self.size if self.height is None else f"{self.width}x{self.height}"

    @property
    def sampled(self) -> bool:
        """Every image is drawn from a seed."""
        return True

    @property
    def decisive(self) -> dict[str, Any]:
        """What enters the keys of results; of the form and the seed as of `ChatParams`."""
        sent = {"response_format": "b64_json", "send_seed": "auto"}
        given = {**dataclasses.asdict(self), **sent}
        return {name: value for name, value in given.items() if value is not None}


def parse_parts(spec: ModelSpec, what: str, *kinds: type[Any]) -> tuple[Any, ...]:
    """Read a spec's parameters as dataclasses that share no name.

    Raises SpecError naming the parameter that is unknown or wrong.
    """
    names = [{field.name for field in dataclasses.fields(kind)} for kind in kinds]
    own = split_params(spec, what, *names)
    return tuple(parse_params(part, kind, what) for part, kind in zip(own, kinds, strict=True))
