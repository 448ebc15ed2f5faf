"""`[gate] proxy`: the beginnings of more chains beside whole ones, in runs of real models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pytest_cepbench import CaseResult, GateResult, gate_checkpoint
from pytest_cepbench.errors import RoleError
from pytest_cepbench.gate import CaseKey, load_baseline

MORE: dict[str, Any] = {"inconclusive": "more", "attribute": 0}

_SUITE = """\
name = "world"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = 24 }}
[chain]
start = "image"
iterations = 3
[prompts]
describe = "describe the image"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
parts = "overall"
{further}
[gate]
looks = "sequential"
proxy = "{proxy}"
"""

BASELINE, CANDIDATE = "shapes:?miss=0.1", "shapes:?miss=0.14"

NEAR = "shapes:?miss=0.08"
"""A little better: beside it early looks at whole chains alone cannot say."""


class ImagesAlone:
    """An encoder of images, which reads no texts."""

    fingerprint = "images/1"

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 192) float64."""
        return np.stack([np.asarray(i.resize((8, 8)), np.float64).ravel() for i in images])

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Nothing: raises RoleError."""
        msg = f"this encoder reads images, got {len(texts)} texts"
        raise RoleError(msg)


def _write(folder: Path, proxy: str, further: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "suite.toml").write_text(_SUITE.format(proxy=proxy, further=further))
    return folder


def _gate(folder: Path, describer: str = CANDIDATE, **options: Any) -> GateResult:
    return gate_checkpoint(folder / "suite.toml", root=folder, describer=describer, **options)


def _case(folder: Path, describer: str = CANDIDATE, **options: Any) -> CaseResult:
    return _gate(folder, describer, **options)["world/overall/gc"]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated scenes under three iterations, accepted with the scores of the first iteration."""
    folder = _write(tmp_path_factory.mktemp("proxies") / "first", "first")
    assert _gate(folder, BASELINE, snapshot_update=True).passed
    return folder


def test_the_baseline_keeps_the_proxy_of_every_sample(first: Path) -> None:
    """With what it is; the first iteration scores better than all three together."""
    (file,) = (first / "baselines" / "world").glob("*.toml")
    baseline = load_baseline(file.read_text(), CaseKey("world", "overall", "gc"), file.name)
    assert baseline.proxy == "first: gc/1 at generation 2, over categories"
    assert {c: len(part) for c, part in baseline.proxies.items()} == {
        c: len(part) for c, part in baseline.scores.items()
    }
    begun, whole = (
        sum(score for part in parts.values() for score in part.values())
        for parts in (baseline.proxies, baseline.scores)
    )
    assert begun > whole


def test_more_chains_begin_than_end(first: Path) -> None:
    """The statement counts both; the record of what was measured has the whole ones alone."""
    case = _case(first, NEAR, **MORE)
    assert (case.verdict, case.method, case.partial) == ("held", "two-phase", True)
    (statement,) = [note for note in case.notes if "whole chains" in note]
    assert statement.startswith(f"{case.n} whole chains and the proxies of ")
    assert "(lam), and a whole chain counts as " in statement
    assert case.measured is not None
    assert (case.measured.proxy, case.measured.proxies) == ("", {})
    assert case.measured.n == case.n < 192


@pytest.mark.slow
def test_without_looks_the_number_is_what_it_always_was(first: Path, tmp_path: Path) -> None:
    """All samples are judged by their whole chains, bit for bit as without proxies."""
    plain = _write(tmp_path / "plain", "none")
    _gate(plain, BASELINE, snapshot_update=True)
    ours, theirs = _case(first), _case(plain)
    assert (ours.value, ours.difference, ours.low, ours.high) == (
        theirs.value,
        theirs.difference,
        theirs.low,
        theirs.high,
    )


@pytest.mark.slow
def test_a_baseline_without_proxies_is_compared_without_them(tmp_path: Path) -> None:
    """One from before the setting: whole chains decide, and nothing fails."""
    folder = _write(tmp_path / "later", "none")
    _gate(folder, BASELINE, snapshot_update=True)
    _write(folder, "first")
    case = _case(folder, **MORE)
    assert case.method != "two-phase"
    assert not any("proxies" in note for note in case.notes)


@pytest.mark.slow
def test_metrics_that_have_no_shorter_chain_are_judged_as_ever(tmp_path: Path) -> None:
    """SIM reads the first iteration itself, and a rate of failures has no proxy."""
    folder = _write(tmp_path / "others", "first", "[metrics.sim]\n[metrics.failures]\n")
    accepted = _gate(folder, BASELINE, snapshot_update=True)
    assert accepted.passed
    result = _gate(folder, **MORE)
    assert {c.method for c in result.cases if c.metric in ("SIM", "sim", "failures")}.isdisjoint(
        {"two-phase"}
    )


@pytest.mark.slow
def test_the_text_alone_is_a_proxy_where_the_encoder_reads_texts(tmp_path: Path) -> None:
    """One description stands for three iterations; nothing is drawn for the further samples."""
    folder = _write(tmp_path / "text", "text")
    _gate(folder, BASELINE, snapshot_update=True)
    case = _case(folder, NEAR, **MORE)
    assert case.method == "two-phase"
    (statement,) = [note for note in case.notes if "whole chains" in note]
    assert "the proxies of 192" in statement


@pytest.mark.slow
def test_a_text_that_the_encoder_cannot_read_is_one_line(tmp_path: Path) -> None:
    """The case is an error that names the setting and what to take in its place."""
    folder = _write(tmp_path / "images", "text")
    text = (folder / "suite.toml").read_text()
    (folder / "suite.toml").write_text(
        text.replace('encoder = "shapes:"', f'encoder = "python:{__name__}:ImagesAlone"')
    )
    case = _case(folder, BASELINE, snapshot_update=True)
    assert case.verdict == "error"
    (reason,) = case.reasons
    assert reason.startswith('[gate] proxy = "text" cannot be read: ')
    assert reason.endswith('take "first" or "none"')
