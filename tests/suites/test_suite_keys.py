"""Typos in suite files and names: each answers with the nearest that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import SpecError, SuiteError, did_you_mean, nearest_name, unknown_name
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.suites.definition import load_suite
from tests.plugin.project import SHAPES


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("version = 1", "version = 1\ndescripton = 'x'", "description"),
        ('gate = "threshold"', "tolerence = 0.1", "tolerance"),
        ('gate = "threshold"', 'gate = "treshold"', "threshold"),
        ("iterations = 2", "iteration = 2", "iterations"),
        ("iterations = 2", 'start = "images"', "image"),
        ("[metrics.gc]", "[metrics.gc]\nencodr = 'x'", "encoder"),
        ("[metrics.gc]", "[metrics.gc]\npool = 'sample'", "samples"),
        ("[metrics.gc]", "[metrics.mgg]\nrules = 'mgg_code'\n[metrics.gc]", "mgg-code"),
        ("[metrics.gc]", "[metrics.gc-fid]\n[metrics.gc]", "gc_fid"),
        ("[metrics.gc]", "[cases.'color/gc']\nwieght = 2\n[metrics.gc]", "weight"),
        ("[metrics.gc]", "[presets.x]\nmodell = 'm'\n[metrics.gc]", "model"),
    ],
)
def test_a_typo_in_a_suite_file(tmp_path: Path, old: str, new: str, meant: str) -> None:
    """Of a key, of one of a few words, of a metric; at the top, in a table, in one of several."""
    assert old in SHAPES
    path = tmp_path / "suite.toml"
    path.write_text(SHAPES.replace(old, new))
    with pytest.raises(SuiteError, match=f"Did you mean '{meant}'"):
        load_suite(path)


@pytest.mark.parametrize(("written", "meant"), [("shape:", "shapes"), ("openia:m", "openai")])
def test_a_typo_in_a_scheme(written: str, meant: str) -> None:
    """Not a folder of that name, and not a hub id that would be asked for."""
    with pytest.raises(SpecError, match=f"unknown scheme .* Did you mean '{meant}'"):
        parse_spec(written)


def test_what_is_like_no_scheme_is_a_folder_or_hub_id() -> None:
    """As are folders that are there, whatever they are called."""
    assert parse_spec("runs:2026/step-1").scheme == ""
    assert parse_spec("org/model").scheme == ""


def test_the_nearest_name() -> None:
    """Upper and lower case are alike; what is like nothing has none."""
    assert nearest_name("GC_fid", ["gc", "gc_fid"]) == "gc_fid"
    assert nearest_name("zebra", ["gc", "gc_fid"]) is None
    assert nearest_name("encoders", ["encoder", "decoder"], cutoff=0.99) is None
    assert did_you_mean("zebra", ["gc"]) == ""
    assert unknown_name("metric", "gcs", ["s", "gc"]) == (
        "unknown metric 'gcs'. Did you mean 'gc'? Known: gc, s."
    )
