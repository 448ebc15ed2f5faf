"""A tiny sentence-transformers model with random weights, saved as that library saves it.

Vectors have 32 dimensions, texts 16 tokens, one per word of WORDS between a start and an end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny.common import LAYERS, built_once, tokenizer_of
from tests.tiny.encoders import WORDS

TEXT_LENGTH = 16
DIMENSION = 32


@built_once(seed=21)
def build_mpnet(folder: Path) -> None:
    """An MPNetModel with its tokenizer, as transformers saves it: without modules.json."""
    from transformers import MPNetConfig, MPNetModel

    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = tokenizer_of("MPNetTokenizer", vocabulary)
    tokenizer.model_max_length = TEXT_LENGTH
    config = MPNetConfig(
        vocab_size=len(tokenizer),
        **LAYERS,
        max_position_embeddings=TEXT_LENGTH + 2,
    )
    MPNetModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@built_once()
def build_sentence_transformer(folder: Path, *, normalize: bool = True) -> None:
    """MPNet, mean pooling and, as all-mpnet-base-v2 has it, normalisation, in one folder."""
    from sentence_transformers import SentenceTransformer

    try:
        from sentence_transformers.base.modules import Normalize, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling
    except ModuleNotFoundError:  # before sentence-transformers 6
        from sentence_transformers.models import Normalize, Pooling, Transformer

    transformer = Transformer(str(build_mpnet(folder.with_name(f"{folder.name}-plain"))))
    modules: list[Any] = [transformer, Pooling(DIMENSION, pooling_mode="mean")]
    modules += [Normalize()] * normalize
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
