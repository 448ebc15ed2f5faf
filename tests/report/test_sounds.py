"""Sounds in pages: a spectrogram and a player, once each, and what has no room."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Sound
from pytest_cepbench.report import ChainShown, LinkShown
from pytest_cepbench.report.pages import (
    PageImages,
    html_page,
    page_file,
    page_file_names,
    spectrogram,
    write_page_folder,
)
from pytest_cepbench.report.writers import RunFacts, json_document
from tests.report.pages import assert_self_contained
from tests.report.results import REGRESSED, replace
from tests.tones import tone

pytest.importorskip("soundfile")

RATE = 8_000

FACTS = RunFacts("failed", "1.2.3", ["model under test: <b>x</b>"], [])


START, MADE = tone(1000, rate=RATE), tone(2000, rate=RATE)

SOUNDS: Mapping[str, Sound] = {own.digest: own for own in (START, MADE)}

SHOWN = replace(
    REGRESSED,
    chains=[
        ChainShown(
            "<b>a</b>",
            0.25,
            0.75,
            [
                LinkShown(sound=START.digest),
                LinkShown(text="<i>x</i>"),
                LinkShown(sound=MADE.digest),
            ],
            baseline_links=[LinkShown(sound=START.digest), LinkShown(text="y")],
        )
    ],
)


def test_a_page_plays_each_sound_once() -> None:
    """As lossless FLAC in the page itself; where it is shown again a link leads to its player."""
    html = html_page(FACTS, [SHOWN], SOUNDS.get)
    assert_self_contained(html)
    players = re.findall(r'<audio id="([^"]+)" controls preload="none" [^>]*src="([^"]+)">', html)
    assert len(players) == 2
    played = {
        Sound.from_bytes(base64.b64decode(address.removeprefix("data:audio/flac;base64,"))).digest
        for _, address in players
    }
    assert played == set(SOUNDS)
    links = re.findall(r'<a class="soft" href="#(play-[^"]+)">same sound</a>', html)
    assert links
    assert set(links) <= {name for name, _ in players}
    assert "media-src data:" in html
    assert "0.50 s" in html
    assert "<b>a</b>" not in html


def test_the_report_names_digest_and_kind() -> None:
    """As JSON, without the samples."""
    (case,) = json.loads(json_document(FACTS, [SHOWN]))["cases"]
    (chain,) = case["shown"]["chains"]
    assert [(own["sound"], own["image"]) for own in chain["links"]] == [
        (START.digest, None), (None, None), (MADE.digest, None),
    ]  # fmt: skip


def test_a_folder_has_sounds_as_files(tmp_path: Path) -> None:
    """Beside the page, which servers give out, and which the next run replaces."""
    page = write_page_folder(tmp_path, FACTS, [SHOWN], SOUNDS.get)
    html = page.read_text(encoding="utf-8")
    assert "media-src &#39;self&#39;" in html
    names = re.findall(r'src="(images/image-[0-9a-f]{16}\.flac)"', html)
    assert len(names) == 2
    assert set(names) <= set(page_file_names(tmp_path))
    for name in names:
        stream = page_file(tmp_path, name)
        assert stream is not None
        with stream:
            assert Sound.from_bytes(stream.read()).digest in SOUNDS
    write_page_folder(tmp_path, FACTS, [REGRESSED], lambda _: None)
    assert not list(tmp_path.rglob("*.flac"))


def test_what_has_no_room_in_a_page_is_said_to_be_elsewhere() -> None:
    """Noise of a minute is a megabyte: its picture stays, and the next sound still fits."""
    noise = np.random.default_rng(0).uniform(-1, 1, 60 * RATE).astype(np.float32)
    long = Sound(noise, RATE)
    images = PageImages({**SOUNDS, long.digest: long}.get)
    shown = images.get(long.digest)
    assert shown is not None
    assert (shown.audio, round(shown.seconds)) == ("", 60)
    small = images.get(START.digest)
    assert small is not None
    assert small.audio
    chain = SHOWN.shown.chains[0]
    links = [LinkShown(sound=long.digest), *chain.links[1:]]
    lost = replace(SHOWN, chains=[ChainShown("a", 0.25, 0.75, links)])
    html = html_page(FACTS, [lost], {long.digest: long}.get)
    assert "60.00 s, not in this page" in html
    assert "<audio" not in html


def test_a_spectrogram_shows_time_and_frequency() -> None:
    """Dark where it is loud: a tone of half of the band is a line in the middle of the picture."""
    both = np.concatenate([tone(2000, rate=RATE).samples, np.zeros(RATE // 2, np.float32)])
    pixels = np.asarray(spectrogram(Sound(both, RATE)).convert("L"), float)
    assert pixels.shape == (96, 256)
    left, right = pixels[:, :110], pixels[:, 150:]
    assert abs(int(left.mean(axis=1).argmin()) - 48) <= 2
    assert left.min() < 80
    assert right.min() > 250
    for short in (1, 100, 511, 512):
        assert spectrogram(Sound(both[:short], RATE)).size == (256, 96)


def test_pictures_of_sounds_are_pictures() -> None:
    """WebP, as those of images."""
    shown = PageImages(SOUNDS.get).get(START.digest)
    assert shown is not None
    data = base64.b64decode(shown.address.removeprefix("data:image/webp;base64,"))
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.size == (shown.width, shown.height)
