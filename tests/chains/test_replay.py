"""Chains that another tool has generated: read as far as its files hold them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains import Chain, ChainModels, ChainPlan, RoleRunner, load_link
from pytest_cepbench.chains.features import trace
from pytest_cepbench.chains.growth import look_ahead, replay_chains
from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.errors import DatasetError, ImageError
from pytest_cepbench.store import Store
from tests.artifacts.files import encoded, noise
from tests.chains.roles import PLAN, TEXT_PLAN, SmallEncoder, bound, samples
from tests.datasets.files import open_chains, put_table

CAPTIONS = {"s00": "a red bus", "s01": "a blue cup", "s02": "a green dog"}


def _picture(root: Path, name: str, seed: int) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(Image.fromarray(noise(6, 8, seed=seed)), "PNG"))
    return path


def _written(root: Path, captions: dict[str, str]) -> Path:
    """Image-first chains of three samples over two iterations, in the layout of SDP's code."""
    chains = root / "made" / "image-first"
    for generation in (1, 3):
        rows = [[name, text] for name, text in captions.items()]
        put_table(chains / f"gen-{generation}.csv", [["filename", "caption"], *rows])
        for seed, name in enumerate(CAPTIONS):
            _picture(chains, f"gen-{generation + 1}/{name}.png", 10 * generation + seed)
    return root / "made"


def _read(root: Path, store: Store, plan: ChainPlan = PLAN) -> list[Chain]:
    return replay_chains(plan, samples(3), open_chains(root), store)


def test_whole_chains_are_those_of_the_files(store: Store, tmp_path: Path) -> None:
    """Start from the data set, texts and pictures from the files, each known by its content;
    reasoning is no part of a description, whoever has written it. A picture that is gone is named
    when it is needed; a start that is gone is the data set's mistake, as for chains that are grown.
    """
    root = _written(tmp_path, {**CAPTIONS, "s01": f"is it?</think>{CAPTIONS['s01']}"})
    chains = _read(root, store)
    for seed, chain in enumerate(chains):
        assert chain.failure is None
        assert [link.kind for link in chain.links] == ["image", "text", "image", "text", "image"]
        text = CAPTIONS[chain.sample.id]
        assert (chain.links[1].text, chain.links[1].digest) == (text, digest_text(text))
        picture = load_link(chain, 4, store)
        assert np.array_equal(np.asarray(picture), noise(6, 8, seed=30 + seed))
        assert {link.key for link in chain.links} == {None}

    (root / "image-first" / "gen-2" / "s00.png").unlink()
    with pytest.raises(ImageError, match="s00, generation 2: cannot be read: No such file"):
        load_link(chains[0], 2, store)
    broken = replace(samples(3)[0], image=FileImage(tmp_path / "gone.png"))
    with pytest.raises(DatasetError, match="1 of 1 samples cannot be used"):
        replay_chains(PLAN, [broken], open_chains(root), store)


@pytest.mark.parametrize(
    ("spoil", "generation", "kind", "detail"),
    [
        ("gone picture", 2, "missing", "holds no image of it"),
        ("gone caption", 1, "missing", "holds no text of it"),
        ("empty caption", 1, "empty-text", "no text at all"),
        ("blank caption", 1, "empty-text", "nothing but white space"),
        ("thinking caption", 1, "only-reasoning", "no answer beside the reasoning"),
        ("no picture", 2, "bad-image", "not an image of a known format"),
        ("black picture", 2, "blank-image", "every pixel is black"),
    ],
)
def test_what_is_missing_or_spoilt_is_a_failure_of_that_chain(
    store: Store, tmp_path: Path, spoil: str, generation: int, kind: str, detail: str
) -> None:
    """Counted at its generation, never dropped; the chain ends there and the others go on."""
    captions = dict(CAPTIONS)
    if spoil == "gone caption":
        del captions["s01"]
    elif spoil.endswith("caption"):
        odd = {"empty caption": "", "blank caption": " \t", "thinking caption": "<think>a bus"}
        captions["s01"] = odd[spoil]
    root = _written(tmp_path, captions)
    picture = root / "image-first" / "gen-2" / "s01.png"
    if spoil == "gone picture":
        picture.unlink()
    elif spoil == "no picture":
        picture.write_text("no picture")
    elif spoil == "black picture":
        picture.write_bytes(encoded(Image.new("RGB", (8, 6)), "PNG"))
    for _ in range(2):  # as it is remembered, too
        before, actual, after = _read(root, store)
        assert (before.failure, after.failure) == (None, None)
        assert actual.failure is not None
        assert (actual.failure.kind, actual.failed_at) == (kind, generation)
        assert detail in actual.failure.detail
        assert len(actual.links) == generation


def test_texts_that_a_layout_never_holds_are_links_not_recorded(
    store: Store, tmp_path: Path
) -> None:
    """GenCeption's pictures without its pickled texts: no failure, and the pictures compare.

    No step is pending: what is known of the chains are their artifacts.
    """
    for seed, name in enumerate(CAPTIONS):
        for iteration in (0, 1):
            _picture(tmp_path / "made", f"{name}_{iteration}.png", 10 * iteration + seed)
    chains = _read(tmp_path / "made", store)
    for chain in chains:
        assert chain.failure is None
        assert [chain.has(generation) for generation in range(6)] == [
            True, False, True, False, True, False,
        ]  # fmt: skip
        assert (chain.links[1].kind, chain.links[1].text) == ("text", None)
    runner = RoleRunner(bound("encoder", SmallEncoder()), store)
    assert all(0 not in item.similarities for item in trace(chains, (2, 4), runner, store))
    replay = open_chains(tmp_path / "made")
    pending = look_ahead(PLAN, samples(3), ChainModels(None, None, store), replay)
    assert [(chain.stored, chain.missing) for chain in pending] == [((), ())] * 3
    assert [[digest is None for digest in chain.digests] for chain in pending] == [
        [False, True, False, True, False]
    ] * 3


def test_text_first_chains_start_from_the_data_sets_texts(store: Store, tmp_path: Path) -> None:
    """Only the asked length is read, whatever else the files hold."""
    for generation in (1, 3):
        for seed, name in enumerate(CAPTIONS):
            _picture(tmp_path / "made" / "text-first", f"gen-{generation}/{name}.png", seed)
    rows = [[name, text] for name, text in CAPTIONS.items()]
    put_table(tmp_path / "made" / "text-first" / "gen-2.csv", [["filename", "caption"], *rows])
    chains = _read(tmp_path / "made", store, replace(TEXT_PLAN, generations=2))
    assert [chain.links[0].text for chain in chains] == ["text 0", "text 1", "text 2"]
    assert [[link.kind for link in chain.links] for chain in chains] == [
        ["text", "image", "text"]
    ] * 3
