"""The describe prompt in three lengths."""

from __future__ import annotations

import re

from pytest_cepbench.metrics.length_bands import LENGTH_BANDS, LengthBand

_STATED = re.compile(r"[^.\n]*\b\d+\s+words\b[^.\n]*", re.IGNORECASE)


def prompt_for(prompt: str, band: LengthBand) -> str:
    """The prompt, asking for a description within the band.

    Where it asks for one of the bands in MMGenBench's words ("it should be between 20 to 60 words",
    Figure 16), that clause is replaced, and for its own band the prompt stays as it is. Elsewhere a
    sentence is added at its end.
    """
    for known in LENGTH_BANDS:
        clause = _clause(known)
        if clause.search(prompt):
            return prompt if known == band else clause.sub(band.constraint, prompt)
    return f"{prompt.rstrip()} As for the length of the description, {band.constraint}."


def other_length(prompt: str) -> str | None:
    """What a prompt says of a number of words otherwise than a band does; None where it does not.

    The sentence of a band may contradict it: which of the two a model follows is its own affair.
    """
    if any(_clause(band).search(prompt) for band in LENGTH_BANDS):
        return None
    stated = _STATED.search(prompt)
    return stated[0].strip() if stated else None


def _clause(band: LengthBand) -> re.Pattern[str]:
    """The band's words, wherever a suite file breaks its lines."""
    words = map(re.escape, band.constraint.split())
    return re.compile(r"\b" + r"\s+".join(words) + r"\b", re.IGNORECASE)
