"""Train the encoder: a CLIP of 1.2 million parameters over pictures and captions of shapes.

    python reference/train_clip.py                         # the shipped one

Beside the captions of the other scenes, each picture must tell its own caption from one that
differs in a single thing. The describer's helper, which reads off patches what they show, helps
here too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from portable import pil
from train_describer import PatchHelper
from training import Log, Optimizer, arguments, half_precision, save_half, settle
from transformers import CLIPConfig, CLIPModel, CLIPProcessor
from vocabulary import CLIP_LENGTH, clip_tokenizer
from world import (
    PATCH,
    FloatArray,
    captions,
    change_one_thing,
    draw_pictures,
    draw_scenes,
    patch_labels,
)

from pytest_cepbench.datasets.shapes.scene import SIDE

STEPS, BATCH = 1600, 96
WIDTH = 128

_PEAK, _DECAY = 1.2e-3, 0.05
_HELP = 0.2
_NOISE = 0.02
_SHARPEST = 60.0  # most that similarities are multiplied by
_HELD_OUT = 1000
_CHANGED = 200


class Trainer:
    """The model with what is needed to teach it and to ask it."""

    def __init__(self, device: str) -> None:
        self.device = device
        tokenizer = clip_tokenizer()
        images = pil("CLIPImageProcessor")(
            size={"shortest_edge": SIDE},
            crop_size={"height": SIDE, "width": SIDE},
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
        )
        self.processor = CLIPProcessor(image_processor=images, tokenizer=tokenizer)
        size = {
            "hidden_size": WIDTH,
            "intermediate_size": 4 * WIDTH,
            "num_attention_heads": 4,
            "hidden_act": "gelu",
        }
        text = {
            **size,
            "vocab_size": len(tokenizer),
            "num_hidden_layers": 2,
            "max_position_embeddings": CLIP_LENGTH,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        vision = {**size, "num_hidden_layers": 4, "image_size": SIDE, "patch_size": PATCH}
        self.model = CLIPModel(
            CLIPConfig(
                text_config=text,
                vision_config=vision,
                projection_dim=WIDTH,
                logit_scale_init_value=2.3,
            )
        ).to(device)
        self.helper = PatchHelper(WIDTH).to(device)

    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """(n, 128) unit vectors."""
        ids = self.processor.tokenizer(
            list(texts), padding="max_length", truncation=True, return_tensors="pt"
        ).input_ids.to(self.device)
        pooled = self.model.text_model(input_ids=ids).pooler_output
        return torch.nn.functional.normalize(self.model.text_projection(pooled).float(), dim=-1)

    def encode_pictures(self, pictures: FloatArray) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, 128) unit vectors, and the hidden states of the patches."""
        pixels = (torch.from_numpy(pictures) * 2 - 1).to(self.device)
        seen = self.model.vision_model(pixel_values=pixels)
        projected = self.model.visual_projection(seen.pooler_output).float()
        return torch.nn.functional.normalize(projected, dim=-1), seen.last_hidden_state

    def loss(
        self, pictures: FloatArray, texts: Sequence[str], others: Sequence[str]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Contrastive loss both ways, with captions that fit no picture; patches' hidden states."""
        with half_precision(self.device):
            seen, hidden = self.encode_pictures(pictures)
            texts_seen = self.encode_texts([*texts, *others])
        scores = self.model.logit_scale.exp().clamp(max=_SHARPEST) * seen @ texts_seen.T
        own = torch.arange(len(texts), device=self.device)
        cross_entropy = torch.nn.functional.cross_entropy
        both = cross_entropy(scores, own) + cross_entropy(scores[:, : len(texts)].T, own)
        return both / 2, hidden

    @torch.no_grad()
    def quality(self, rng: np.random.Generator) -> dict[str, float]:
        """Retrieval at 1 of 1,000 unseen scenes, and mean similarities of pictures.

        same: of one scene drawn twice. changed: of one that differs in a single thing. other: of
        another scene.
        """
        self.model.eval()
        scenes = draw_scenes(rng, _HELD_OUT)
        seen = self._encode_all(draw_pictures(scenes, rng))
        texts_seen = self.encode_texts(captions(scenes))
        own = torch.arange(len(scenes), device=self.device)
        few = scenes[:_CHANGED]
        again = self._encode_all(draw_pictures(few, rng))
        changed = self._encode_all(draw_pictures([change_one_thing(s, rng) for s in few], rng))
        self.model.train()
        scores = seen @ texts_seen.T
        first = seen[:_CHANGED]
        return {
            "text_of_picture": float((scores.argmax(1) == own).float().mean()),
            "picture_of_text": float((scores.argmax(0) == own).float().mean()),
            "same": float((first * again).sum(1).mean()),
            "changed": float((first * changed).sum(1).mean()),
            "other": float((first * seen[_CHANGED : 2 * _CHANGED]).sum(1).mean()),
        }

    def _encode_all(self, pictures: FloatArray) -> torch.Tensor:
        parts = np.array_split(pictures, max(1, len(pictures) // 100))
        return torch.cat([self.encode_pictures(part)[0] for part in parts])


def main() -> None:
    """Train, and save the last step."""
    options = arguments(__doc__.splitlines()[0], steps=STEPS, batch=BATCH, save=()).parse_args()
    settle(options.seed)
    trainer = Trainer(options.device)
    optimizer = Optimizer(
        ([*trainer.model.parameters(), *trainer.helper.parameters()], _PEAK),
        steps=options.steps,
        decay=_DECAY,
    )
    log = Log(options.out / "clip.jsonl")
    rng = np.random.default_rng((options.seed, 5))
    for step in range(1, options.steps + 1):
        scenes = draw_scenes(rng, options.batch)
        others = [change_one_thing(scene, rng) for scene in scenes]
        pictures = draw_pictures(scenes, rng)
        if rng.random() < 0.5:
            pictures += _NOISE * rng.standard_normal(pictures.shape, dtype=np.float32)
        contrast, hidden = trainer.loss(pictures, captions(scenes), captions(others))
        labels = torch.from_numpy(patch_labels(scenes)).to(options.device)
        optimizer.step(step, contrast + _HELP * trainer.helper.loss(hidden, labels))
        if step % 25 == 0:
            log("loss", step, contrast=contrast.item())
        if step % 400 == 0 or step == options.steps:
            log("quality", step, **trainer.quality(np.random.default_rng((options.seed, 2))))
    save_half(options.out / "clip", trainer.model, trainer.processor)


if __name__ == "__main__":
    main()
