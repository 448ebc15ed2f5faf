"""Generators over the API: a text goes there, an image comes back inside the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.request_params import ImageParams
from pytest_cepbench.models.api.responses import ApiResponse, read_drawing
from pytest_cepbench.models.protocols import Reply


class ApiGenerator:
    """Draws through a server. model: its name there."""

    def __init__(self, asker: ApiClient, model: str, params: ImageParams) -> None:
        self._asker, self._model, self._params = asker, model, params

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Reply]:
        """One reply for each text: (height, width, 3) uint8, or the failure it amounts to.

        Raises ModelError where the server answers nothing at all.
        """
        return self._asker.ask(
            [self._call(text, seed) for text, seed in zip(texts, seeds, strict=True)]
        )

    def _call(self, text: str, seed: int) -> ApiRequest:
        prompt = text.encode("utf-8", "replace").decode("utf-8")
        return ApiRequest(
            "images",
            lambda: {"model": self._model, "prompt": prompt},
            self._read,
            drawing_settings(self._params, seed),
        )

    def _read(self, document: Any) -> ApiResponse:
        answer = read_drawing(document)
        size = self._params.asked_size
        if size in (None, "auto") or isinstance(answer.value, Failure):
            return answer
        height, width, _ = answer.value.shape
        drawn = f"{width}x{height}"
        return answer if drawn == size else replace(answer, odd=f"size {drawn} instead of {size}")


def drawing_settings(params: ImageParams, seed: int) -> Mapping[str, Any]:
    """The parameters of a drawing request that a server may not take; None are not sent."""
    settings = {
        "size": params.asked_size,
        "quality": params.quality,
        "num_inference_steps": params.num_inference_steps,
        "guidance_scale": params.guidance_scale,
        "negative_prompt": params.negative_prompt,
        "response_format": params.response_format,
        "seed": None if params.send_seed == "false" else seed,
    }
    return {name: value for name, value in settings.items() if value is not None}
