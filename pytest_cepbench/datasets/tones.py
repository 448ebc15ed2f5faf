"""The embedded world of tones: sequences of beeps whose truth is known, without torch or soundfile.

A tune is one to five beeps, each of a pitch, a length and a timbre: "a high short sine, a low long
square". It has one exact text and as many sounds as there are seeds, and both can be read back: a
sound by its loudness over time, and the peaks of the spectrum of each beep.

single   one beep
pitch    two to four beeps that are equal but for pitch
length   two to four beeps that are equal but for length
timbre   two to four beeps that are equal but for timbre
melody   five beeps
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import product
from math import log, pi
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Sound
from pytest_cepbench.datasets.sample import Dataset, DrawnSound, Sample
from pytest_cepbench.datasets.shapes.degrade import Knobs, another, drawn_decisions
from pytest_cepbench.datasets.shapes.samples import (
    Family,
    below,
    build_dataset,
    derived_seed,
    random_generator,
)

TONES_VERSION = "tones/1"
"""Of the world: grammar, rendering, decoding, features and degradation."""

PITCHES = {"low": 260.0, "middle": 540.0, "high": 1100.0}
"""Name -> fundamental, in Hz."""

LENGTHS = {"short": 0.12, "long": 0.36}
"""Name -> seconds."""

TIMBRES = {"sine": (1.0,), "square": (1.0, 0.0, 1 / 3), "saw": (1.0, 1 / 2, 1 / 3)}
"""Name -> amplitudes of the fundamental and its first harmonics, as of waves of these names."""

RATE = 8_000
"""Samples per second: twice the third harmonic of a high beep, and more."""

MOST_BEEPS = 5

_GAP, _FADE = 0.06, 0.008  # seconds between beeps, and of rise and fall
_DETUNED, _QUIETER = 0.02, 0.3  # most that a seed changes pitch and loudness

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Beep:
    """One beep: a name of each of `PITCHES`, `LENGTHS` and `TIMBRES`."""

    pitch: str
    length: str
    timbre: str

    def __str__(self) -> str:
        return f"a {self.pitch} {self.length} {self.timbre}"


BEEPS = tuple(Beep(*words) for words in product(PITCHES, LENGTHS, TIMBRES))
"""All that there are."""

Tune = tuple[Beep, ...]

SILENCE = "silence"
"""The text of no beep at all."""

_PHRASE = re.compile(
    rf"\b({'|'.join(PITCHES)})\s+({'|'.join(LENGTHS)})\s+({'|'.join(TIMBRES)})\b", re.IGNORECASE
)


def tune_text(tune: Tune) -> str:
    """The exact text of a tune."""
    return ", ".join(map(str, tune)) or SILENCE


def parse_text(text: str) -> Tune:
    """The beeps that a text names, in its order, at most five; never raises.

    Every run of three words that is a beep counts, whatever its case and the words around it.
    """
    found = _PHRASE.findall(text)[:MOST_BEEPS]
    return tuple(Beep(*(word.lower() for word in words)) for words in found)


def render(tune: Tune, seed: int) -> Sound:
    """A sound of a tune. seed: any non-negative integer; detunes each beep and sets its loudness.

    A beep's jitter depends on seed and place alone. No beep at all is a tenth of a second of zeros.
    """
    jitter = random_generator(seed).random((MOST_BEEPS, 2))
    parts = [np.zeros(round((_GAP if tune else 0.1) * RATE))]
    for beep, (detuned, quieter) in zip(tune, jitter, strict=False):
        time = np.arange(round(LENGTHS[beep.length] * RATE)) / RATE
        hertz = PITCHES[beep.pitch] * (1 + _DETUNED * (2 * detuned - 1))
        amplitudes = enumerate(TIMBRES[beep.timbre], start=1)
        wave = sum(size * np.sin(2 * pi * n * hertz * time) for n, size in amplitudes)
        fade = np.clip(np.minimum(time, time[::-1]) / _FADE, 0.0, 1.0)
        parts += [0.5 * (1 - _QUIETER * quieter) * fade * wave, np.zeros(round(_GAP * RATE))]
    return Sound(np.concatenate(parts).astype(np.float32), RATE)


_FRAME, _QUIET = 0.01, 0.1  # seconds of a frame; loudness of a pause, as a share of the loudest
_SHORTEST, _PAUSE = 0.05, 0.03  # seconds of a beep, and of a pause between two
_BINS = 2**14  # of a spectrum: half a hertz at the world's rate
_HARMONIC = 0.2  # of the fundamental: what a harmonic has at least that is there


def parse_sound(sound: Sound) -> Tune:
    """The beeps in a sound, at most five, of any rate; never raises.

    Beeps are where it is loud between pauses. The strongest frequency of each is its pitch, by the
    nearest one; its second and third harmonics tell the timbre. What is no beep is read as one too.
    """
    size = max(1, round(_FRAME * sound.rate))
    frames = len(sound.samples) // size
    level = np.sqrt((sound.samples[: frames * size].reshape(frames, size) ** 2).mean(axis=1))
    if not level.any():
        return ()
    loud = np.flatnonzero(level > _QUIET * level.max())
    breaks = np.flatnonzero(np.diff(loud) > _PAUSE / _FRAME)
    starts = loud[np.concatenate([[0], breaks + 1])]
    ends = loud[np.concatenate([breaks, [-1]])] + 1
    spans = [(a, b) for a, b in zip(starts, ends, strict=True) if (b - a) * _FRAME >= _SHORTEST]
    return tuple(
        _beep(sound.samples[a * size : b * size], sound.rate) for a, b in spans[:MOST_BEEPS]
    )


def _beep(samples: FloatArray, rate: int) -> Beep:
    bins = max(_BINS, len(samples))
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), bins))
    frequencies = np.fft.rfftfreq(bins, 1 / rate)
    audible = frequencies >= min(PITCHES.values()) / 2
    peak = int(np.argmax(np.where(audible, spectrum, 0.0)))
    width = max(1, round(2 * bins / len(samples)))  # of the peak, half of Hann's main lobe
    second, third = (
        spectrum[n * peak - width : n * peak + width + 1].max(initial=0.0) for n in (2, 3)
    )
    least = _HARMONIC * spectrum[peak]
    timbre = "saw" if second > least else "square" if third > least else "sine"
    seconds = len(samples) / rate
    return Beep(_nearest(PITCHES, frequencies[peak]), _nearest(LENGTHS, seconds), timbre)


def _nearest(names: dict[str, float], value: float) -> str:
    return min(names, key=lambda name: abs(log(names[name] / value)))


def features(tune: Tune) -> FloatArray:
    """(49,) float64, non-negative, never zero; the same for a tune however it sounds.

    For each place the words of its beep, then how often each word is there, and whether none is.
    """
    words = [*PITCHES, *LENGTHS, *TIMBRES]
    table = np.zeros((MOST_BEEPS, len(words)))
    for row, beep in zip(table, tune, strict=False):
        row[[words.index(word) for word in asdict(beep).values()]] = 1.0
    return np.concatenate([table.ravel(), table.sum(axis=0) / 2, [float(not tune)]])


# -- degradation -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToneKnobs(Knobs):
    """Probabilities in [0, 1], applied at every step.

    miss, shift, stretch, revoice: that a beep is left out, or gets another pitch, the other length
        or another timbre.
    swap: that two neighbours, of different look, exchange places.
    blank: that the whole answer is an empty text, or silence.
    """

    miss: float = 0.0
    shift: float = 0.0
    stretch: float = 0.0
    revoice: float = 0.0
    swap: float = 0.0
    blank: float = 0.0


# The draws are laid out in this order: a new knob goes to the end, or all old ones draw anew.
_KNOBS = tuple(field.name for field in fields(ToneKnobs))


def degrade_tune(tune: Tune, knobs: ToneKnobs, seed: int) -> Tune | None:
    """The tune after all knobs have acted on it; None where the whole answer is blank.

    Decisions are drawn for (seed, knob, place), as those of scenes. Beeps change first, then
    neighbours exchange places, and last beeps are left out.
    """
    if not knobs.turned:
        return tune
    happens, which = drawn_decisions(seed, _KNOBS, MOST_BEEPS)
    if happens["blank"][0] < knobs.blank:
        return None

    def word(knob: str, words: Sequence[str], current: str, place: int) -> str:
        turned = happens[knob][place] < getattr(knobs, knob)
        return another(tuple(words), current, which[knob][place]) if turned else current

    changed = [
        Beep(
            word("shift", [*PITCHES], beep.pitch, place),
            word("stretch", [*LENGTHS], beep.length, place),
            word("revoice", [*TIMBRES], beep.timbre, place),
        )
        for place, beep in enumerate(tune)
    ]
    order = list(range(len(changed)))
    pairs = [i for i in order[1:] if changed[i - 1] != changed[i]]
    if pairs and happens["swap"][0] < knobs.swap:
        later = pairs[int(which["swap"][0] * len(pairs))]
        order[later - 1], order[later] = later, later - 1
    return tuple(changed[i] for i in order if happens["miss"][i] >= knobs.miss)


# -- the data set ----------------------------------------------------------------------------------


_WORDS: Mapping[str, Collection[str]] = {"pitch": PITCHES, "length": LENGTHS, "timbre": TIMBRES}


def _equal_but(respect: str) -> Family[Tune]:
    """Two to four beeps that differ, at least two of them, in one respect alone."""
    words = len(_WORDS[respect])

    def draw(rng: np.random.Generator) -> Tune:
        number = 2 + below(rng, 3)
        while True:
            common = BEEPS[below(rng, len(BEEPS))]
            own = [BEEPS[below(rng, len(BEEPS))] for _ in range(number)]
            tune = tuple(replace(common, **{respect: getattr(beep, respect)}) for beep in own)
            if len(set(tune)) > 1:
                return tune

    fixed = len(BEEPS) // words
    return Family(draw, fixed * sum(words**number - words for number in (2, 3, 4)))


_FAMILIES: dict[str, Family[Tune]] = {
    "single": Family(lambda rng: (BEEPS[below(rng, len(BEEPS))],), len(BEEPS)),
    **{respect: _equal_but(respect) for respect in _WORDS},
    "melody": Family(lambda rng: tuple(BEEPS[below(rng, len(BEEPS))] for _ in range(MOST_BEEPS))),
}


def load_tones(samples_per_category: int = 16, seed: int = 0) -> Dataset:
    """The tones data set: tunes as sounds with their exact texts, in five categories.

    Parameters, order and errors as of `build_dataset`.
    metadata: "tune", a list of beeps as dicts with pitch, length and timbre.
    """

    def make_sample(name: str, _: int, tune: Tune) -> Sample:
        sound = DrawnSound(partial(render, tune, derived_seed(seed, name)))
        metadata = {"tune": [asdict(beep) for beep in tune]}
        category = name.partition("/")[0]
        return Sample(name, (category,), text=tune_text(tune), metadata=metadata, sound=sound)

    identity = {"loader": "tones", "version": TONES_VERSION}
    return build_dataset(identity, _FAMILIES, samples_per_category, seed, make_sample)
