"""A tiny sentence-transformers model with random weights, saved as that library saves it.

Vectors have 32 dimensions, texts 16 tokens, one per word of WORDS between a start and an end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny.common import built_once, tokenizer_of
from tests.tiny.encoders import WORDS

TEXT_LENGTH = 16
DIMENSION = 32


@built_once
def build_mpnet(folder: Path) -> Path:
    """An MPNetModel with its tokenizer, as transformers saves it: without modules.json."""
    import torch
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(21)
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = tokenizer_of("MPNetTokenizer", vocabulary)
    tokenizer.model_max_length = TEXT_LENGTH
    config = MPNetConfig(
        vocab_size=len(tokenizer),
        hidden_size=DIMENSION,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=TEXT_LENGTH + 2,
    )
    MPNetModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@built_once
def build_sentence_transformer(folder: Path, *, normalize: bool = True) -> Path:
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
    return folder
