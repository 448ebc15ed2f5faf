"""Draw scenes of the embedded world, whose patterns are known: python draw_scenes.py FOLDER."""

import sys
from pathlib import Path

from pytest_cepbench.datasets.shapes import load_shapes

folder = Path(sys.argv[1])
folder.mkdir()
for sample in load_shapes(samples_per_category=8, seed=3).samples:
    sample.image.load().to_pil().save(folder / f"{sample.id.replace('/', '-')}.png")
