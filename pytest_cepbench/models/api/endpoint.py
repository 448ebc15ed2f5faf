"""Where a model is served, with which key, and the parameters that an `openai:` spec can carry."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.api.redaction import Secret, public_url, without_secrets
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import (
    ModelSpec,
    check_at_least,
    check_reasoning,
    parse_params,
    split_params,
)
from pytest_cepbench.models.text_model.judge_prompts import (
    DEFAULT_PROMPT,
    JUDGE_PROMPTS,
    check_prompt,
)

_SIZE = re.compile(r"[1-9][0-9]*x[1-9][0-9]*|auto")


@dataclass(frozen=True)
class ServerParams:
    """How a server is reached; none of these can change an answer, except by naming another model.

    base_url: where the API begins, mostly .../v1; None is OPENAI_BASE_URL, else the client's own.
    key_env: NAME of the environment variable that holds the key; None sends none.
    weights: folder of the checkpoint that is served. revision: name that the user changes with the
        weights. Exactly one of them is the model's identity.
    concurrency: most requests in flight.
    batch_size: most inputs in one call; None is 4 times the concurrency.
    timeout: seconds that one request may take.
    retries: most repetitions of a request.
    patience: seconds that one answer may take in all, failed requests included.
    max_retry_wait: longest pause, in seconds, that the server did not ask for.
    rpm: most requests per minute, of a process.
    price_in, price_out: of a million tokens, in the user's currency.
    Raises ValueError for a value outside its range.
    """

    base_url: str | None = None
    key_env: str | None = "OPENAI_API_KEY"
    weights: str | None = None
    revision: str | None = None
    concurrency: int = 16
    batch_size: int | None = None
    timeout: float = 120.0
    retries: int = 8
    patience: float = 300.0
    max_retry_wait: float = 60.0
    rpm: float | None = None
    price_in: float = 0.0
    price_out: float = 0.0

    def __post_init__(self) -> None:
        if self.base_url is not None and not re.match(r"https?://[^/]", self.base_url):
            raise ValueError(
                f"base_url must begin with http:// or https:// and a host, got {self.base_url!r}"
            )
        check_at_least(self, 1, "concurrency", "batch_size")
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, got {self.retries}")
        _check(self, ("timeout", "rpm"), least=0.0, above=True)
        _check(self, ("patience", "max_retry_wait", "price_in", "price_out"), least=0.0)
        if (self.weights is None) == (self.revision is None):
            raise ValueError(
                "give weights=FOLDER (the checkpoint that is served) or revision=NAME (a name that "
                "you change with the weights; of a hosted model its date), one of them: a server "
                "can serve other weights under the same name, and answers of other weights must "
                "not be taken for its own"
            )

    @property
    def batch(self) -> int:
        """Most inputs in one call: several rounds of requests, so that slow ones are overtaken."""
        return 4 * self.concurrency if self.batch_size is None else self.batch_size


@dataclass(frozen=True)
class ChatParams:
    """Parameters of a request for a text; each can change the answer.

    temperature, top_p: as in the API; None sends nothing. 0 is greedy where the server honours it.
    max_tokens: longest answer; None leaves it to the server.
    system_prompt: goes first. Of a judge: in the place of its own. Of a writer: before that of the
        suite, in one message.
    detail: of images, low or high.
    image_format: in which images are sent, losslessly: png, which every server reads, or webp,
        which is encoded in half the time.
    send_seed: auto (where tokens are sampled), true or false.
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
    detail: str | None = None
    image_format: str = "png"
    send_seed: str = "auto"
    max_pixels: int | None = None
    reasoning: str = "strip"
    dtype: str | None = None

    def __post_init__(self) -> None:
        check_reasoning(self.reasoning)
        if self.image_format not in ("png", "webp"):
            raise ValueError(f"image_format must be png or webp, got {self.image_format!r}")
        _check(self, ("temperature",), least=0.0)
        _check(self, ("top_p",), least=0.0, above=True)
        _check_seed(self.send_seed)
        check_at_least(self, 1, "max_tokens", "max_pixels")

    @property
    def sampled(self) -> bool:
        """True where tokens are sampled, so that the seed matters; None leaves it to the server."""
        return self.temperature is None or self.temperature > 0

    @property
    def seeds(self) -> bool:
        """True where the seed of a step is sent."""
        return self.sampled if self.send_seed == "auto" else self.send_seed == "true"


TOP_LOGPROBS = 20
"""Most tokens whose probabilities OpenAI's API gives; a letter is often among them twice."""


