"""Fixtures of the acceptance tests: photographs in folders, tiny checkpoints, users' projects."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_cepbench.datasets.geneval import load_geneval
from tests.acceptance.suites.project import Project

PHOTOS = {
    "people": ("astronaut.png",),
    "animals and things": ("chelsea.png", "rocket.jpg"),
    "science/sky": ("hubble_deep_field.jpg",),
    "science/medicine": ("retina.jpg",),
    "greys": ("camera.png",),
}
"""Photographs that scikit-image ships, as a user might sort them."""

Checkpoint = Callable[[str, str], str]

Tiny = Callable[[str], Path]

MakeProject = Callable[..., Project]


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
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The folder or file of a tiny checkpoint by name, built and saved at the first call."""
    libraries = ("torch", "transformers", "diffusers", "open_clip", "timm", "cleanfid")
    for package in (*libraries, "sentence_transformers"):
        if find_spec(package) is None:
            pytest.skip(f"real checkpoints need the [models] extra ({package} is not installed)")
    root = tmp_path_factory.mktemp("tiny")
    built: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in built:
            import diffusers  # noqa: F401 - quiet() reaches the libraries that are imported

            from pytest_cepbench.models.torch_runtime import quiet

            with quiet():
                built[name] = _builders()[name](root / name)
        return built[name]

    return build


@pytest.fixture(scope="module")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> MakeProject:
    """Make a project with copies of these shipped suites."""
    return lambda *suites: Project.create(tmp_path_factory.mktemp("project"), *suites)


@pytest.fixture(scope="session")
def checkpoint(tiny: Tiny) -> Checkpoint:
    """The spec of a tiny checkpoint by role and family."""

    def spec(role: str, family: str) -> str:
        folder = tiny(family)
        from tests.tiny import generators, unified

        parameters = {
            "describer": "max_new_tokens=8&batch_size=4",
            "generator": f"{generators.DRAW.get(family, '')}&batch_size=4",
            "unified": f"{unified.DRAW.get(family, '')}&max_new_tokens=8".removeprefix("&"),
            "encoder": "",
        }[role]
        return f"{folder}?{parameters}" if parameters else str(folder)

    return spec


def geneval_objects() -> list[str]:
    """The classes of GenEval's prompts."""
    single = load_geneval().in_category("single_object")
    return [sample.metadata["include"][0]["class"] for sample in single]


def _builders() -> dict[str, Callable[[Path], Path]]:
    from tests.tiny import (
        describers,
        detectors,
        encoders,
        generators,
        unified,
        weights_files,
    )

    return {
        **describers.BUILDERS,
        **unified.BUILDERS,
        "llava-later": partial(describers.build_llava, seed=1),
        "stable-diffusion": generators.build_stable_diffusion,
        "stable-diffusion-later": partial(generators.build_stable_diffusion, seed=121),
        "sd3": generators.build_sd3,
        "sdxl": generators.build_sdxl,
        "flux": generators.build_flux,
        "pixart": generators.build_pixart,
        "vit": partial(encoders.build_vit, pooler=True),
        "clip": encoders.build_clip,
        "siglip": encoders.build_siglip,
        "dinov2": encoders.build_dinov2,
        "open-clip": encoders.build_open_clip,
        "dino": encoders.build_timm_vit,
        "mpnet": encoders.build_sentence_transformer,
        "unicom": lambda path: weights_files.build_unicom(path / "FP16-ViT-L-14-336px.pt"),
        "inception": weights_files.build_inception,
        "owlv2": partial(detectors.build_owl, version=2),
        "mask2former-of-two": lambda path: detectors.favour(
            detectors.build_mask2former(path, classes=geneval_objects()), "umbrella", "scissors"
        ),
    }
