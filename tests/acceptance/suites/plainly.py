"""Features of tiny checkpoints and numbers of them without this project's code.

What a suite makes of images is checked against these: the libraries' models called directly,
preprocessing and formulas written out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

FloatArray = npt.NDArray[np.float64]

_HALF = ((0.5,) * 3, (0.5,) * 3)
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


def vit_cls(folder: Path, images: Sequence[Image.Image]) -> FloatArray:
    """The CLS token of a ViT's last layer: 32 x 32, bilinear, colors from -1 to 1."""
    from transformers import ViTModel

    resized = [image.resize((32, 32), Image.Resampling.BILINEAR) for image in images]
    output = _ask(_load(ViTModel, folder), pixel_values=_tensor(resized, *_HALF))
    return _array(output.last_hidden_state[:, 0])


def dino_cls(folder: Path, images: Sequence[Image.Image]) -> FloatArray:
    """Timm's CLS token after the last norm: shorter side 36 = 32 / 0.875, bilinear, center 32."""
    import timm
    from safetensors.torch import load_file

    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, **shape)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    cropped = [_crop(image, 36, 32, Image.Resampling.BILINEAR) for image in images]
    return _array(_ask(model, _tensor(cropped, *_HALF)))


def unicom(file: Path, images: Sequence[Image.Image]) -> FloatArray:
    """Unicom's features: shorter side and center of its side, bicubic, CLIP's colors."""
    import torch

    from tests.tiny.weights_files import UNICOM, make_unicom

    model = make_unicom(**UNICOM)
    model.load_state_dict(torch.load(file, weights_only=True))
    side = UNICOM["side"]
    cropped = [_crop(image, side, side, Image.Resampling.BICUBIC) for image in images]
    return _array(_ask(model, _tensor(cropped, *_CLIP)))


def clip_images(folder: Path, images: Sequence[Image.Image]) -> FloatArray:
    """CLIP's projected image features: shorter side and center 32, bicubic."""
    from transformers import CLIPModel

    cropped = [_crop(image, 32, 32, Image.Resampling.BICUBIC) for image in images]
    model = _load(CLIPModel, folder)
    pooled = _ask(model.vision_model, pixel_values=_tensor(cropped, *_CLIP)).pooler_output
    return _array(_ask(model.visual_projection, pooled))


def clip_texts(folder: Path, texts: Sequence[str]) -> FloatArray:
    """CLIP's projected text features, texts cut at 32 tokens."""
    from transformers import CLIPModel, CLIPTokenizer

    model, tokenizer = _load(CLIPModel, folder), _load(CLIPTokenizer, folder)
    rows = []
    for text in texts:
        tokens = tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
        pooled = _ask(model.text_model, **tokens).pooler_output
        rows.append(_array(_ask(model.text_projection, pooled))[0])
    return np.stack(rows)


def sentences(folder: Path, texts: Sequence[str]) -> FloatArray:
    """What sentence-transformers makes of texts."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return np.asarray(model.encode(list(texts), show_progress_bar=False), np.float64)


def inception(file: Path, images: Sequence[Image.Image]) -> FloatArray:
    """What clean-fid's TorchScript file gives: each color resized in float to 299, bicubic.

    Colors come to it from -1 to 1, 128 being 0.
    """
    import torch

    def resize(image: Image.Image) -> npt.NDArray[np.float32]:
        planes = np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1)
        resized = [Image.fromarray(p).resize((299, 299), Image.Resampling.BICUBIC) for p in planes]
        return np.stack([np.asarray(plane) for plane in resized]).clip(0, 255)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch deprecates TorchScript
        model = torch.jit.load(str(file))
    pixels = torch.from_numpy(np.stack([resize(image) for image in images]))
    return _array(_ask(model, (pixels - 128) / 128))


def object_on_grey(folder: Path, image: Image.Image, index: int) -> Image.Image:
    """The surest object of a class by a Mask2Former, cut out, with #999 around it.

    The image has the side that the checkpoint takes, so that nothing is resized or padded.
    """
    import torch
    from transformers import Mask2FormerForUniversalSegmentation

    model = _load(Mask2FormerForUniversalSegmentation, folder)
    output = _ask(model, pixel_values=_tensor([image], *_IMAGENET))
    sure = output.class_queries_logits[0].softmax(dim=-1)[:, index]
    masks = torch.nn.functional.interpolate(
        output.masks_queries_logits, size=image.size[::-1], mode="bilinear", align_corners=False
    )[0]
    inside = masks > 0
    quality = (masks.sigmoid() * inside).sum(dim=(1, 2)) / inside.sum(dim=(1, 2)).clamp(min=1)
    best = inside[int((sure * quality).argmax())].numpy()
    rows, columns = np.flatnonzero(best.any(axis=1)), np.flatnonzero(best.any(axis=0))
    pixels = np.where(best[:, :, None], np.asarray(image), 0x99).astype(np.uint8)
    return Image.fromarray(pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])


def color_names(folder: Path, texts: Sequence[Sequence[str]]) -> FloatArray:
    """(rows, d) directions of rows of texts by a CLIP: the mean of each row's unit vectors."""
    rows = []
    for row in texts:
        vectors = clip_texts(folder, row)
        rows.append((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).mean(axis=0))
    return np.stack(rows)


