"""Detector of OWLv2 and OWL-ViT checkpoints: boxes for queries in free text.

As in Semantic Drift's `mgg.py`, every box has the one query that fits it best, and is kept when the
sigmoid of that logit is above the threshold; objectness is not used. A box is in pixels of the
image as it was given, and may reach over its edge.

OWLv2 pads an image to a square at the right and the bottom, so 1 stands for the long edge in both
directions; OWL-ViT squeezes the image into the square. Released versions of transformers have
mapped OWLv2's boxes as if it squeezed too (huggingface/transformers#27205); the mapping here is our
own. The library also fills up ragged lists of queries with blanks that can win a box; here they
cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.transformers_detector import (
    CandidateBoxes,
    OwlParams,
    corners,
    keep,
    load_parts,
)
from pytest_cepbench.models.device_maps import input_device
from pytest_cepbench.models.load_plan import Adapter, LoadPlan
from pytest_cepbench.models.safe_loading import explained
from pytest_cepbench.models.tokenizer_checks import TruncationNotice, check_vocabulary
from pytest_cepbench.models.torch_runtime import quiet


def _load(plan: LoadPlan[OwlParams]) -> OwlDetector:
    from transformers import AutoTokenizer

    model, processor = load_parts(plan, "AutoModelForZeroShotObjectDetection")
    with explained(plan.checkpoint), quiet(), plan.checkpoint.preparation_folder() as folder:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        first = tokenizer("a")["input_ids"][0]
    check_vocabulary(plan.checkpoint.tokenizer_folder, type(tokenizer).__name__)
    if tokenizer.pad_token_id is None or first == 0:
        wrong = "begins a text with id 0" if first == 0 else "has no pad token"
        raise CheckpointError(
            f"{plan.checkpoint.path}: the tokenizer {wrong}. OWL needs texts of one length, and "
            "never finds a query whose first id is 0. Save the tokenizer that the model was "
            "trained with"
        )
    return OwlDetector(plan.checkpoint, model, processor, tokenizer, plan.params)


ADAPTER = Adapter(
    "owl-detector/1",
    ("torch", "transformers", "scipy"),  # OWLv2's own resizing is scipy's
    OwlParams,
    _load,
)


class OwlDetector:
    """A loaded OWL model; satisfies the Detector Protocol."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: Any,
        processor: Any,
        tokenizer: Any,
        params: OwlParams,
    ) -> None:
        self._model = model
        self._processor = processor
        self._tokenizer = tokenizer
        self._params = params
        self._notice = TruncationNotice(checkpoint.what)
        self._longest = min(
            int(tokenizer.model_max_length), int(model.config.text_config.max_position_embeddings)
        )

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._model.to(device)

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Boxes for each image's queries; numbers of queries may differ.

        Queries longer than the model reads are cut, which is said once in a warning.
        """
        import torch

        with quiet(), torch.inference_mode():
            tokens, lengths = self._tokens(queries)
            pixels = self._processor(images=list(images), return_tensors="pt")
            pixels = pixels.to(input_device(self._model), dtype=self._model.dtype)
            output = self._model(**tokens, pixel_values=pixels["pixel_values"])
            logits, boxes = output.logits.float().cpu(), output.pred_boxes.float().cpu()
            detections = [
                self._keep(logits[i, :, : len(asked)], boxes[i], image, asked)
                for i, (image, asked) in enumerate(zip(images, queries, strict=True))
            ]
        self._notice.check(lengths, self._longest)
        return detections

    def _tokens(self, queries: Sequence[Sequence[str]]) -> tuple[dict[str, Any], list[int]]:
        """Token ids of all queries, each image's filled up with its first; how long each is."""
        most = max(len(asked) for asked in queries)
        texts = [text for asked in queries for text in [*asked, *[asked[0]] * (most - len(asked))]]
        distinct = {text: None for asked in queries for text in asked}
        whole = self._tokenizer(list(distinct))["input_ids"]
        tokens = self._tokenizer(
            texts,
            padding="max_length",
            truncation=True,
            max_length=self._longest,
            return_tensors="pt",
        )
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        on_device = {name: value.to(input_device(self._model)) for name, value in inputs.items()}
        return on_device, [len(ids) for ids in whole]

    def _keep(
        self, logits: Any, boxes: Any, image: Image.Image, asked: Sequence[str]
    ) -> Detections | Failure:
        best = logits.max(dim=-1)
        # Whether the image was padded or squeezed is what the image processor did, whatever the
        # model; OWL-ViT's has no such setting.
        padded = bool(getattr(self._processor, "do_pad", False))
        width, height = (max(image.size),) * 2 if padded else image.size
        candidates = CandidateBoxes(
            boxes=corners(boxes.numpy(), width, height),
            scores=best.values.sigmoid().numpy(),
            labels=best.indices.numpy(),
        )
        return keep(
            candidates,
            {label: (query,) for label, query in enumerate(asked)},
            threshold=self._params.threshold,
            nms=self._params.nms,
            most=self._params.max_detections,
        )