@dataclass(frozen=True)
class JudgeParams(ChatParams):
    """Parameters of a judge's request, with those of `ChatParams`.

    prompt: one of `JUDGE_PROMPTS`: what it is shown, and how its verdicts are worded.
    logprobs: whether the server is asked for the probabilities of the verdicts; only where the
        prompt's verdicts are letters.
    top_logprobs: tokens whose probabilities are asked for; None is `TOP_LOGPROBS`.
    Raises ValueError for a value outside its range.
    """

    prompt: str = DEFAULT_PROMPT
    logprobs: bool = False
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_prompt(self.prompt)
        _refuse_reasoning(self)
        if self.logprobs and not JUDGE_PROMPTS[self.prompt].letters:
            letters = " or ".join(name for name, prompt in JUDGE_PROMPTS.items() if prompt.letters)
            raise ValueError(
                f"logprobs=true reads the probabilities of one token, and several verdicts of "
                f"prompt={self.prompt} begin with the same one: add prompt={letters}"
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")
        if self.top_logprobs is not None and self.top_logprobs < len(WINNERS):
            raise ValueError(
                f"top_logprobs must be at least {len(WINNERS)}, one token for each verdict, got "
                f"{self.top_logprobs}"
            )


@dataclass(frozen=True)
class VqaParams(ChatParams):
    """Parameters of a VQA model's request, with those of `ChatParams`.

    max_tokens: longest answer: a word, and room for what some models write before it.
    logprobs: whether the server is asked for the probabilities of tokens; without them an answer is
        right or wrong.
    top_logprobs: tokens whose probabilities are asked for; None is `TOP_LOGPROBS`.
    Raises ValueError for a value outside its range.
    """

    max_tokens: int | None = 16
    logprobs: bool = True
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampled:
            raise ValueError(
                "temperature of a VQA model must be 0, since its answers have no seed, got "
                f"{self.temperature}"
            )
        _refuse_reasoning(self)
        check_at_least(self, 1, "top_logprobs")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")


@dataclass(frozen=True)
class WriterParams(ChatParams):
    """Parameters of a writer's request: those of `ChatParams`, with room for an answer of ten
    steps.
    """

    max_tokens: int | None = 2048


_MODALITIES = ("text,image", "image,text")


@dataclass(frozen=True)
class InterleaverParams(ChatParams):
    """Parameters of a request for texts and images: those of `ChatParams`, where `system_prompt`
    goes in the place of the built-in one, and the server says how long an answer may be and how it
    is sampled: greedy images are poor ones.

    modalities: kinds of content that are asked for; None sends nothing.
    price_image: of one image; it is no part of a request.
    Raises ValueError for a value outside its range.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    modalities: str | None = "text,image"
    price_image: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self, ("price_image",), least=0.0)
        if self.modalities not in (None, *_MODALITIES):
            known = " or ".join(_MODALITIES)
            raise ValueError(f"modalities must be {known} or none, got {self.modalities!r}")


@dataclass(frozen=True)
class ImageParams:
    """Parameters of a generator's request; each but the price can change the image.

    size: WIDTHxHEIGHT or auto; height, width: the same in two numbers. quality: as in the API.
    num_inference_steps, guidance_scale, negative_prompt: of vLLM-Omni, SGLang and others.
    response_format: how the image is asked for; None sends nothing.
    send_seed: auto and true send the step's seed, false does not.
    dtype: that the server was started with; it is not sent. price_image: of one image.
    Raises ValueError for a value outside its range.
    """

    size: str | None = None
    height: int | None = None
    width: int | None = None
    quality: str | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    negative_prompt: str | None = None
    response_format: str | None = "b64_json"
    send_seed: str = "auto"
    dtype: str | None = None
    price_image: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "height", "width", "num_inference_steps")
        _check(self, ("price_image",), least=0.0)
        _check(self, ("guidance_scale",), least=-math.inf)
        _check_seed(self.send_seed)
        if self.size is not None and not _SIZE.fullmatch(self.size):
            raise ValueError(f"size must be WIDTHxHEIGHT or auto, got {self.size!r}")
        if (self.height is None) != (self.width is None):
            raise ValueError("height and width go together: give both, or size=WIDTHxHEIGHT")
        if self.size is not None and self.height is not None:
            raise ValueError("size and height say the same: give one of them")
        if self.response_format not in (None, "b64_json"):
            raise ValueError(
                f"response_format must be b64_json or none, got {self.response_format!r}: an image "
                "is read out of the answer itself, and never fetched from where it points to"
            )

    @property
    def wanted_size(self) -> str | None:
        """The size as the API expects it."""
        return self.size if self.height is None else f"{self.width}x{self.height}"


def parse_parts(spec: ModelSpec, what: str, *kinds: type[Any]) -> tuple[Any, ...]:
    """Read a spec's parameters as dataclasses that share no name.

    Raises SpecError naming the parameter that is unknown or wrong.
    """
    names = [{field.name for field in dataclasses.fields(kind)} for kind in kinds]
    own = split_params(spec, what, *names)
    return tuple(parse_params(part, kind, what) for part, kind in zip(own, kinds, strict=True))


def _check(params: object, names: tuple[str, ...], *, least: float, above: bool = False) -> None:
    for name in names:
        value = getattr(params, name)
        if value is None:
            continue
        if not math.isfinite(value) or value < least or (above and value == least):
            wanted = f"above {least:g}" if above else f"a number from {least:g} upwards"
            raise ValueError(f"{name} must be {wanted}, got {value}")


def _refuse_reasoning(params: ChatParams) -> None:
    if params.reasoning != "strip":
        raise ValueError(
            "reasoning=keep is for texts: a verdict or answer inside reasoning never counts"
        )


def _check_seed(value: str) -> None:
    if value not in ("auto", "true", "false"):
        raise ValueError(f"send_seed must be auto, true or false, got {value!r}")


OFFICIAL = "https://api.openai.com/v1"
"""The address where neither the spec nor the environment names one."""

URL_VARIABLE = "OPENAI_BASE_URL"

_NO_KEY = "none"
"""Sent where there is no key: the client requires one, and servers without keys ignore it."""


@dataclass(frozen=True)
class Endpoint:
    """A served model.

    model: its name on the server.
    role: that it plays here.
    url: without user, password and query, for people.
    address: for the client, with its query.
    key: None where none is sent.
    user: user and password of basic authentication, encoded; None for none.
    key_env: the environment variable of the key.
    hidden: other secrets of the address, its password and the values of its query.
    label: the model for people, where the run has started its server; None for any other server.
    log: path of the log of a server that the run has started.
    """

    model: str
    role: RoleName
    url: str
    address: Secret
    key: Secret | None
    user: Secret | None
    key_env: str | None
    hidden: tuple[Secret, ...] = ()
    label: str | None = None
    log: str = ""

    @property
    def name(self) -> str:
        """The model as messages call it."""
        return f"{self.role} {self.label or f'openai:{self.clean(self.model)}'}"

    @property
    def api_key(self) -> str:
        """The key for the client."""
        return _NO_KEY if self.key is None else self.key.reveal()

    @property
    def headers(self) -> dict[str, str]:
        """Headers in addition to the client's own."""
        return {} if self.user is None else {"Authorization": f"Basic {self.user.reveal()}"}

    def clean(self, text: str) -> str:
        """A server's words on one line, without keys."""
        return without_secrets(text, self.secrets)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All that must not be shown."""
        return tuple(secret for secret in (self.key, self.user, *self.hidden) if secret is not None)


def shown_url(params: ServerParams) -> str:
    """Where the model is served, for people and provenance."""
    return public_url(_address(params, os.environ))


def find_endpoint(
    model: str, role: RoleName, params: ServerParams, environment: Mapping[str, str] = os.environ
) -> Endpoint:
    """Look up address and key.

    Raises ModelError naming the variable where a key is needed and not set, and where what is set
    cannot be an address or a key.
    """
    address = _address(params, environment)
    name = f"{role} openai:{without_secrets(model)}"
    parts = _split_url(address)
    if parts is None:
        raise ModelError(
            f"{name}: {public_url(address)} is no address of a server. Correct base_url= in its "
            f"spec, or {URL_VARIABLE}: http://HOST:PORT/v1 is expected"
        )
    user = None
    hidden = [value for _, value in parse_qsl(parts.query)]
    if parts.username is not None:
        password = unquote(parts.password or "")
        hidden.append(password)
        pair = f"{unquote(parts.username)}:{password}"
        user = Secret(b64encode(pair.encode()).decode())
        # Taken out, since libraries log the addresses that they call.
        address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    url = public_url(address)
    value = environment.get(params.key_env, "").strip() if params.key_env else ""
    named = params.key_env not in (None, "OPENAI_API_KEY")
    if not value and user is None and (named or (params.key_env and url == OFFICIAL)):
        raise ModelError(
            f"{name}: no key for {url}: the environment variable "
            f"{params.key_env} is not set. Set it, or name another with key_env=NAME (key_env=none "
            "sends no key)"
        )
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise ModelError(
            f"{name}: what {params.key_env} holds is no key (it is not shown). Set it anew"
        )
    key = Secret(value) if value else None
    secrets = tuple(map(Secret, hidden))
    return Endpoint(model, role, url, Secret(address), key, user, params.key_env, secrets)


def _split_url(address: str) -> SplitResult | None:
    """The parts of a server's address; None where it is none."""
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if known else None


def _address(params: ServerParams, environment: Mapping[str, str]) -> str:
    return params.base_url or environment.get(URL_VARIABLE, "").strip() or OFFICIAL