def nearest(folder: Path, image: Image.Image, names: FloatArray) -> int:
    """Which of some directions an image is nearest to, by a CLIP."""
    return int(cosines(np.repeat(clip_images(folder, [image]), len(names), axis=0), names).argmax())


def owl_counts(
    folder: Path, image: Image.Image, queries: Sequence[str], threshold: float
) -> list[int]:
    """How many boxes an OWLv2 gives each query at a score over the threshold."""
    import torch
    from transformers import Owlv2ForObjectDetection, Owlv2Processor

    processor = _load(Owlv2Processor, folder)
    inputs = processor(text=[list(queries)], images=image, return_tensors="pt")
    output = _ask(_load(Owlv2ForObjectDetection, folder), **inputs)
    (boxes,) = processor.post_process_grounded_object_detection(
        output, threshold=threshold, target_sizes=torch.tensor([image.size[::-1]])
    )
    labels = boxes["labels"].tolist()
    return [labels.count(number) for number in range(len(queries))]


def cosines(first: FloatArray, second: FloatArray) -> FloatArray:
    """(n,) cosines of the rows of two (n, d) arrays."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    similarities: FloatArray = (first * second).sum(axis=1) / lengths
    return similarities


def frechet(first: FloatArray, second: FloatArray) -> float:
    """The textbook's Fréchet distance of two (n, d) arrays of equal n.

    What is not 0 of the eigenvalues of the covariances' product is had from an (n, n) matrix.
    """
    x, y = first - first.mean(axis=0), second - second.mean(axis=0)
    crossed = x @ y.T
    roots = np.sqrt(np.linalg.eigvalsh(crossed @ crossed.T).clip(min=0))
    apart = ((first.mean(axis=0) - second.mean(axis=0)) ** 2).sum()
    spread = (x**2).sum() + (y**2).sum() - 2 * roots.sum()
    return float(apart + spread / (len(first) - 1))


@cache
def _load(kind: Any, folder: Path) -> Any:
    """A model or tokenizer, which is loaded once for all images and texts."""
    return kind.from_pretrained(folder)


def _crop(image: Image.Image, shorter: int, side: int, how: Image.Resampling) -> Image.Image:
    factor = shorter / min(image.size)
    width, height = (int(length * factor) for length in image.size)
    left, top = round((width - side) / 2), round((height - side) / 2)
    return image.resize((width, height), how).crop((left, top, left + side, top + side))


def _tensor(images: Sequence[Image.Image], mean: Sequence[float], spread: Sequence[float]) -> Any:
    import torch

    pixels = np.stack([np.asarray(image, np.float32) / 255 for image in images])
    scaled = (pixels - np.array(mean, np.float32)) / np.array(spread, np.float32)
    return torch.from_numpy(scaled.transpose(0, 3, 1, 2).astype(np.float32).copy())


def _ask(model: Any, *args: Any, **kwargs: Any) -> Any:
    import torch

    with torch.inference_mode():
        return model.eval()(*args, **kwargs)


def _array(tensor: Any) -> FloatArray:
    array: FloatArray = tensor.detach().numpy().astype(np.float64)
    return array
