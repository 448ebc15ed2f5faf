"""What a judge says: verdicts and scores in words.

Verdicts: OpenING's released code takes the first A or B of an answer and tosses a coin where there
is none. Here an answer that names no verdict, or several, is a failure of the kind `no-verdict`.

Scores: a criterion that is missing, given twice, no whole number or out of range has no score:
nothing is rounded, clipped or taken for 0.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
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
from pytest_cepbench.models.text_model.judge_prompts import CRITERION_SENTENCES, JudgePrompt

_NO_SIDE = "Tie"
"""A tie that leans to neither answer: none of the four verdicts."""

# Letters of other scripts that look the same; NFKC has made the wide forms Latin already.
_LOOKALIKES = str.maketrans({"\u0410": "A", "\u0391": "A", "\u0412": "B", "\u0392": "B"})

_VERDICT_KEYS = {
    "better", "better_answer", "better_response", "choice", "preference", "preferred", "verdict",
    "winner",
}  # fmt: skip
"""Keys of a JSON answer whose value is the verdict; MMRB2 asks for `better_response`."""

# All patterns take time that grows no faster than the text: a model can repeat a character.

_LETTER = re.compile(r"(?:(?:answer|response|output|model)[\W_]{1,8})?([AB])", re.IGNORECASE)

_PHRASE = re.compile(
    r"(?P<tie>tie[\s:,-]{0,8}\(?\s{0,8})?(?P<letter>[AB])\W{0,3}\s{1,8}(?:is\s{1,8})?better",
    re.IGNORECASE,
)

_LABEL = re.compile(r"^(?:(?:final\s)?answer|verdict|letter)[\W_]{1,8}", re.IGNORECASE)

_BRACKETS = re.compile(r"\[\[\s{0,8}(?:([AB])|([AB])>{1,2}[AB]|[^\[\]]{0,20})\s{0,8}\]\]")

# Without "better" the bracket has to end: "Tie (A and B are equal)" leans to neither.
_TIE = re.compile(
    r"\btie\b[\s:,-]{0,8}(?:"
    r"\(\s{0,8}(?P<inside>[ab])"
    r"(?:\s{1,8}(?:is\s{1,8})?better\b|(?:\s{1,8}is)?\s{0,8}(?:\)|\.{3}|$))"
    r"|(?P<better>[ab])\s{1,8}(?:is\s{1,8})?better\b"
    r"|(?-i:(?P<alone>[AB]))(?=[\s.!)\]]{0,8}$)"
    r")",
    re.IGNORECASE | re.MULTILINE,
)

_BETTER = re.compile(r"(?<![A-Za-z0-9])([AB])\W{0,3}\s{1,8}(?i:is\s{1,8}better)(?![A-Za-z])")

_BARE_TIE = re.compile(
    r"(?:^|[.!?:])\s{0,8}tie\b"
    r"|\b(?:it|this|they|verdict|result|outcome)(?:'s|\s{1,8}is|\s{1,8}are)\s{1,8}"
    r"(?:(?!not\b)\w{1,20}\s{1,8}){0,2}tied?\b",
    re.IGNORECASE | re.MULTILINE,
)

_SENTENCE_END = re.compile(r"[.!?\n]")

_CLAUSE_END = re.compile(r"[.,;:!?()\n]|\bbut\b")

_AROUND = 200  # characters on either side of a verdict in which it may be denied

# What a clause says before a verdict that it does not give.
_DENIED = re.compile(
    r"n't\b|\b(?:not|never|neither|nor|cannot|no|nothing|nobody|none|few|hardly|barely|scarcely"
    r"|whether|if|unless|either|until|unable|unclear|unsure|uncertain|doubt\w{0,4}|deny|denies"
    r"|disagree\w?|dispute\w?|reject\w?|refuse\w?|decline\w?|hesitate\w?|reluctant"
    r"|fail(?:s|ed)?\s{1,8}to|far\s{1,8}from|instead\s{1,8}of|rather\s{1,8}than|contrary\s{1,8}to"
    r"|maybe|perhaps|possibly|might|may|could|suppos(?:e|ed|ing)|assum(?:e|es|ed|ing)|imagine"
    r"|provided|let(?:'s|\s{1,8}us)|pretend\w{0,3}|wish|hope|wonder|initially"
    r"|at\s{1,8}first|first\s{1,8}(?:glance|sight)|used\s{1,8}to"
    r"|eg|example|such\s{1,8}as|phrase|wording|words|options?|rubric)\b"
    # "It is hard to say", "it would be wrong that"; a wrong color is none of these.
    r"|\b(?:hard|harder|difficult|tough|tricky|impossible|possible|wrong|incorrect|false|untrue"
    r"|mistaken|mistake|error|misleading|unfair|premature|hasty|early|tempting|easy|debatable"
    r"|arguable|questionable|conceivable|bold|stretch|odd|strange)"
    r"(?:\s{1,8}for\s{1,8}\w{1,20})?\s{1,8}(?:to|that)\b"
    r"|^\s{0,8}to\s{1,8}(?:say|claim|argue|think|assert|state|call|judge|decide)\b"
    # "You asked me to say"
    r"|\b(?:ask|asks|asked|told|tells|instruct\w{0,3}|expected|required|allowed|want(?:s|ed)?)\s"
    r"(?:\w{1,20}\s{1,8}){0,4}to\s{1,8}\w",
    re.IGNORECASE,
)

_OPINION = re.compile(
    r"\b(?:says?|said|thinks?|thought|argues?|argued|claims?|claimed|believes?|believed|feels?|felt"
    r"|insists?|expects?|finds?|concludes?|prefers?|agrees?)(?:\s{1,8}that)?\s{0,8}$",
    re.IGNORECASE,
)
"""Words behind which an opinion follows: the judge's own one only with "I" or "we" before them."""

