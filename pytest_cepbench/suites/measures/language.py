"""The language of texts: by script always, by an identifier where a language is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from pytest_cepbench.errors import MeasurementError, did_you_mean
from pytest_cepbench.metrics.text_statistics import script_share

_SURE = 0.5
"""Probability from which a text is another language than the expected one. Of a few words the
identifier is sure of none; they count as the expected one."""

_IDENTIFIED = 4096  # texts whose language is remembered


def is_code(expected: str) -> bool:
    """Whether a text is a language's code of ISO 639 rather than a script's name."""
    return expected.isascii() and expected.islower() and len(expected) in (2, 3)


def check_language(expected: str) -> None:
    """Raise ValueError for a code that the identifier does not know; it may not be installed."""
    if is_code(expected):
        try:
            codes = _identifier()[1]
        except MeasurementError:
            return
        if expected not in codes:
            raise ValueError(_unknown_code(expected, codes))


def _unknown_code(expected: str, codes: frozenset[str]) -> str:
    near = did_you_mean(expected, codes)
    return (
        f"expected = {expected!r} is not one of the {len(codes)} languages that py3langid tells "
        f"apart.{near}"
    )


def language_score(expected: str) -> Callable[[str], float]:
    """Text -> how much of it is in the expected script or language, in [0, 1].

    expected: a script ("Latin"), for the share of letters; or a code ("en"), for 0 or 1.
    Raises MeasurementError for a code where the identifier is not installed, or does not know it.
    """
    if not is_code(expected):
        return lambda text: script_share(text, expected)
    codes = _identifier()[1]
    if expected not in codes:
        raise MeasurementError(_unknown_code(expected, codes))

    def score(text: str) -> float:
        language, probability = _identified(text)
        return float(language == expected or (bool(text.strip()) and probability < _SURE))

    return score


def language_shares(texts: Sequence[str]) -> dict[str, float]:
    """Share of the texts by language's code, the most frequent first.

    Texts of which the identifier is not sure are in none. Empty where it is not installed.
    """
    try:
        named = [_identified(text) for text in texts if text.strip()]
    except MeasurementError:
        return {}
    counts = Counter(language for language, probability in named if probability >= _SURE)
    return {language: count / len(texts) for language, count in counts.most_common()}


@lru_cache(maxsize=_IDENTIFIED)
def _identified(text: str) -> tuple[str, float]:
    classify, _ = _identifier()
    language, probability = classify(text)
    return language, float(probability)


@lru_cache(maxsize=1)
def _identifier() -> tuple[Callable[[str], tuple[str, float]], frozenset[str]]:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        msg = (
            "a language by its code is told by py3langid, which is not installed: "
            'pip install "pytest-cepbench[language]", or name a script, such as Latin'
        )
        raise MeasurementError(msg) from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier.classify, frozenset(identifier.nb_classes)
