"""Sounds: decoding with limits, one form of samples, lossless storage.

A sound is its samples of 16 bits, mono, at the rate of its file. Channels are averaged; samples of
24 bits and floats are rounded. WAV, FLAC and Ogg files are read, by `soundfile` (libsndfile).
"""

from __future__ import annotations

import io
import math
import zlib
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts.image import reading_file
from pytest_cepbench.errors import MissingDependencyError, SoundError
from pytest_cepbench.files import open_regular

MOST_SECONDS = 600.0
"""Longest sound that is decoded, in seconds: 55 MB of samples at 48 kHz."""

MOST_BYTES = 512 * 2**20
"""Largest file that is decoded, in bytes: ten minutes of eight channels of 24 bits at 32 kHz."""

RATES = (1_000, 192_000)
"""Lowest and highest sample rate, in Hz, that a sound may have: a store's files have a limit."""

_MAGIC = (b"RIFF", b"fLaC", b"OggS")  # libsndfile's decoders of rarer formats are not used

_MOST_FRAMES = 2**40  # more are libsndfile's number for a FLAC file that was written to a pipe

_BLOCK = 2**16  # frames that are read at once

_STEPS = 2**15  # of the 16 bits between 0 and 1

_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in the other order."""

_LOUDEST = 4.0  # 12 dB over full scale is clipped; more is no scale of [-1, 1]


@dataclass(frozen=True, eq=False, repr=False)
class Sound:
    """One immutable sound.

    samples: (frames,) float32 in [-1, 1], read-only, mono; rounded to 16 bits when it is made, so
        that digest, file and what models hear are the same. Whole numbers of 16 bits are taken too.
    rate: samples per second, in Hz.
    Raises SoundError when constructed from anything else: no frames, several channels, NaN, samples
    far outside of [-1, 1], more than `MOST_SECONDS`.
    """

    samples: npt.NDArray[np.float32]
    rate: int

    def __post_init__(self) -> None:
        samples, rate = np.asarray(self.samples), self.rate
        if samples.ndim != 1 or (samples.dtype.kind != "f" and samples.dtype != np.int16):
            raise SoundError(
                f"a sound is (frames,) floats in [-1, 1], got {samples.shape} {samples.dtype}"
            )
        if isinstance(rate, bool) or int(rate) != rate or not RATES[0] <= rate <= RATES[1]:
            raise SoundError(f"a rate of {rate} Hz; {RATES[0]:,} to {RATES[1]:,} Hz are expected")
        if not len(samples):
            raise SoundError("it has no samples")
        _check_length(len(samples), rate)
        if samples.dtype != np.int16:
            if not np.isfinite(samples).all():
                raise SoundError("samples are NaN or infinite")
            peak = float(np.abs(samples).max())
            if peak > _LOUDEST:
                raise SoundError(f"samples reach {peak:.6g}, and [-1, 1] is expected")
            steps = np.rint(samples.astype(np.float64) * _STEPS)
            samples = steps.clip(-_STEPS, _STEPS - 1).astype(np.int16)
        kept = samples.astype(np.float32) / np.float32(_STEPS)
        kept.flags.writeable = False
        object.__setattr__(self, "samples", kept)
        object.__setattr__(self, "rate", int(rate))

    def __repr__(self) -> str:
        return f"<Sound {self.seconds:.2f} s at {self.rate} Hz {self.digest[:12]}>"

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate

    @property
    def nbytes(self) -> int:
        """In memory."""
        return self.samples.nbytes

    @property
    def integers(self) -> npt.NDArray[np.int16]:
        """(frames,) samples as whole numbers of 16 bits."""
        return (self.samples * np.float32(_STEPS)).astype("<i2")

    @cached_property
    def digest(self) -> str:
        """SHA-256 over rate, length and samples: the same whatever file the sound came from."""
        hasher = sha256(f"sound\0{self.rate}x{len(self.samples)}\0".encode())
        hasher.update(self.integers.tobytes())
        return hasher.hexdigest()

    @classmethod
    def from_file(cls, path: Path) -> Sound:
        """The sound in a file.

        Raises SoundError as `from_bytes` and where there is no file that could hold one,
        UnreadError where the system could not read it.
        """
        with reading_file(path, SoundError), open_regular(path, MOST_BYTES) as stream:
            return cls.from_bytes(stream.read())

    @classmethod
    def from_bytes(cls, data: bytes) -> Sound:
        """The sound in the bytes of a WAV, FLAC or Ogg file.

        Raises SoundError for what is no sound, is cut off, has no samples, or is too long;
        MissingDependencyError without soundfile.
        """
        soundfile = _soundfile()
        if data[:4] not in _MAGIC:
            raise SoundError("not a sound of a known format (WAV, FLAC, Ogg)")
        _check_wave(data)
        _check_ogg(data)
        try:
            with soundfile.SoundFile(io.BytesIO(data)) as file:
                frames, rate = int(file.frames), int(file.samplerate)
                if frames > _MOST_FRAMES:
                    raise SoundError("its header does not say how long it is: convert it anew")
                _check_length(frames, rate)
                # In blocks: ten minutes of eight channels at 192 kHz are gigabytes of floats.
                parts = [
                    block.mean(axis=1).astype(np.float32)
                    for block in file.blocks(_BLOCK, dtype="float64", always_2d=True)
                ]
        except soundfile.SoundFileError as error:
            why = getattr(error, "error_string", error)  # without the place of the bytes in memory
            raise SoundError(f"damaged: {' '.join(str(why).split())}") from error
        samples = np.concatenate([np.zeros(0, np.float32), *parts])
        if len(samples) < frames:
            raise SoundError(f"cut off: it has {len(samples)} of {frames} samples")
        return cls(samples, rate)

    def to_flac(self) -> bytes:
        """Lossless bytes: FLAC of 16 bits."""
        stream = io.BytesIO()
        _soundfile().write(stream, self.integers, self.rate, format="FLAC", subtype="PCM_16")
        return stream.getvalue()

    def resampled(self, rate: int) -> Sound:
        """The sound at another rate, in Hz, by a polyphase filter."""
        if rate == self.rate:
            return self
        from scipy.signal import resample_poly  # here: it takes a third of a second to import

        common = math.gcd(rate, self.rate)
        made = resample_poly(self.samples.astype(float), rate // common, self.rate // common)
        return Sound(made.clip(-1.0, 1.0), rate)


def _soundfile() -> Any:
    try:
        import soundfile  # here, since few runs have sounds
    except (ImportError, OSError) as error:  # OSError: its library is missing
        raise MissingDependencyError(
            "sounds need soundfile: pip install 'pytest-cepbench[audio]'"
        ) from error
    return soundfile


def sound_decoder() -> str:
    """Version of the rules above and of the decoder, as `image.DECODER`."""
    soundfile = _soundfile()
    return f"2 soundfile/{soundfile.__version__} {soundfile.__libsndfile_version__}"


def _check_length(frames: int, rate: int) -> None:
    if frames > MOST_SECONDS * rate:
        raise SoundError(f"too long: {frames / rate:,.0f} s; the limit is {MOST_SECONDS:,.0f} s")


def _check_wave(data: bytes) -> None:
    """Refuse a WAV file that is shorter than its header says, which libsndfile reads in silence."""
    if data[:4] != b"RIFF":
        return
    position = 12
    while position + 8 <= len(data):
        size = int.from_bytes(data[position + 4 : position + 8], "little")
        if position + 8 + size > len(data):
            raise SoundError(
                f"cut off, or a broken header: it promises {size:,} bytes of "
                f"{data[position : position + 4]!r}, and {len(data) - position - 8:,} are there"
            )
        position += 8 + size + size % 2


def _check_ogg(data: bytes) -> None:
    """Refuse an Ogg file with a damaged page or a part of one, which libsndfile leaves out in
    silence. Checksums: RFC 3533, section 6.
    """
    position = 0
    while data[position : position + 4] == b"OggS":
        segments = data[position : position + 27].ljust(27, b"\1")[26]
        end = position + 27 + segments + sum(data[position + 27 : position + 27 + segments])
        if end > len(data):
            raise SoundError("cut off: its last page is not whole")
        # The polynomial of zlib's with the bits the other way, and no complements.
        turned = data[position:end].translate(_TURNED)
        actual = zlib.crc32(turned[:22] + bytes(4) + turned[26:], 0xFFFFFFFF) ^ 0xFFFFFFFF
        if actual != int.from_bytes(turned[22:26], "big"):
            break
        position = end
    if data[:4] == b"OggS" and data.find(b"OggS", position) >= 0:
        raise SoundError("damaged: a page is not what its checksum says")
