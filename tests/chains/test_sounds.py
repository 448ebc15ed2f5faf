"""Chains of sounds: grown, compared, kept and repaired as those of images are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, Sound
from pytest_cepbench.artifacts.modality import check_sound
from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.chains.chain import load_link
from pytest_cepbench.chains.features import Trace, trace
from pytest_cepbench.chains.growth import ChainGroup, ChainModels
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.datasets.sample import FileSound, Sample
from pytest_cepbench.datasets.tones import load_tones, parse_sound, parse_text
from pytest_cepbench.errors import DatasetError, ModelError, SoundError
from pytest_cepbench.files import sha256_of
from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.store.artifact_files import list_files
from pytest_cepbench.store.remote.location import FolderObjects, open_objects
from pytest_cepbench.store.remote.object_store import artifact_names
from pytest_cepbench.store.remote.sync import inspect_objects
from tests.chains.roles import bound, outcomes

pytest.importorskip("soundfile")

PLAN = ChainPlan("sound", 4, "describe", "{description}", makes="sound")
TEXT_PLAN = replace(PLAN, start="text")

SAMPLES = load_tones(2).samples


def runner(store: Store, role: RoleName, knobs: str = "") -> RoleRunner:
    """A model of the world of tones."""
    spec = parse_spec(f"tones:{knobs}")
    return RoleRunner(bind(spec, role, BindContext(sha256_of)), store)


class Run:
    """Chains of tones that are grown and compared with their starts at every generation."""

    def __init__(
        self,
        store: Store,
        plan: ChainPlan = PLAN,
        samples: Sequence[Sample] = SAMPLES,
        knobs: str = "",
        generator: RoleRunner | None = None,
    ) -> None:
        describer, encoder = runner(store, "describer", knobs), runner(store, "encoder")
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


def _steady(frames: int) -> Sound:
    return Sound(np.full(frames, 0.5, np.float32), 8_000)


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
        lambda path: path.write_bytes(_steady(9).to_flac()),
    ],
    ids=["deleted", "text", "cut", "another"],
)
def test_lost_sounds_are_made_again(store: Store, spoil: Callable[[Path], Any]) -> None:
    """Where they are needed: with the same numbers, and the damage is noted."""
    expected = outcomes(Run(store).traces)
    texts = [link.key for own in Run(store).traces for link in own.chain.links[3:4]]
    store.forget([key for key in texts if key is not None], why="tried")
    for path in _flacs(store):
        spoil(path)
    again = Run(store)
    assert outcomes(again.traces) == expected
    assert again.asked[1] > 0
    assert any("damaged or gone" in note for note in store.damage)


def test_shared_stores_have_sounds(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of another store, and a published one: copied from there by one request."""
    shared = tmp_path / "shared"
    shared.mkdir()
    with Store(tmp_path / "first", publish=shared) as first:
        expected = outcomes(Run(first).traces)
        first.flush()
        assert first.remarks == []
    with Store(tmp_path / "second", [tmp_path / "first"]) as second:
        run = Run(second)
        assert (outcomes(run.traces), run.asked) == (expected, [0, 0, 0])
        made = run.traces[0].chain.links[2].digest
        assert isinstance(second.get_artifact(made), Sound)
    asked: list[str] = []
    read = FolderObjects._read

    def noted(objects: FolderObjects, name: str, seconds: float) -> bytes:
        asked.append(name)
        return read(objects, name, seconds)

    monkeypatch.setattr(FolderObjects, "_read", noted)
    with Store(tmp_path / "third", [shared]) as third:
        run = Run(third)
        assert run.asked == [0, 0, 0]
        chain = run.traces[0].chain
        assert load_link(chain, 2, third) is not None
        assert [name for name in asked if name.startswith("images")] == [artifact_names(made)[1]]
        copied = third.artifact_path(made)
        assert copied.suffix == ".flac"
        assert copied.is_relative_to(third.root)
        assert isinstance(third.get_artifact(made), Sound)
    objects = open_objects(shared, "test", writing=False)
    assert objects is not None
    assert inspect_objects(objects).sound
    (flac,) = [path for path in shared.rglob("*.flac") if path.stem == made]
    flac.write_bytes(b"no sound")
    assert not inspect_objects(objects).sound
    objects.close()


# -- what models return --------------------------------------------------------------------------


class Player:
    """A generator that returns what it is told to."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        """The value for each text."""
        assert len(texts) == len(seeds)
        return [self.value] * len(texts)


RATE = 8_000


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
        ((np.array(["a"]), RATE), "bad-sound"),
    ],
)
def test_what_is_no_sound_fails_its_chain(store: Store, value: Any, kind: str) -> None:
    """And is never dropped: similarities from there on are 0."""
    generator = RoleRunner(bound("generator", Player(value), makes="sound"), store)
    for own in Run(store, generator=generator).traces:
        assert (own.failure is not None, own.failure and own.failure.kind) == (True, kind)
        assert own.failed_at == 2
        assert own.similarities == pytest.approx((1.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize("value", ["text", 3, [0.1, 0.2]])
def test_what_is_neither_is_an_error_of_the_model(value: object) -> None:
    """A model that returns texts for sounds is broken, not drifting."""
    with pytest.raises(ModelError, match="returns Sound objects or"):
        check_sound(value)
    assert check_sound(Failure("refused")) == Failure("refused")


@pytest.mark.parametrize(
    ("makes", "value", "words"),
    [
        (
            "sound",
            np.full((8, 8, 3), 9, np.uint8),
            "make sounds, and returned a ImageArtifact",
        ),
        ("image", (np.ones(9) / 2, RATE), "make drawings, and returned a Sound"),
    ],
)
def test_a_model_that_makes_another_kind_is_an_error(
    store: Store, makes: Any, value: Any, words: str
) -> None:
    """It is not stored as what it is not."""
    generator = RoleRunner(bound("generator", Player(value), makes=makes), store)
    with pytest.raises(ModelError, match=words):
        Run(store, generator=generator)


# -- sounds outside of the store -------------------------------------------------------------------


def test_a_file_that_is_overwritten_after_it_was_digested_is_refused(
    tmp_path: Path, store: Store
) -> None:
    """Its answers would be stored as those of the sound before."""
    path = tmp_path / "beep.flac"
    path.write_bytes(_steady(800).to_flac())
    sample = Sample("beep", ("all",), sound=FileSound(path))
    models = ChainModels(runner(store, "describer"), runner(store, "generator"), store)
    group = ChainGroup(PLAN, [sample], models)
    group.grow(0)
    store.artifact_cache.clear()
    path.write_bytes(_steady(900).to_flac())
    with pytest.raises(SoundError, match="the sound changed after the run had read it"):
        group.grow(1)


def test_samples_without_a_usable_sound_are_named(tmp_path: Path, store: Store) -> None:
    """All of them, in one message."""
    (tmp_path / "empty.wav").write_bytes(b"RIFF")
    samples = [
        Sample("broken", ("all",), sound=FileSound(tmp_path / "empty.wav")),
        Sample("text", ("all",), text="a low short sine"),
    ]
    models = ChainModels(runner(store, "describer"), runner(store, "generator"), store)
    with pytest.raises(DatasetError) as caught:
        _ = ChainGroup(PLAN, samples, models).chains
    assert "2 of 2 samples cannot be used" in str(caught.value)
    assert "broken: damaged" in str(caught.value)
    assert "'text' has no sound: a sound-first chain cannot start from it" in str(caught.value)
