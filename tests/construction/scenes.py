"""Images whose patterns are known: scenes of the embedded world as files."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.artifacts import read_image
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes, sample_scene
from pytest_cepbench.datasets.shapes.samples import scene_patterns


def write_scenes(folder: Path, number: int = 60) -> dict[str, tuple[str, ...]]:
    """Write so many scenes as PNG; returns the patterns of each by the digest of its image."""
    folder.mkdir(parents=True, exist_ok=True)
    truth: dict[str, tuple[str, ...]] = {}
    for sample in load_shapes(-(-number // 8), 3).samples[:number]:
        path = folder / f"{sample.id.replace('/', '-')}.png"
        load_seed_image(sample).to_pil().save(path)
        truth[read_image(path).digest] = scene_patterns(sample_scene(sample))
    return truth
