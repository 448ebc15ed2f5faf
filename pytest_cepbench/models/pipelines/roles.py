"""Pipelines of diffusers in their two roles: generators draw a text, editors change an image.

Editors differ by the parameters of their call. Image-to-image pipelines (those with `strength`)
noise the image and draw it again with the text; the pipeline of the same components does so where a
text-to-image pipeline is given. Pipelines that were trained to follow instructions
(InstructPix2Pix, FLUX Kontext, Qwen-Image-Edit) read the image beside the text.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.checkpoints.binding import adapter
from pytest_cepbench.models.pipelines.pipeline import (
    LoadedPipeline,
    PipelineParams,
    check_pipeline,
    tokenizer_of,
)
from pytest_cepbench.models.protocols import ImageLike
from pytest_cepbench.models.spec import Bounds, Positive, Share
from pytest_cepbench.models.torch_runtime import by_kind, quiet

_BOUNDED = 1_000_000  # tokenizers that state no length have a huge one


class DiffusersGenerator(LoadedPipeline):
    """A loaded text-to-image pipeline; satisfies the Generator Protocol."""

    kind, auto = "text-to-image", "AutoPipelineForText2Image"
    supplied = ("prompt", "generator", "output_type")

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike | Failure]:
        """Draw each text; see `LoadedPipeline.run`."""
        return self.run(texts, seeds, self._params.call)

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Tokens of each text, and the most that are read, by the text encoder that reads most.

        Where a pipeline has several (CLIP and T5), a text counts as whole when one of them reads
        all of it. The call's `max_sequence_length` bounds those that state no length themselves.
        Nothing is bounded where no tokenizer is.
        """
        pipeline = self._pipeline
        parameter = inspect.signature(pipeline.__call__).parameters.get("max_sequence_length")
        asked = self._params.call.get(
            "max_sequence_length", parameter.default if parameter else None
        )
        bounded = []
        for name in ("tokenizer", "tokenizer_2", "tokenizer_3", "tokenizer_4"):
            if (part := getattr(pipeline, name, None)) is None:
                continue
            tokenizer = tokenizer_of(part)
            stated = getattr(tokenizer, "model_max_length", None)
            own = stated if isinstance(stated, int) and stated < _BOUNDED else None
            is_clip = own is not None and "CLIP" in type(tokenizer).__name__
            limit = asked if isinstance(asked, int) and not is_clip else own
            bounded += [] if limit is None else [(limit, tokenizer)]
        if not bounded:
            return [0] * len(texts), sys.maxsize
        most, tokenizer = max(bounded, key=lambda pair: pair[0])
        with quiet():
            return [len(ids) for ids in tokenizer(list(texts))["input_ids"]], most


GENERATOR = adapter(
    "diffusers-generator/1", PipelineParams, DiffusersGenerator.load, check=check_pipeline
)


@dataclass(frozen=True)
class EditorParams(PipelineParams):
    """Parameters of an editor's spec, with those of `PipelineParams`.

    strength: of an image-to-image pipeline, how much of the image is drawn anew, above 0 to 1.
    image_guidance_scale: of InstructPix2Pix, how close the result stays to the image.
    max_area: of FLUX Kontext, most pixels of the result.
    height, width: of the result, in pixels; None is the size of the image, or what the pipeline
        makes of it.
    Raises ValueError for one of height and width alone.
    """

    CALL: ClassVar[tuple[str, ...]] = (
        *PipelineParams.CALL,
        "strength",
        "image_guidance_scale",
        "max_area",
    )

    strength: Share | None = None
    image_guidance_scale: Annotated[float, Bounds(1)] | None = None
    max_area: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.height is None) != (self.width is None):
            raise ValueError(
                "height and width go together: give both, or none for the size of the image"
            )

    @property
    def call(self) -> dict[str, Any]:
        """The call parameters that were given, but the size: images are brought to it."""
        return {
            name: value for name, value in super().call.items() if name not in ("height", "width")
        }

    @property
    def decisive(self) -> dict[str, Any]:
        """The given parameters that can change an image."""
        size = {} if self.height is None else {"height": self.height, "width": self.width}
        return {**super().decisive, **size}


class DiffusersEditor(LoadedPipeline):
    """A loaded pipeline that changes images; satisfies the Editor Protocol."""

    # The image-to-image pipeline of the same components where there is one.
    kind, auto = "image-editing", "AutoPipelineForImage2Image"
    supplied = ("prompt", "image", "generator", "output_type")

    def edit(
        self, images: Sequence[Image.Image], texts: Sequence[str], seeds: Sequence[int]
    ) -> list[ImageLike | Failure]:
        """Change each image; see `Editor` and `LoadedPipeline.run`.

        The result of an image-to-image pipeline and of InstructPix2Pix has the size of the image,
        each side rounded down to what the pipeline can draw.
        """
        params, signature = self._params, inspect.signature(self._pipeline.__call__).parameters
        redraws = "strength" in signature
        # Elsewhere a list of images is the references of one prompt.
        pairs = redraws or "image_guidance_scale" in signature
        # Where none of these holds, the pipeline finds a size of the image's shape by itself.
        needs_size = redraws or "max_area" in signature or params.width is not None
        step = 2 * getattr(self._pipeline, "vae_scale_factor", 8)  # of the pipeline's patches
        sizes = [
            (max(width // step, 1) * step, max(height // step, 1) * step)
            for width, height in (
                (params.width or image.width, params.height or image.height) for image in images
            )
        ]

        def edit_alike(indices: Sequence[int]) -> list[ImageLike | Failure]:
            call, size, own = params.call, sizes[indices[0]], [images[i] for i in indices]
            if needs_size and {"height", "width"} <= signature.keys():
                call |= {"width": size[0], "height": size[1]}
            if pairs:
                resample = Image.Resampling.LANCZOS
                own = [im if im.size == size else im.resize(size, resample) for im in own]
            call["image"] = own if pairs else own[0]
            return self.run([texts[i] for i in indices], [seeds[i] for i in indices], call)

        # Images of one size go together; one by one where a call is about one image.
        return by_kind(sizes if pairs else range(len(images)), edit_alike)


EDITOR = adapter("diffusers-editor/1", EditorParams, DiffusersEditor.load, check=check_pipeline)
