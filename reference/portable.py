"""Checkpoints as transformers 4.51 and all later releases read them.

transformers 5 writes other names into files than 4, which does not know them; it reads both.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import transformers
from safetensors.torch import load_file, save_file

_TOWERS = {"llava": ("vision_tower.", "vision_model."), "clip_text_model": ("", "text_model.")}
"""By model_type: the part whose tensors had one level more, and that level."""


def pil(name: str) -> Any:
    """An image processor of NumPy and Pillow, which transformers 5.4 gave a name of its own."""
    return getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)


def make_portable(folder: Path) -> None:
    """Rewrite a folder of transformers' or a pipeline's folders, in place."""
    for path in folder.rglob("config.json"):
        config = _read(path)
        if config.get("model_type") in _TOWERS:
            _rename(path.parent / "model.safetensors", *_TOWERS[config["model_type"]])
        _write(path, _earlier(config))
    for path in folder.rglob("processor_config.json"):
        config = _read(path)
        if "image_processor" not in config:
            continue
        _write(path.with_name("preprocessor_config.json"), config.pop("image_processor"))
        config.pop("video_processor", None)  # the pictures' settings are its, too
        _write(path, config)
    for path in folder.rglob("tokenizer_config.json"):
        config = _read(path)
        if config.pop("backend", None) is None:
            continue
        if config["tokenizer_class"] == "TokenizersBackend":
            config["tokenizer_class"] = "PreTrainedTokenizerFast"
            config["model_input_names"] = ["input_ids", "attention_mask"]
            names = [name for name in ("image_token", "video_token") if name in config]
            config["extra_special_tokens"] = {name: config[name] for name in names}
        else:
            model = _read(path.with_name("tokenizer.json"))["model"]
            _write(path.with_name("vocab.json"), model["vocab"])
            merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
            path.with_name("merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
        _write(path, config)


def _rename(path: Path, part: str, level: str) -> None:
    tensors = load_file(path)
    pattern = re.compile(rf"{re.escape(part)}(?!{re.escape(level)})")
    renamed = {
        pattern.sub(part + level, n, count=1) if pattern.match(n) else n: t
        for n, t in tensors.items()
    }
    save_file(renamed, path, {"format": "pt"})


def _earlier(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration under the names that transformers 4 wrote."""
    config = {k: _earlier(v) if isinstance(v, dict) else v for k, v in config.items()}
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    if rope := config.pop("rope_parameters", None):
        config["rope_theta"] = rope["rope_theta"]
        if "mrope_section" in rope:
            config["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    if config.get("model_type") == "qwen2_vl" and "text_config" in config:
        text = config.pop("text_config")
        kept = {k: v for k, v in text.items() if k not in ("model_type", "layer_types")}
        config = {**kept, **config}
        config["vision_config"]["model_type"] = "qwen2_vl"
    return config


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, sort_keys=path.name != "vocab.json", ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
