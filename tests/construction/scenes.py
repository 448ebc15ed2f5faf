"""Images whose patterns are known: scenes of the embedded world as files."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.artifacts import read_image
from pytest_cepbench.datasets.shapes import Scene, load_shapes, sample_scene
from pytest_cepbench.datasets.shapes.samples import scene_patterns


def write_scenes(folder: Path, number: int = 60) -> dict[str, tuple[str, ...]]:
    """Write so many scenes as PNG; returns the patterns of each by the digest of its image."""
    folder.mkdir(parents=True, exist_ok=True)
    truth: dict[str, tuple[str, ...]] = {}
    for name, scene, path in _scenes(folder, number):
        assert name
        truth[read_image(path).digest] = scene_patterns(scene)
    return truth


def _scenes(folder: Path, number: int) -> list[tuple[str, Scene, Path]]:
    samples = load_shapes(-(-number // 8), 3).samples[:number]
    written = []
    for sample in samples:
        path = folder / f"{sample.id.replace('/', '-')}.png"
        assert sample.image is not None
        sample.image.load().to_pil().save(path)
        written.append((sample.id, sample_scene(sample), path))
    return written
