"""Sounds: what is read and refused, and that they come back as they were."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pytest_cepbench.artifacts import Sound
from pytest_cepbench.artifacts.sound import MOST_SECONDS
from pytest_cepbench.errors import SoundError
from tests.artifacts.files import wave as sine
from tests.special_files import a_folder, a_pipe, a_sparse_file

soundfile = pytest.importorskip("soundfile")

_RATE = 16_000


def file_bytes(samples: npt.NDArray[np.float64], rate: int, kind: str, subtype: str) -> bytes:
    """A file as soundfile writes it."""
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=kind, subtype=subtype)
    return stream.getvalue()


@given(arrays(np.int16, st.integers(1, 400)), st.sampled_from((8_000, 16_000, 22_050, 48_000)))
def test_flac_gives_back_every_sample(samples: npt.NDArray[np.int16], rate: int) -> None:
    """The digest is of what the file holds: 16 bits at the rate."""
    sound = Sound(samples, rate)  # type: ignore[arg-type] # whole numbers are taken too
    again = Sound.from_bytes(sound.to_flac())
    assert again.rate == rate
    assert np.array_equal(again.integers, samples)
    assert again.digest == sound.digest


def test_digest_covers_rate_length_and_samples() -> None:
    """As it is written in the class: SHA-256 over a head and little-endian 16-bit samples.

    Samples are rounded once and cannot be changed: made again of its own ones a sound is the same;
    over full scale is clipped.
    """
    sound = Sound(np.array([0.0, 0.5, -1.0], np.float32), 8_000)
    expected = sha256(b"sound\x008000x3\x00" + b"\x00\x00\x00\x40\x00\x80").hexdigest()
    assert sound.digest == expected
    assert Sound(sound.samples, 16_000).digest != expected
    assert Sound(sound.samples[:2], 8_000).digest != expected
    sound = Sound(np.array([0.1, 1.5, -2.0, 1.0]), _RATE)
    assert Sound(sound.samples, _RATE).digest == sound.digest
    assert sound.samples.dtype == np.float32
    assert sound.samples.tolist()[1:] == [32767 / 32768, -1.0, 32767 / 32768]
    assert sound.seconds == 4 / _RATE
    with pytest.raises(ValueError, match="read-only"):
        sound.samples[0] = 1.0


@pytest.mark.parametrize(
    ("kind", "subtype", "error"),
    [
        ("WAV", "PCM_U8", 2**-7),
        ("WAV", "PCM_16", 2**-15),
        ("WAV", "PCM_24", 2**-15),
        ("WAV", "FLOAT", 2**-15),
        ("FLAC", "PCM_16", 2**-15),
        ("FLAC", "PCM_24", 2**-15),
        ("OGG", "VORBIS", 0.05),
    ],
)
def test_formats_are_read(tmp_path: Path, kind: str, subtype: str, error: float) -> None:
    """8, 16 and 24 bits, floats and Ogg, at the rate of the file."""
    samples = sine(440, 0.1, 48_000)
    path = tmp_path / "tone"
    data = file_bytes(samples, 48_000, kind, subtype)
    tagged = data + b"TAG".ljust(128, b"\0")  # as some programs leave Ogg
    for content in (data, tagged) if kind == "OGG" else (data,):
        path.write_bytes(content)
        sound = Sound.from_file(path)
        assert sound.rate == 48_000
        assert np.abs(sound.samples - samples).max() <= error


def test_channels_are_averaged_and_resampling_keeps_pitch() -> None:
    """Two channels of opposite signs are silence, two of one kind are it. A resampled tone of
    440 Hz is one at another rate; the same rate gives the same sound.
    """
    left = sine(440, 0.05, _RATE)
    both = np.stack([left, -left], axis=1)
    assert not Sound.from_bytes(file_bytes(both, _RATE, "WAV", "PCM_16")).samples.any()
    same = Sound.from_bytes(file_bytes(np.stack([left, left], axis=1), _RATE, "WAV", "PCM_16"))
    assert same.digest == Sound.from_bytes(file_bytes(left, _RATE, "WAV", "PCM_16")).digest
    sound = Sound(sine(440, 1.0, _RATE).astype(np.float32), _RATE)
    lower = sound.resampled(11_025)
    assert lower.rate == 11_025
    assert lower.seconds == pytest.approx(1.0, abs=1e-3)
    spectrum = np.abs(np.fft.rfft(lower.samples))
    assert np.argmax(spectrum) / lower.seconds == pytest.approx(440, abs=1.5)
    assert sound.resampled(_RATE) is sound


def _broken() -> dict[str, tuple[bytes, str]]:
    whole = file_bytes(sine(440, 0.05, _RATE), _RATE, "WAV", "PCM_16")
    flac = file_bytes(sine(440, 0.5, _RATE), _RATE, "FLAC", "PCM_16")
    piped = bytearray(flac)
    piped[21] &= 0xF0  # its length in samples, of 36 bits
    piped[22:26] = bytes(4)
    ogg = file_bytes(sine(440, 3.0, _RATE), _RATE, "OGG", "VORBIS")

    def swapped(data: bytes, place: int) -> bytes:
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    pages = [at for at in range(len(ogg)) if ogg.startswith(b"OggS", at)]
    empty = io.BytesIO()
    with wave.open(empty, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
    endless = bytearray(whole)
    endless[40:44] = b"\xff\xff\xff\xff"
    still = bytearray(whole)
    still[24:28] = b"\0\0\0\0"
    long = np.zeros(int(MOST_SECONDS * 1_000) + 1)
    return {
        "text": (b"not a sound at all", "not a sound of a known format"),
        "nothing": (b"", "not a sound of a known format"),
        "head": (b"RIFF", "damaged"),
        "cut": (whole[:-100], "cut off"),
        "size": (bytes(endless), "cut off, or a broken header"),
        "rate": (bytes(still), "a rate of 0 Hz|damaged"),
        "flac": (flac[: len(flac) // 2], "cut off|damaged"),
        "piped": (bytes(piped), "does not say how long it is"),
        "ogg": (ogg[: len(ogg) // 2], "cut off"),
        "page": (ogg[: pages[-1] + 20], "cut off"),
        "ogg head": (ogg[:30], "cut off"),
        "ogg byte": (swapped(ogg, pages[-2] + 60), "damaged: a page"),
        "ogg mark": (swapped(ogg, pages[-2]), "damaged: a page"),
        "codec": (ogg[: pages[1]], "^damaged: [^<>]+$"),
        "empty": (empty.getvalue(), "no samples"),
        "long": (file_bytes(long, 1_000, "WAV", "PCM_U8"), "too long: 600 s"),
        "nan": (file_bytes(np.full(9, np.nan), _RATE, "WAV", "FLOAT"), "NaN or infinite"),
        "loud": (file_bytes(np.full(9, 3e4), _RATE, "WAV", "FLOAT"), "samples reach 30000"),
    }


@pytest.mark.parametrize("name", _broken())
def test_what_is_no_sound_is_refused(name: str) -> None:
    """Each in one line that says what is wrong with it."""
    data, words = _broken()[name]
    with pytest.raises(SoundError, match=words) as caught:
        Sound.from_bytes(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("samples", "rate", "words"),
    [
        (np.zeros((2, 3)), _RATE, r"\(frames,\) floats"),
        (np.zeros(3, np.int32), _RATE, r"\(frames,\) floats"),
        (np.zeros(0), _RATE, "no samples"),
        (np.array([np.inf]), _RATE, "NaN or infinite"),
        (np.zeros(3), 10, "a rate of 10 Hz"),
        (np.zeros(3), 44_100.5, "a rate of 44100.5 Hz"),
        (np.zeros(600_001), 1_000, "too long"),
    ],
)
def test_arrays_that_are_no_sound(samples: npt.NDArray[np.float32], rate: int, words: str) -> None:
    """What a model might return in place of one."""
    with pytest.raises(SoundError, match=words):
        Sound(samples, rate)


@pytest.mark.parametrize("make", [a_folder, a_pipe, a_sparse_file, Path.absolute])
def test_paths_that_hold_no_file(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """No reading of a pipe that never ends; and what is not there."""
    make(tmp_path / "it")
    with pytest.raises(SoundError, match="cannot be read"):
        Sound.from_file(tmp_path / "it")
