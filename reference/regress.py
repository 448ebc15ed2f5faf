"""Make a describer worse on purpose, in the ways that describers get worse by accident.

    python reference/regress.py --list
    python reference/regress.py pruned --of reference/checkpoints/describer-step2000 --out pruned

Each regression is a copy of the checkpoint with what the accident would change, made in seconds;
the same command makes the same bytes again. Those that begin with "resaved" change nothing that
matters, and a gate that fails them cries wolf. `benchmarks/regressions.py` measures what the gate
sees.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from damage import DAMAGES, WEIGHTS, edited_json
from train_describer import Trainer
from training import Optimizer, settle
from transformers import LlavaForConditionalGeneration
from vocabulary import IMAGE
from world import draw_pictures, draw_scenes

_GROUP = 32  # weights that share a scale
_RANK, _ALPHA = 4, 16
_STEPS, _BATCH, _PEAK = 40, 16, 5e-3
_NOISE = 0.15  # that the fine-tuning teaches to see through

_CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
_CLIP_STD = [0.26862954, 0.26130258, 0.27577711]


@dataclass(frozen=True)
class Copy:
    """A copy of a checkpoint that is to be changed in place. of: the one that it is a copy of."""

    folder: Path
    of: Path
    amount: float


@dataclass(frozen=True)
class Regression:
    """A way to change a copy. amount: the default strength, None where there is none."""

    apply: Callable[[Copy], None]
    about: str
    amount: float | None = None


def quantize(copy: Copy) -> None:
    """Saved as the numbers that the integers stand for, so that every library reads them."""
    most = 2 ** (int(copy.amount) - 1) - 1
    with _opened(copy.folder) as model:
        for layer in _linear_layers(model):
            groups = layer.weight.reshape(-1, _GROUP)
            scales = groups.abs().amax(1) / most
            zeros = torch.zeros_like(scales, dtype=torch.int32)
            rounded = torch.fake_quantize_per_channel_affine(
                groups, scales, zeros, 0, -most - 1, most
            )
            layer.weight.copy_(rounded.view_as(layer.weight))


def prune(copy: Copy) -> None:
    """By magnitude over all linear layers together."""
    from torch.nn.utils import prune as pruning

    with _opened(copy.folder) as model:
        pruned = [(layer, "weight") for layer in _linear_layers(model)]
        pruning.global_unstructured(pruned, pruning.L1Unstructured, amount=copy.amount)
        for layer, name in pruned:
            pruning.remove(layer, name)


def merge_lora(copy: Copy) -> None:
    """A LoRA is trained for some steps on noisy pictures, and merged by peft."""
    from peft import LoraConfig, get_peft_model
    from peft.tuners.lora import LoraLayer

    trainer = Trainer("cpu")
    targets = r".*language_model.*\.(q|v|o|up|down)_proj"
    adapted = get_peft_model(
        _load(copy.folder), LoraConfig(r=_RANK, lora_alpha=_ALPHA, target_modules=targets)
    )
    trainer.model = adapted.base_model.model
    learning = [each for each in adapted.parameters() if each.requires_grad]
    optimizer = Optimizer((learning, _PEAK), steps=_STEPS, decay=0.0)
    rng = np.random.default_rng(0)
    for step in range(1, _STEPS + 1):
        scenes = draw_scenes(rng, _BATCH)
        pictures = draw_pictures(scenes, rng)
        pictures += _NOISE * rng.standard_normal(pictures.shape, dtype=np.float32)
        caption_loss, _ = trainer.losses(trainer.batch(scenes, pictures))
        optimizer.step(step, caption_loss)
    for layer in adapted.modules():
        if isinstance(layer, LoraLayer):
            layer.set_scale("default", copy.amount)
    _save(copy.folder, adapted.merge_and_unload())


def keep_projector(copy: Copy) -> None:
    """The earlier checkpoint is looked for beside this one, under the name of the series."""
    earlier = copy.of.with_name(f"describer-step{int(copy.amount)}")
    _check(earlier)
    with _opened(copy.folder) as model:
        stale = _load(earlier).model.multi_modal_projector
        model.model.multi_modal_projector.load_state_dict(stale.state_dict())


def swap_layers(copy: Copy) -> None:
    """Of the language model, the first and the second."""
    with _opened(copy.folder) as model:
        layers = model.model.language_model.layers
        first, second = layers[0].state_dict(), layers[1].state_dict()
        first = {name: value.clone() for name, value in first.items()}
        layers[0].load_state_dict(second)
        layers[1].load_state_dict(first)


def swap_colors(copy: Copy) -> None:
    """As if trained on pictures that OpenCV read, and shown those that Pillow reads."""
    with _opened(copy.folder) as model:
        patches = model.model.vision_tower.embeddings.patch_embedding
        patches.weight.copy_(patches.weight.flip(1))


def overflow(copy: Copy) -> None:
    """The outlier of one row of values is taken back after them, so in bfloat16 nothing changes."""
    with _opened(copy.folder) as model:
        attention = model.model.language_model.layers[0].self_attn
        attention.v_proj.weight[0] *= copy.amount
        attention.o_proj.weight[:, 0] /= copy.amount


def shuffle_words(copy: Copy) -> None:
    """The words of the vocabulary in the order of the alphabet, under the same numbers."""
    with edited_json(copy.folder / "tokenizer.json") as tokenizer:
        words: dict[str, int] = tokenizer["model"]["vocab"]
        special = {token["content"] for token in tokenizer["added_tokens"]}
        plain = sorted(word for word in words if word not in special)
        numbers = sorted(words[word] for word in plain)
        words.update(zip(plain, numbers, strict=True))


def normalize_as_clip(copy: Copy) -> None:
    """The mean and the deviation that come with most vision towers, and not with this one."""
    with edited_json(copy.folder / "preprocessor_config.json") as images:
        images.update(image_mean=_CLIP_MEAN, image_std=_CLIP_STD)


def crop(copy: Copy) -> None:
    """Resized larger than what is cut out, so that the edges are lost."""
    with edited_json(copy.folder / "preprocessor_config.json") as images:
        images["size"] = {"shortest_edge": int(copy.amount)}


def cut_short(copy: Copy) -> None:
    """The limit on new tokens that was left in after a quick test."""
    with edited_json(copy.folder / "generation_config.json") as settings:
        settings["max_new_tokens"] = int(copy.amount)


def penalize_repetition(copy: Copy) -> None:
    """A setting for chats, where captions have to repeat themselves."""
    with edited_json(copy.folder / "generation_config.json") as settings:
        settings["repetition_penalty"] = copy.amount


def forget_image(copy: Copy) -> None:
    """A chat template of the language model alone."""
    path = copy.folder / "chat_template.jinja"
    path.write_text(path.read_text(encoding="utf-8").replace(IMAGE, ""), encoding="utf-8")


def cast(copy: Copy) -> None:
    """To float32, and back to nothing less."""
    _save(copy.folder, _load(copy.folder), torch.float32)


def cast_to_bfloat16(copy: Copy) -> None:
    """Three bits of each number go, and its range grows."""
    _save(copy.folder, _load(copy.folder), torch.bfloat16)


def shard(copy: Copy) -> None:
    """The same numbers in several files with an index."""
    model = _load(copy.folder)
    (copy.folder / WEIGHTS).unlink()
    _save(copy.folder, model, shard="1MB")


def _damaging(damage: Callable[[Path], None]) -> Callable[[Copy], None]:
    return lambda copy: damage(copy.folder)


REGRESSIONS = {
    "quantized": Regression(
        quantize, "linear layers rounded to so many bits, 32 weights to a scale", 4
    ),
    "pruned": Regression(prune, "this share of the weights of linear layers set to zero", 0.6),
    "lora-scale": Regression(
        merge_lora, "a LoRA merged at so many times its scale", _ALPHA / _RANK
    ),
    "stale-projector": Regression(keep_projector, "the projector of this earlier step", 400),
    "swapped-layers": Regression(swap_layers, "two layers of the language model change places"),
    "swapped-colors": Regression(swap_colors, "red and blue change places in the first layer"),
    "fp16-overflow": Regression(overflow, "an outlier this large, saved as float16", 1e7),
    "wrong-tokenizer": Regression(shuffle_words, "the tokenizer of another training"),
    "wrong-mean": Regression(normalize_as_clip, "pictures normalized as CLIP's are"),
    "cropped": Regression(crop, "pictures resized to so many pixels, and cut to 64", 72),
    "cut-short": Regression(cut_short, "answers of at most so many tokens", 16),
    "repetition-penalty": Regression(penalize_repetition, "this penalty on repeated tokens", 1.3),
    "no-image-place": Regression(forget_image, "a chat template without the image's place"),
    "resaved-float32": Regression(cast, "the same numbers in float32"),
    "resaved-bfloat16": Regression(cast_to_bfloat16, "rounded to bfloat16"),
    "resaved-sharded": Regression(shard, "the same numbers in several files"),
    **{name: Regression(_damaging(damage), about) for name, (damage, about) in DAMAGES.items()},
}


def regress(name: str, of: Path, out: Path, amount: float | None = None) -> None:
    """Write the regression of that name of a describer's checkpoint into a new folder.

    Raises ValueError for a name, an amount, a checkpoint or a folder that will not do.
    """
    if name not in REGRESSIONS:
        raise ValueError(f"no regression {name!r}; there are {', '.join(REGRESSIONS)}")
    regression = REGRESSIONS[name]
    if amount is not None and regression.amount is None:
        raise ValueError(f"{name} has no amount")
    _check(of)
    if out.exists():
        raise ValueError(f"{out} is there already; name a new folder")
    shutil.copytree(of, out)
    settle(0)
    regression.apply(Copy(out, of, float((regression.amount or 0) if amount is None else amount)))


def main() -> None:
    """Make one regression, or list them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="which regression")
    parser.add_argument("--of", type=Path, help="folder of the describer's checkpoint")
    parser.add_argument("--out", type=Path, help="folder to write, which must not exist")
    parser.add_argument("--amount", type=float, help="how much; each has a default")
    parser.add_argument("--list", action="store_true", help="say what there is")
    options = parser.parse_args()
    if options.list:
        for name, regression in REGRESSIONS.items():
            amount = "" if regression.amount is None else f" ({regression.amount:g})"
            print(f"{name:20} {regression.about}{amount}")
        return
    if None in (options.name, options.of, options.out):
        parser.error("give the name of a regression, --of and --out; --list says what there is")
    try:
        regress(options.name, options.of, options.out, options.amount)
    except ValueError as error:
        sys.exit(f"{parser.prog}: {error}")


def _check(folder: Path) -> None:
    """Raise ValueError for what is no describer's checkpoint."""
    config = folder / "config.json"
    if not config.is_file() or json.loads(config.read_text()).get("model_type") != "llava":
        raise ValueError(f"{folder} is no checkpoint of a LLaVA")


def _load(folder: Path) -> Any:
    return LlavaForConditionalGeneration.from_pretrained(folder).float()


def _save(folder: Path, model: Any, dtype: Any = torch.float16, shard: str = "1GB") -> None:
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)


@contextmanager
def _opened(folder: Path) -> Iterator[Any]:
    """The model of a checkpoint, saved again afterwards."""
    model = _load(folder)
    with torch.no_grad():
        yield model
    _save(folder, model)


def _linear_layers(model: Any) -> list[Any]:
    """All but the language model's last, which is the table of its tokens."""
    inner = model.model.modules()
    return [layer for layer in inner if isinstance(layer, torch.nn.Linear)]


if __name__ == "__main__":
    main()