_OWN = re.compile(r"\b(?:I|[Ww]e)\b(?!.*\b(?:thought|believed|felt|argued|claimed)\b)")

_BOTH = re.compile(
    r"(?<![A-Za-z0-9])[AB]\W{0,3}(?:\s{1,8}(?:and|nor|vs|versus)|\s{0,8}[/&])\W{0,3}\s{0,8}$"
    r"|\bor\s{1,8}$"
)
"""The other letter before a verdict, as in "A and B is better", or another verdict."""

_CONDITION = re.compile(
    r"^\W{0,8}(?:(?:and|but|so|then|however|yet|only)\W{1,4}){0,2}"
    r"(?:(?:if|in\s{1,8}case)(?!\s{1,8}(?:anything\b|forced|pressed|pushed"
    r"|(?:I|we|one|you)\s{1,8}(?:had|have|must|needed|need|am|were|was)\b))"
    r"|unless|assuming|suppos(?:e|ing)|provided|as\s{1,8}long\s{1,8}as|depending|had|were|should)\b",
    re.IGNORECASE,
)
"""The beginning of a clause on which a later one of its sentence depends; "if I had to choose" is
the judge's own way of choosing."""

_AFTER = re.compile(
    r"^(?:"
    r"[ \t,(\u2014-]{0,4}(?:but\s{1,8})?(?:only\s{1,8}|just\s{1,8})?(?:"
    r"if(?!\s{1,8}(?:only|you\s{1,8}ask\s{1,8}me)\b)"
    r"|if\s{1,8}only\s{1,8}(?!slightly|marginally|barely|narrowly|just|by|a\b)"
    r"|unless|provided|assuming|whenever|where|as\s{1,8}long\s{1,8}as|depending"
    r"|when(?!\s{1,8}(?:considering|compar|all|both|taking|weighing|looking)))\b"
    r"|[ \t,)]{0,4}or\b"
    r"|[ \t]{1,4}(?:only|merely|in\s{1,8}(?:some|certain|a\s{1,8}few|part))\b"
    r"|[ \t]{1,4}(?:is|was|would|seems|sounds|means|meant|implies|refers|stands|applies|cannot"
    r"|can't|may|might|could|should)\b(?!\s{1,8}my\b)"
    r"|\s{1,8}than\b(?![^.!?\n]{0,60}(?:(?<![A-Za-z0-9])[AB](?![A-Za-z0-9])"
    r"|\b(?:other|first|second|alternative|opponent)\b))"
    r")",
    re.IGNORECASE,
)
"""What follows on a verdict that is none: a condition, an alternative, a remark on the phrase, and
a comparison with something else than the other answer."""

