"""Fixtures of the acceptance tests: photographs in folders, tiny checkpoints of every family."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

PHOTOS = {
    "people": ("astronaut.png",),
    "animals and things": ("chelsea.png", "coffee.png", "rocket.jpg"),
    "science/sky": ("hubble_deep_field.jpg",),
    "science/medicine": ("retina.jpg", "ihc.png"),
    "greys": ("camera.png", "coins.png"),
}
"""Photographs that scikit-image ships, as a user might sort them."""

Checkpoint = Callable[[str, str], str]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of real photographs of several sizes and modes, in nested sub-folders."""
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        pytest.skip("the photographs come with scikit-image, which is not installed")
    source = Path(spec.origin).parent / "data"
    root = tmp_path_factory.mktemp("photos")
    for folder, names in PHOTOS.items():
        (root / folder).mkdir(parents=True)
        for name in names:
            shutil.copy(source / name, root / folder / name)
    return root


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The spec of a tiny checkpoint by role and family, built and saved at the first call."""
    for package in ("torch", "transformers", "diffusers", "open_clip"):
        if find_spec(package) is None:
            pytest.skip(f"real checkpoints need the [models] extra ({package} is not installed)")
    root = tmp_path_factory.mktemp("checkpoints")

    def spec(role: str, family: str) -> str:
        import diffusers  # noqa: F401 - quiet() reaches the libraries that are imported

        from pytest_cepbench.models.torch_runtime import quiet
        from tests.tiny import describers, encoders, generators, unified

        folder = root / role / family
        builders: dict[str, Callable[[Path], Path]] = {
            **describers.BUILDERS,
            **unified.BUILDERS,
            "stable-diffusion": generators.build_stable_diffusion,
            "sdxl": generators.build_sdxl,
            "pixart": generators.build_pixart,
            "clip": encoders.build_clip,
            "siglip": encoders.build_siglip,
            "dinov2": encoders.build_dinov2,
            "vit": lambda path: encoders.build_vit(path, pooler=True),
            "open-clip": encoders.build_open_clip,
        }
        if not folder.exists():
            with quiet():
                builders[family](folder)
        parameters = {
            "describer": "max_new_tokens=8&batch_size=4",
            "generator": f"{generators.DRAW.get(family, '')}&batch_size=4",
            "unified": f"{unified.DRAW.get(family, '')}&max_new_tokens=8".removeprefix("&"),
            "encoder": "",
        }[role]
        return f"{folder}?{parameters}" if parameters else str(folder)

    return spec
