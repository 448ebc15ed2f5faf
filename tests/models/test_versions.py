"""What is said where a library is too old for what a spec asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.models.torch_runtime import has, need
from tests.models.binding import bind_text
from tests.models.files import VIT, write_checkpoint

pytest.importorskip("transformers", reason="needs the [models] extra")


def test_a_missing_feature_is_one_line() -> None:
    """It names the feature, the version found and the one needed."""
    need("a feature", "numpy", "1.26")
    with pytest.raises(MissingDependencyError, match=r"a feature needs numpy >= 99, and \d\S+ is"):
        need("a feature", "numpy", "99")


def test_a_setting_that_would_be_passed_over_is_refused(tmp_path: Path) -> None:
    """Wherever it stands: transformers 4 ignores it, and would turn positions as by default."""
    folder = write_checkpoint(tmp_path / "m", {**VIT, "text_config": {"rope_parameters": {}}})
    if has("transformers", "5.0"):
        assert bind_text(str(folder), "encoder").fingerprint
    else:
        with pytest.raises(MissingDependencyError, match=r"rope_parameters .* transformers >= 5"):
            bind_text(str(folder), "encoder")
