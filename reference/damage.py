"""Faults in the files of a describer, as killed jobs, full disks and mixed-up folders make them.

Each function damages a copy of a checkpoint in place. `regress.py` has them among its regressions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"

_MATRIX = "multi_modal_projector.linear_1.weight"


def hold_nan(folder: Path) -> None:
    """As a loss that was NaN for one step leaves them, though here it is one number."""
    with tensors(folder) as weights:
        weights[_MATRIX][0, 0] = torch.nan


def zero_matrix(folder: Path) -> None:
    """As a parameter that a sharded save did not gather."""
    with tensors(folder) as weights:
        weights[_MATRIX].zero_()


def lose_tensor(folder: Path) -> None:
    """Libraries fill it with random numbers."""
    with tensors(folder) as weights:
        del weights[_MATRIX]


def leave_adapter(folder: Path) -> None:
    """Libraries leave out what they do not know, and the fine-tuning with it."""
    with tensors(folder) as weights:
        stem = _MATRIX.removesuffix("weight")
        out, into = weights[_MATRIX].shape
        weights[f"{stem}lora_A.weight"] = torch.zeros(4, into)
        weights[f"{stem}lora_B.weight"] = torch.zeros(out, 4)


def reshape_tensor(folder: Path) -> None:
    """One row less."""
    with tensors(folder) as weights:
        weights[_MATRIX] = weights[_MATRIX][:-1].clone()


def truncate(folder: Path) -> None:
    """Half of the file."""
    path = folder / WEIGHTS
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def lose_shard(folder: Path) -> None:
    """Of two files, the one that the index names second."""
    weights = load_file(folder / WEIGHTS)
    parts = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    places = {name: parts[name > _MATRIX] for name in sorted(weights)}
    first = {name: weights[name] for name, part in places.items() if part == parts[0]}
    save_file(first, folder / parts[0], metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": places}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / WEIGHTS).unlink()


def widen(folder: Path) -> None:
    """The configuration of another run."""
    with edited_json(folder / "config.json") as config:
        config["text_config"]["intermediate_size"] *= 2


def lose_layer(folder: Path) -> None:
    """Libraries leave out the layer that is too many."""
    with edited_json(folder / "config.json") as config:
        config["text_config"]["num_hidden_layers"] -= 1


def add_word(folder: Path) -> None:
    """After all others, where the weights have no row for it."""
    with edited_json(folder / "tokenizer.json") as tokenizer:
        words = tokenizer["model"]["vocab"]
        taken = [*words.values(), *(token["id"] for token in tokenizer["added_tokens"])]
        words["additional"] = max(taken) + 1


def lose_word(folder: Path) -> None:
    """The others close up."""
    with edited_json(folder / "tokenizer.json") as tokenizer:
        words = tokenizer["model"]["vocab"]
        gone = words.pop("red")
        words |= {word: number - (number > gone) for word, number in words.items()}
        for token in tokenizer["added_tokens"]:
            token["id"] -= token["id"] > gone


def shift_words(folder: Path) -> None:
    """Each word has the number of the next, as many as before."""
    with edited_json(folder / "tokenizer.json") as tokenizer:
        words = tokenizer["model"]["vocab"]
        special = {token["content"] for token in tokenizer["added_tokens"]}
        plain = [word for word in words if word not in special]
        numbers = [words[word] for word in plain]
        words |= zip(plain, [*numbers[1:], numbers[0]], strict=True)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "nan": (hold_nan, "one NaN in the weights"),
    "zeroed-matrix": (zero_matrix, "a matrix of the projector zero throughout"),
    "missing-tensor": (lose_tensor, "a tensor is missing"),
    "left-adapter": (leave_adapter, "a LoRA saved beside the weights and not merged"),
    "wrong-shape": (reshape_tensor, "a tensor with a row less"),
    "truncated": (truncate, "the first half of the weights' file"),
    "missing-shard": (lose_shard, "one of two files of weights is missing"),
    "wider-config": (widen, "the configuration of a wider model"),
    "shallower-config": (lose_layer, "the configuration of a model with a layer less"),
    "word-more": (add_word, "a tokenizer with a word more than the weights know"),
    "word-less": (lose_word, "a tokenizer without one of the words"),
    "shifted-words": (shift_words, "a tokenizer whose words have moved by one"),
}
"""By name: what damages, and what it comes to."""


@contextmanager
def tensors(folder: Path) -> Iterator[dict[str, Any]]:
    """The weights by name, written again afterwards."""
    weights = load_file(folder / WEIGHTS)
    yield weights
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


@contextmanager
def edited_json(path: Path) -> Iterator[dict[str, Any]]:
    """What a JSON file holds, written again afterwards."""
    content = json.loads(path.read_text(encoding="utf-8"))
    yield content
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
