"""Describers, writers, generators and judges over the API: requests are made of inputs, and answers read.

The criteria of the judge, their order and the four verdicts are those of OpenING (its GPT judge);
the words are this project's. An answer counts where it names exactly one verdict. OpenING's
released code takes the first A or B of any answer, and tosses a coin where there is none.
"""

from __future__ import annotations

import io
import re
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.endpoint import ChatParams, ImageParams
from pytest_cepbench.models.api.responses import ApiResponse, read_chat, read_image
from pytest_cepbench.models.protocols import Battle, Piece, Question, Reply


@dataclass(frozen=True)
class ApiDescriber:
    """A describer behind a server.

    client: of the server.
    model: its name there.
    params: of the spec.
    """

    client: ApiClient
    model: str
    params: ChatParams

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One reply for each image: its text, or the failure it amounts to.

        Raises ModelError where the server answers no request at all.
        """
        return self.client.send_all(
            [self._request(image, prompt, seed) for image, seed in zip(images, seeds, strict=True)]
        )

    def _request(self, image: Image.Image, prompt: str, seed: int) -> ApiRequest:
        def body() -> dict[str, Any]:
            content = [_image_part(image, self.params)]
            if prompt:
                content.append(_text_part(prompt))
            return {
                "model": self.model,
                "messages": chat_messages(content, self.params.system_prompt),
            }

        return ApiRequest("chat", body, read_chat, chat_params(self.params, seed))


@dataclass(frozen=True)
class ApiWriter:
    """A writer behind a server; fields as of `ApiDescriber`."""

    client: ApiClient
    model: str
    params: ChatParams

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One reply for each question: its text, or the failure it amounts to.

        Raises ModelError where the server answers no request at all.
        """
        return self.client.send_all(
            [
                self._request(question, prompt, seed)
                for question, seed in zip(questions, seeds, strict=True)
            ]
        )

    def _request(self, question: Question, prompt: str, seed: int) -> ApiRequest:
        def body() -> dict[str, Any]:
            system = "\n\n".join(filter(None, [self.params.system_prompt, prompt]))
            content = content_parts(question, self.params)
            return {"model": self.model, "messages": chat_messages(content, _encodable(system))}

        return ApiRequest("chat", body, read_chat, chat_params(self.params, seed))


def chat_messages(content: list[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    """A conversation of one message, after the system prompt where there is one."""
    turns = [{"role": "user", "content": content}]
    return turns if not system else [{"role": "system", "content": system}, *turns]


def chat_params(params: ChatParams, seed: int) -> Mapping[str, Any]:
    """The parameters of a chat completion that are sent."""
    return _without_none(
        temperature=params.temperature,
        top_p=params.top_p,
        max_tokens=params.max_tokens,
        seed=seed if params.seeds else None,
    )


def _without_none(**optional: Any) -> Mapping[str, Any]:
    return {name: value for name, value in optional.items() if value is not None}


def _encodable(text: str) -> str:
    """The text without lone surrogates, which some tokenizers emit: they are no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": _encodable(text)}


def content_parts(pieces: Sequence[Piece], params: ChatParams) -> list[dict[str, Any]]:
    """Texts and images as the parts of a message."""
    return [
        _text_part(piece) if isinstance(piece, str) else _image_part(piece, params)
        for piece in pieces
    ]


def _image_part(image: Image.Image, params: ChatParams) -> dict[str, Any]:
    """An image in a message: lossless, inside the request."""
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


@dataclass(frozen=True)
class ApiGenerator:
    """A generator behind a server; fields as of `ApiDescriber`."""

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
        body = {"model": self.model, "prompt": _encodable(text)}
        params = self.params
        optional = _without_none(
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


PROMPT = "opening-criteria/1"
"""Names the texts below and the order of the pieces; raised when any of them changes."""

SYSTEM = """\
You compare two answers, A and B, to one question. Question and answers are made of texts and images.
Weigh them by these criteria, the first counting most: is the answer correct and does it do what was \
asked; do its images and texts belong together; do its steps agree with one another; are its texts and \
images well made; would people like it; is nothing missing; is it rich in content.
Reply with one of these four phrases and nothing else:
A is better
B is better
Tie (A is better)
Tie (B is better)
The last two mean that the answers are about equal, and which of them is ahead by a little."""

CLOSING = "Reply with one of the four phrases: which answer is better?"

_TIE = re.compile(r"\btie\b[\s:,-]*\(?\s*([AB])(?:\s+is)?(?:\s+better)?\s*\)?", re.IGNORECASE)
_BETTER = re.compile(r"\b([AB])\s+is\s+better\b")
_LETTER_ONLY = re.compile(r"[\s*_`\"'.:()]*([ABab])[\s*_`\"'.()]*")


@dataclass(frozen=True)
class ApiJudge:
    """A judge behind a server; fields as of `ApiDescriber`."""

    client: ApiClient
    model: str
    params: ChatParams

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Reply]:
        """One reply for each battle: its winner, or the failure it amounts to.

        Raises ModelError where the server answers no request at all.
        """
        return self.client.send_all(
            [self._request(battle, seed) for battle, seed in zip(battles, seeds, strict=True)]
        )

    def _request(self, battle: Battle, seed: int) -> ApiRequest:
        def body() -> dict[str, Any]:
            content = [
                *self._parts("Question:", battle.question),
                *self._parts("Answer A:", battle.first),
                *self._parts("Answer B:", battle.second),
                _text_part(CLOSING),
            ]
            own = self.params.system_prompt
            system = SYSTEM if own is None else own
            return {"model": self.model, "messages": chat_messages(content, system)}

        return ApiRequest("chat", body, _read_verdict, chat_params(self.params, seed))

    def _parts(self, heading: str, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        return [_text_part(heading), *content_parts(pieces, self.params)]


def read_winner(text: str) -> Winner | Failure:
    """The verdict that an answer names; a failure where it names none, or several."""
    letter_only = _LETTER_ONLY.fullmatch(text)
    if letter_only:
        return "A" if letter_only[1] in "Aa" else "B"
    letters = _TIE.findall(text)
    winners: set[Winner] = {"Tie(A)" if letter in "Aa" else "Tie(B)" for letter in letters}
    letters = _BETTER.findall(_TIE.sub(" ", text))
    winners |= {"A" if letter == "A" else "B" for letter in letters}
    if len(winners) == 1:
        return winners.pop()
    return Failure("no-verdict", f"named {len(winners)} of the four verdicts: {text!r}")


def _read_verdict(document: Any) -> ApiResponse:
    response = read_chat(document)
    if isinstance(response.value, str):
        return replace(response, value=read_winner(response.value))
    return response
