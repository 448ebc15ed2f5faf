"""Describers over the API: a prompt and an image go there, a text comes back."""

from __future__ import annotations

import io
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.request_params import ChatParams
from pytest_cepbench.models.api.responses import read_chat
from pytest_cepbench.models.protocols import Reply


class ApiDescriber:
    """Describes through a server. model: its name there."""

    def __init__(self, asker: ApiClient, model: str, params: ChatParams) -> None:
        self._asker, self._model, self._params = asker, model, params

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One reply for each image: its text, or the failure it amounts to.

        Raises ModelError where the server answers nothing at all.
        """
        return self._asker.ask(
            [self._call(image, prompt, seed) for image, seed in zip(images, seeds, strict=True)]
        )

    def _call(self, image: Image.Image, prompt: str, seed: int) -> ApiRequest:
        def body() -> dict[str, Any]:
            content = [image_part(image, self._params)]
            if prompt:
                content.append(text_part(prompt))
            return {"model": self._model, "messages": messages(content, self._params.system_prompt)}

        return ApiRequest("chat", body, read_chat, chat_settings(self._params, seed))


def messages(content: list[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    """What is said to a chat model: one turn of the user, with what goes before it."""
    told = [{"role": "user", "content": content}]
    return told if not system else [{"role": "system", "content": system}, *told]


def chat_settings(params: ChatParams, seed: int) -> Mapping[str, Any]:
    """The parameters of a chat request that a server may not take; None are not sent."""
    settings = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "max_tokens": params.max_tokens,
        "seed": seed if params.seeds else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def text_part(text: str) -> dict[str, Any]:
    """A piece of text in a message."""
    # Lone surrogates, which some tokenizers emit, are no UTF-8 and cannot be sent.
    return {"type": "text", "text": text.encode("utf-8", "replace").decode("utf-8")}


def image_part(image: Image.Image, params: ChatParams) -> dict[str, Any]:
    """An image in a message: lossless, inside the request."""
    stream = io.BytesIO()
    if params.image_format == "webp":
        image.convert("RGB").save(stream, "WEBP", lossless=True, method=0, quality=0)
    else:
        # A quarter less time than the default strategy of this level, and smaller for photographs.
        image.convert("RGB").save(stream, "PNG", compress_level=1, compress_type=zlib.Z_RLE)
    encoded = b64encode(stream.getvalue()).decode("ascii")
    shown = {"url": f"data:image/{params.image_format};base64,{encoded}"}
    if params.detail is not None:
        shown["detail"] = params.detail
    return {"type": "image_url", "image_url": shown}
