"""Fixtures of the suites' acceptance tests: tiny checkpoints of the published architectures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_cepbench.datasets.geneval import load_geneval
from tests.acceptance.suites.project import Project

Checkpoint = Callable[[str], Path]

MakeProject = Callable[..., Project]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The folder or file of a tiny checkpoint by name, built at the first call."""
    for package in ("torch", "diffusers", "timm", "cleanfid", "sentence_transformers"):
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
        text_encoders,
        weights_files,
    )

    return {
        "llava": describers.build_llava,
        "llava-later": partial(describers.build_llava, seed=1),
        "qwen2-vl": describers.build_qwen2_vl,
        "stable-diffusion": generators.build_stable_diffusion,
        "stable-diffusion-later": partial(generators.build_stable_diffusion, seed=121),
        "sd3": generators.build_sd3,
        "flux": generators.build_flux,
        "vit": partial(encoders.build_vit, pooler=True),
        "clip": encoders.build_clip,
        "dino": encoders.build_timm_vit,
        "mpnet": text_encoders.build_sentence_transformer,
        "unicom": lambda path: weights_files.build_unicom(path / "FP16-ViT-L-14-336px.pt"),
        "inception": weights_files.build_inception,
        "owlv2": partial(detectors.build_owl, version=2),
        "mask2former-of-two": lambda path: detectors.favour(
            detectors.build_mask2former(path, classes=geneval_objects()), "umbrella", "scissors"
        ),
    }


@pytest.fixture(scope="module")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> MakeProject:
    """Make a project with copies of these shipped suites."""
    return lambda *suites: Project.create(tmp_path_factory.mktemp("project"), *suites)
