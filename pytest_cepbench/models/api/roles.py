"""Describers, writers and generators over the API: requests made of inputs, and answers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.endpoint import ChatParams, ImageParams
from pytest_cepbench.models.api.messages import (
    ChatModel,
    chat_settings,
    encodable,
    json_settings,
    without_none,
)
from pytest_cepbench.models.api.responses import ApiResponse, read_chat, read_content, read_image
from pytest_cepbench.models.protocols import Piece, Question, Reply


class ApiDescriber(ChatModel[ChatParams]):
    """A describer behind a server."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One reply for each image: its text, or the failure it amounts to.

        Raises ModelError where the server answers no request at all.
        """
        return self.client.send_all(
            [
                self._request(image, prompt, chat_settings(self.params, seed))
                for image, seed in zip(images, seeds, strict=True)
            ]
        )

    def describe_json(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> list[Reply]:
        """As `describe`; the server is asked to hold its model to the schema."""
        return self.client.send_all(
            [
                self._request(image, prompt, json_settings(self.params, schema, seed))
                for image, prompt, seed in zip(images, prompts, seeds, strict=True)
            ]
        )

    def _request(self, image: Image.Image, prompt: str, settings: Mapping[str, Any]) -> ApiRequest:
        params = self.params
        pieces: list[Piece] = [image, prompt] if prompt else [image]
        return self.request(pieces, params.system_prompt, settings, _reader(params))


def _reader(params: ChatParams) -> Callable[[Any], ApiResponse]:
    return read_chat if params.reasoning == "strip" else read_content


class ApiWriter(ChatModel[ChatParams]):
    """A writer behind a server."""

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One reply for each question: its text, or the failure it amounts to.

        Raises ModelError where the server answers no request at all.
        """
        return self.client.send_all(
            [
                self._request(question, prompt, chat_settings(self.params, seed))
                for question, seed in zip(questions, seeds, strict=True)
            ]
        )

    def write_json(
        self,
        questions: Sequence[Question],
        prompt: str,
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> list[Reply]:
        """As `write`; the server is asked to hold its model to the schema."""
        return self.client.send_all(
            [
                self._request(question, prompt, json_settings(self.params, schema, seed))
                for question, seed in zip(questions, seeds, strict=True)
            ]
        )

    def _request(self, question: Question, prompt: str, settings: Mapping[str, Any]) -> ApiRequest:
        params = self.params
        system = encodable("\n\n".join(filter(None, [params.system_prompt, prompt])))
        return self.request(question, system, settings, _reader(params))


@dataclass(frozen=True)
class ApiGenerator:
    """A generator behind a server; fields as of `ChatModel`."""

    client: ApiClient
    model: str
    params: ImageParams

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Reply]:
        """One reply for each text: (height, width, 3) uint8, or the failure it amounts to.

        Raises ModelError where the server answers no request at all.
        """
        return self.client.send_all(
            [self._request(text, seed) for text, seed in zip(texts, seeds, strict=True)]
        )

    def _request(self, text: str, seed: int) -> ApiRequest:
        body = {"model": self.model, "prompt": encodable(text)}
        params = self.params
        optional = without_none(
            size=params.wanted_size,
            quality=params.quality,
            num_inference_steps=params.num_inference_steps,
            guidance_scale=params.guidance_scale,
            negative_prompt=params.negative_prompt,
            response_format=params.response_format,
            seed=None if params.send_seed == "false" else seed,
        )
        return ApiRequest("images", lambda: body, self._read, optional)

    def _read(self, document: Any) -> ApiResponse:
        response = read_image(document)
        wanted = self.params.wanted_size
        if wanted in (None, "auto") or isinstance(response.value, Failure):
            return response
        height, width, _ = response.value.shape
        size = f"{width}x{height}"
        if size == wanted:
            return response
        return replace(response, deviation=f"size {size} instead of {wanted}")
