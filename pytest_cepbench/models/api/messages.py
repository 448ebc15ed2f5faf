"""Messages and settings of a chat request."""

from __future__ import annotations

import io
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PIL import Image

from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.endpoint import TOP_LOGPROBS, ChatParams, JudgeParams, VqaParams
from pytest_cepbench.models.api.responses import ApiResponse
from pytest_cepbench.models.judges.judge_prompt import shrink_image
from pytest_cepbench.models.protocols import Piece

P = TypeVar("P", bound=ChatParams)


@dataclass(frozen=True)
class ChatModel(Generic[P]):
    """A model behind a server that is asked by chat completions.

    client: of the server.
    model: its name there.
    params: of the spec.
    """

    client: ApiClient
    model: str
    params: P

    def request(
        self,
        pieces: Sequence[Piece],
        system: str | None,
        settings: Mapping[str, Any],
        read: Callable[[Any], ApiResponse],
        *,
        turns: Sequence[Mapping[str, Any]] = (),
    ) -> ApiRequest:
        """One message of the user, behind a system prompt where there is one.

        pieces: texts and images of the message.
        settings: sent as far as the server accepts them, but for the probabilities of tokens,
            without which an answer is of no use.
        read: as of `ApiRequest`.
        turns: of the conversation, after the message.
        """

        def body() -> dict[str, Any]:
            before = [{"role": "system", "content": system}] if system else []
            message = {"role": "user", "content": content_parts(pieces, self.params)}
            return {"model": self.model, "messages": [*before, message, *turns]}

        return ApiRequest("chat", body, read, settings, required=("logprobs", "top_logprobs"))


def chat_settings(params: ChatParams, seed: int) -> Mapping[str, Any]:
    """The settings that a request states."""
    return without_none(
        temperature=params.temperature,
        top_p=params.top_p,
        max_tokens=params.max_tokens,
        seed=seed if params.seeds else None,
    )


def likelihood_settings(params: JudgeParams | VqaParams, seed: int) -> Mapping[str, Any]:
    """Those and, where the spec asks for them, the probabilities of tokens."""
    asked = {"logprobs": True, "top_logprobs": params.top_logprobs or TOP_LOGPROBS}
    return {**chat_settings(params, seed), **(asked if params.logprobs else {})}


def without_none(**optional: Any) -> Mapping[str, Any]:
    """The settings that have a value."""
    return {name: value for name, value in optional.items() if value is not None}


def encodable(text: str) -> str:
    """The text without lone surrogates, which some tokenizers emit: they are no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def text_part(text: str) -> dict[str, Any]:
    """A text in a message."""
    return {"type": "text", "text": encodable(text)}


def image_part(image: Image.Image, params: ChatParams) -> dict[str, Any]:
    """An image in a message: lossless, inside the request, of at most `max_pixels`."""
    image = shrink_image(image, params.max_pixels)
    stream = io.BytesIO()
    if params.image_format == "webp":
        image.convert("RGB").save(stream, "WEBP", lossless=True, method=0, quality=0)
    else:
        # A quarter less time than the default strategy of this level, and smaller for photographs.
        image.convert("RGB").save(stream, "PNG", compress_level=1, compress_type=zlib.Z_RLE)
    encoded = b64encode(stream.getvalue()).decode("ascii")
    image_url = {"url": f"data:image/{params.image_format};base64,{encoded}"}
    if params.detail is not None:
        image_url["detail"] = params.detail
    return {"type": "image_url", "image_url": image_url}


def content_parts(pieces: Sequence[Piece], params: ChatParams) -> list[dict[str, Any]]:
    """Texts and images as the parts of a message."""
    return [
        text_part(piece) if isinstance(piece, str) else image_part(piece, params)
        for piece in pieces
    ]


JSON_TOKENS = 2048
"""Room that a reply in JSON has at least: a limit that suits a description cuts objects."""


def json_settings(params: ChatParams, schema: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The settings of a request for an object of a JSON schema: structured output.

    A server that does not know it is asked without.
    """
    form = {"name": "reply", "strict": _is_closed(schema), "schema": schema}
    settings = dict(chat_settings(params, seed))
    settings["response_format"] = {"type": "json_schema", "json_schema": form}
    if params.max_tokens is not None:
        settings["max_tokens"] = max(params.max_tokens, JSON_TOKENS)
    return settings


def _is_closed(schema: Any) -> bool:
    """Whether no object of a schema may have further keys, as strict structured output needs it."""
    if not isinstance(schema, Mapping):
        return True
    open_object = schema.get("type") == "object" and schema.get("additionalProperties") is not False
    return not open_object and all(_is_closed(value) for value in schema.values())
