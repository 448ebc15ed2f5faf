"""What a judge says: verdicts and scores in words.

OpenING's released code takes the first A or B of an answer and tosses a coin where there is none.
Here a verdict is the last line of an answer, or a value of a JSON object; what is neither is a
failure of the kind `no-verdict`.

A criterion that is missing, given twice, no whole number or out of range has no score: nothing is
rounded, clipped or taken for 0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import Repeated, after_reasoning, read_objects
from pytest_cepbench.artifacts.outcome import (
    CRITERIA,
    CriteriaScores,
    CriterionResult,
    Winner,
    read_score,
)
from pytest_cepbench.models.text_model.judge_prompts import JudgePrompt

_VERDICT_KEYS = ("better_response", "verdict", "winner")
"""Keys of a JSON answer whose value is the verdict; MMRB2 asks for `better_response`."""

# All patterns take time that grows no faster than the text: a model can repeat a character.

_LABEL = re.compile(
    r"^(?:(?:my|the|final|answer|verdict|judge?ment|choice|letter)[\W_]{1,8}|is\W{1,8}){1,5}",
    re.IGNORECASE,
)

_PHRASE = re.compile(
    r"(?P<tie>tie\W{0,4})?(?:(?:answer|response|output|model)[\W_]{1,4})?(?P<letter>[AB])"
    r"(?:\W{1,4}(?:is\s{1,8})?better)?",
    re.IGNORECASE,
)


def read_named(prompt: JudgePrompt, text: str) -> Winner | Failure:
    """The verdict that an answer names in the words of a prompt; a failure where it names none.

    Read is what stands outside of reasoning: the value of `better_response`, `verdict` or `winner`
    where it is a JSON object, else its last line, which has to be one of the prompt's phrases or
    letters, perhaps behind a label such as "Final verdict:", and no question.
    """
    answer = after_reasoning(text)
    if answer is None:
        return Failure("no-verdict", f"ends inside its reasoning: {text!r:.400}")
    answer = answer.strip()
    if answer.startswith(("{", "```")):
        objects = list(read_objects(answer))
        values = [own[key] for own in objects for key in _VERDICT_KEYS if key in own]
        answer = values[0] if len(values) == 1 and isinstance(values[0], str) else ""
    lines = unicodedata.normalize("NFKC", answer).strip().splitlines()
    # From the first letter to the last: without emphasis, brackets and quotation marks.
    words = re.sub(r"^[\W_]+|[\W_]+$", "", lines[-1]) if lines else ""
    words = words if prompt.letters and len(words) == 1 else _LABEL.sub("", words, count=1)
    if not words or "?" in lines[-1][-4:]:
        return Failure("no-verdict", f"its last line is no verdict: {text!r:.400}")
    if prompt.letters:
        for winner, letter in prompt.phrases.items():
            if words == letter:
                return winner
    elif match := _PHRASE.fullmatch(words):
        letter = match["letter"].upper()
        return f"Tie({letter})" if match["tie"] else letter  # type: ignore[return-value]
    return Failure("no-verdict", f"its last line is no verdict: {text!r:.400}")


def read_scores(text: str) -> CriteriaScores | Failure:
    """The scores that a reply gives; a failure where it has no object with a criterion in it.

    Read is what stands outside of reasoning: the whole of it where that is JSON, else the balanced
    `{...}` that are objects with a criterion. Values are `{"score": 7, "justification": "..."}` or
    the number alone. A second object with other scores makes the reply a failure: which of them
    counts cannot be told.
    """
    reply = after_reasoning(text)
    if reply is None:
        return Failure("no-score", f"ends inside its reasoning: {text!r:.300}")
    read = [_scores_of(document) for document in read_objects(reply.strip())]
    by_numbers = {
        tuple(scores.value(name) for name in CRITERIA): scores
        for scores in reversed(read)
        if scores is not None
    }
    if len(by_numbers) == 1:
        return next(iter(by_numbers.values()))
    what = "several objects with other scores" if by_numbers else "no JSON object with a criterion"
    return Failure("no-score", f"{what}: {text!r:.300}")


def _scores_of(document: Mapping[str, Any]) -> CriteriaScores | None:
    """The scores of an object; None where no criterion is in it."""
    results: dict[str, CriterionResult] = {}
    for name in CRITERIA:
        value = document.get(name)
        if isinstance(value, Repeated):
            results[name] = Failure("no-score", f"{name}: given twice")
        elif isinstance(value, dict):
            results[name] = read_score(name, value.get("score"), value.get("justification", ""))
        elif name in document:
            results[name] = read_score(name, value)
    return CriteriaScores.of(results) if results else None