_QUOTED = re.compile(
    r"\"[^\"\n]*\"|[\u201c\u201e][^\u201c\u201d\u201e\n]*[\u201c\u201d]|\u00ab[^\u00ab\u00bb\n]*\u00bb|`[^`\n]*`"
    r"|'(?:[AB]|Tie)\b[^'\n]{0,40}better\)?'|^[ \t]{0,8}>.*$",
    re.IGNORECASE | re.MULTILINE,
)

_QUOTED_VERDICT = re.compile(
    r"(?:^|\b(?:answer|choice|conclusion|decision|judge?ment|output|reply|result|verdict)"
    r"[\s:]{0,8}(?:is\b)?[\s:]{0,8})"
    r"[\"\u201c\u00ab`']([^\"\u201d\u00bb`'\n]{0,80})[\"\u201d\u00bb`'][\s.!]{0,8}$",
    re.IGNORECASE,
)


def read_named(prompt: JudgePrompt, text: str) -> Winner | Failure:
    """The verdict that an answer names in the words of a prompt; see the two functions below."""
    if not prompt.letters:
        return read_winner(text)
    return read_letter(text, {phrase: winner for winner, phrase in prompt.phrases.items()})


def read_winner(text: str) -> Winner | Failure:
    """The verdict that an answer names; a failure where it names none, or several.

    Read is what stands outside of reasoning: one of the four phrases, a letter alone, `[[A]]` or
    `[[A>>B]]`, a JSON object with the verdict under a key such as `better_response`, or a text in
    which one phrase occurs. A phrase in quotation marks counts where nothing but a label such as
    "Verdict:" stands before it at the end of the answer: elsewhere a judge quotes what it was
    asked. A phrase that is denied or doubted ("not", "hard to say"), depends on a condition, is
    somebody else's opinion or stands in a question does not count: what is unclear is no verdict.
    """
    answer = _plain(text)
    if isinstance(answer, Failure):
        return answer
    verdicts = _named(answer)
    if len(verdicts) == 1 and _NO_SIDE not in verdicts:
        winner: Winner = verdicts.pop()  # type: ignore[assignment] # no side is taken out
        return winner
    count = len(verdicts - {_NO_SIDE})
    ties = " and a tie that leans to neither side" if _NO_SIDE in verdicts else ""
    return Failure("no-verdict", f"named {count} of the four verdicts{ties}: {text!r:.400}")


def read_letter(text: str, letters: Mapping[str, Winner]) -> Winner | Failure:
    """The verdict of an answer that is a single letter, behind its reasoning and a label.

    letters: upper-case letter -> verdict. Any other answer is a failure: a letter inside a sentence
    may be the name of an answer.
    """
    answer = _plain(text)
    if isinstance(answer, Failure):
        return answer
    words = _LABEL.sub("", _between_letters(answer))
    if words in letters and not _ends_asking(answer):
        return letters[words]
    wanted = ", ".join(sorted(letters))
    return Failure("no-verdict", f"is none of the letters {wanted}: {text!r:.400}")


def _plain(text: str) -> str | Failure:
    """The answer behind the reasoning, without emphasis."""
    answer = after_reasoning(text)
    if answer is None:
        return Failure("no-verdict", f"ends inside its reasoning: {text!r:.400}")
    return _normal(answer)


def _normal(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)
    plain = plain.replace("*", "").replace("\u2018", "'").replace("\u2019", "'")
    return re.sub(r"\be\.\s?g\.", "eg", plain).strip()


def _named(answer: str) -> set[str]:
    """All verdicts that an answer names; what it quotes counts where it is the answer's end."""
    if answer.startswith(("{", "```")) and (value := _json_verdict(answer)) is not None:
        return set() if value.startswith(("{", "```")) else _named(value)
    if verdict := _short_verdict(answer):
        return verdict
    quoted = _QUOTED_VERDICT.search(answer)
    if quoted and _is_asserted(answer, *quoted.span()) and (verdict := _short_verdict(quoted[1])):
        return verdict
    return set(_verdicts_in(_QUOTED.sub(" ", answer)))


