"""Chains of sounds: grown, compared, kept and repaired as those of images are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Sound
from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.chains.features import Trace, trace
from pytest_cepbench.chains.growth import ChainGroup, ChainModels
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.tones import load_tones, parse_sound, parse_text
from pytest_cepbench.errors import ModelError
from pytest_cepbench.files import sha256_of
from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.store.artifact_files import list_files
from tests.chains.roles import SmallGenerator, bound, outcomes
from tests.optional import needs

needs("soundfile")

PLAN = ChainPlan("sound", 4, "describe", "{description}", makes="sound")
TEXT_PLAN = replace(PLAN, start="text")

SAMPLES = load_tones(2).samples

RATE = 8_000


def runner(store: Store, role: RoleName) -> RoleRunner:
    """A model of the world of tones."""
    return RoleRunner(bind(parse_spec("tones:"), role, BindContext(sha256_of)), store)


class Run:
    """Chains of tones that are grown and compared with their starts at every generation."""

    def __init__(
        self,
        store: Store,
        plan: ChainPlan = PLAN,
        samples: Sequence[Sample] = SAMPLES,
        generator: RoleRunner | None = None,
    ) -> None:
        describer, encoder = runner(store, "describer"), runner(store, "encoder")
        self.runners = (describer, generator or runner(store, "generator"), encoder)
        models = ChainModels(describer, self.runners[1], store)
        self.traces: list[Trace] = ChainGroup(plan, samples, models).read(
            lambda chains: trace(chains, (1, 2, 3, 4), encoder, store)
        )

    @property
    def asked(self) -> list[int]:
        """Inputs of describer, generator and encoder."""
        return [own.tally.inputs for own in self.runners]


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN])
def test_perfect_models_lose_nothing(store: Store, plan: ChainPlan) -> None:
    """Texts and sounds in turn, each compared with the start, of either kind; all is stored."""
    run = Run(store, plan)
    kinds = ["sound", "text"] if plan is PLAN else ["text", "sound"]
    for own, sample in zip(run.traces, SAMPLES, strict=True):
        assert own.failure is None
        assert own.similarities == pytest.approx((1.0,) * 4)
        assert [link.kind for link in own.chain.links] == [kinds[i % 2] for i in range(5)]
        assert sample.text is not None
        for link in own.chain.links:
            heard = store.get_artifact(link.digest) if link.text is None and link.key else None
            if isinstance(heard, Sound):
                assert parse_sound(heard) == parse_text(sample.text)
    assert {path.suffix for path in _flacs(store)} == {".flac"}
    assert Run(store, plan).asked == [0, 0, 0]


def _flacs(store: Store) -> list[Path]:
    files = list(list_files(store.root))
    assert all(path.stem == digest for path, digest, _ in files)
    return sorted(path for path, _, _ in files)


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda path: path.write_bytes(b"no sound"),
        lambda path: path.write_bytes(path.read_bytes()[:-200]),
        lambda path: path.write_bytes(Sound(np.full(9, 0.5, np.float32), RATE).to_flac()),
    ],
    ids=["deleted", "text", "cut", "another"],
)
def test_lost_sounds_are_made_again(store: Store, spoil: Callable[[Path], Any]) -> None:
    """Where they are needed: with the same numbers, and the damage is noted."""
    first = Run(store, samples=SAMPLES[:4]).traces
    texts = [link.key for own in first for link in own.chain.links[3:4]]
    store.forget([key for key in texts if key is not None], why="tried")
    for path in _flacs(store):
        spoil(path)
    again = Run(store, samples=SAMPLES[:4])
    assert outcomes(again.traces) == outcomes(first)
    assert again.asked[1] > 0
    assert any("damaged or gone" in note for note in store.damage)


# -- what models return --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ((np.zeros(800), RATE), "silent-sound"),
        (Sound(np.zeros(800, np.float32), RATE), "silent-sound"),
        ((np.full(800, np.nan, np.float32), RATE), "nan-sound"),
        ((np.array([0.1, np.inf]), RATE), "nan-sound"),
        ((np.zeros(0), RATE), "bad-sound"),
        ((np.ones((2, 800)), RATE), "bad-sound"),
        ((np.full(800, 3e4), RATE), "bad-sound"),
        ((np.ones(800), 0), "bad-sound"),
        ((np.ones(800), None), "bad-sound"),
        ((np.ones(800), np.inf), "bad-sound"),
        ((np.array(["a"]), RATE), "bad-sound"),
    ],
)
def test_what_is_no_sound_fails_its_chain(store: Store, value: Any, kind: str) -> None:
    """And is never dropped: similarities from there on are 0."""
    player = bound("generator", SmallGenerator(lambda *_: value), makes="sound")
    for own in Run(store, PLAN, SAMPLES[:2], generator=RoleRunner(player, store)).traces:
        assert (own.failure is not None, own.failure and own.failure.kind) == (True, kind)
        assert own.failed_at == 2
        assert own.similarities == pytest.approx((1.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("makes", "value", "words"),
    [
        ("sound", np.full((8, 8, 3), 9, np.uint8), "make sounds, and returned a ImageArtifact"),
        ("image", (np.ones(9) / 2, RATE), "make drawings, and returned a Sound"),
    ],
)
def test_a_model_that_makes_another_kind_is_an_error(
    store: Store, makes: Any, value: Any, words: str
) -> None:
    """It is not stored as what it is not."""
    generator = RoleRunner(bound("generator", SmallGenerator(lambda *_: value), makes=makes), store)
    with pytest.raises(ModelError, match=words):
        Run(store, generator=generator)