def _short_verdict(answer: str) -> set[str]:
    """The verdict of an answer that is nothing but a verdict; empty for any other answer."""
    if _ends_asking(answer):
        return set()
    words = _between_letters(answer)
    if match := _LETTER.fullmatch(words):
        return {match[1].upper()}
    if match := _PHRASE.fullmatch(words):
        letter = match["letter"].upper()
        return {f"Tie({letter})" if match["tie"] else letter}
    return set()


def _between_letters(text: str) -> str:
    """The text from its first letter or digit to its last."""
    places = [i for i, character in enumerate(text) if character.isalnum()]
    return text[places[0] : places[-1] + 1] if places else ""


def _ends_asking(text: str) -> bool:
    """Whether a text ends with a question mark, brackets and quotation marks aside."""
    return text.rstrip(" \t\n)]}\"'`\u201d\u00bb").endswith("?")


def _json_verdict(answer: str) -> str | None:
    """The value of the one key of a JSON object that holds a verdict; None where there is none."""
    body = re.sub(r"^```(?:json)?\s*|\s*```$", "", answer)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    values = [value for key, value in document.items() if key.casefold() in _VERDICT_KEYS]
    if len(values) != 1 or not isinstance(values[0], str):
        return None
    return _normal(values[0])


def _verdicts_in(text: str) -> Iterator[str]:
    """All verdicts that a text names, `_NO_SIDE` among them."""
    for match in _BRACKETS.finditer(text):
        yield match[1] or match[2] or _NO_SIDE
    for match in _TIE.finditer(text):
        letter = match["inside"] or match["better"] or match["alone"]
        if _is_asserted(text, *match.span()):
            yield f"Tie({letter.upper()})"
    rest = _TIE.sub(" ", _BRACKETS.sub(" ", text))
    for match in _BETTER.finditer(rest):
        if _is_asserted(rest, *match.span()):
            yield match[1]
    if _BARE_TIE.search(rest):
        yield _NO_SIDE


def _is_asserted(text: str, start: int, end: int) -> bool:
    """Whether a judge says of its own what stands at a place of its answer, without conditions."""
    sentence = _SENTENCE_END.split(text[max(0, start - _AROUND) : start])[-1]
    *clauses, clause = _CLAUSE_END.split(sentence)
    after = text[end : end + _AROUND]
    stop = _SENTENCE_END.search(after)
    if stop and stop[0] == "?":
        return False
    if _DENIED.search(clause) or _BOTH.search(sentence) or _AFTER.match(after):
        return False
    if _OPINION.search(clause) and not _OWN.search(clause):
        return False
    return not any(_CONDITION.match(before) for before in clauses)


# -- scores ----------------------------------------------------------------------------------------


def read_scores(text: str) -> CriteriaScores | Failure:
    """The scores that a reply gives; a failure where it has no object with a criterion in it.

    Read is what stands outside of reasoning: the whole of it where that is JSON, else the first
    balanced `{...}` that is an object with a criterion. Keys are names or titles of criteria,
    values `{"score": 7, "justification": "..."}` or the number alone. A second object with other
    scores makes the reply a failure: which of them counts cannot be told.
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


def _letters(key: str) -> str:
    return "".join(char for char in key.casefold() if char.isalnum())


_NAMES = {_letters(name): name for name in CRITERIA} | {
    _letters(title): name for name, (title, _) in CRITERION_SENTENCES.items()
}


def _scores_of(document: Mapping[str, Any]) -> CriteriaScores | None:
    """The scores of an object; None where no criterion is in it."""
    results: dict[str, CriterionResult] = {}
    for key, value in document.items():
        name = _NAMES.get(_letters(key))
        if name is None:
            continue
        if name in results or isinstance(value, Repeated):
            results[name] = Failure("no-score", f"{name}: given twice")
        elif not isinstance(value, dict):
            results[name] = read_score(name, value)
        else:
            fields = {key.casefold(): field for key, field in value.items()}
            results[name] = Failure("no-score", f"{name}: has no score, or two")
            if "score" in fields and len(fields) == len(value):
                justification = fields.get("justification", "")
                results[name] = read_score(name, fields["score"], justification)
    return CriteriaScores.of(results) if results else None
