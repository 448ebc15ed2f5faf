"""The questions to models of a construction, and the JSON schemas of their replies.

`paper` has the roles, the definition, the tasks and the forms of reply of MMGenBench's prompts
(Figures 13 to 15) in this project's words; `neutral` leaves out the role of an expert, and asks for
names and reasons in one list, which servers can hold a model to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from pytest_cepbench.construction.pattern_list import Pattern

PROMPTS_VERSION = "patterns/1"
"""Names the texts below and how replies to them are read."""

Style = Literal["neutral", "paper"]

STYLES: tuple[Style, ...] = get_args(Style)

Examples = Literal["none", "paper"]

EXAMPLE_CHOICES: tuple[Examples, ...] = get_args(Examples)

EXAMPLE_NAMES = (
    "Orientation and Direction",
    "Text",
    "Quantity",
    "Geometry",
    "Surreal",
    "State and Condition",
    "Position and Contextual Relationship",
    "Structural and Physical Characteristics",
)
"""Names in the paper's prompt for extraction; the last one in its example of a reply (Figure 13).

All of them are among the ten most frequent patterns that it brought (Figure 12): examples prime.
"""

_ROLE = "You are an expert who looks at images closely and annotates their patterns.\n\n"

_DEFINITION = (
    "An image pattern is a visual feature or structure that repeats or is consistent in an image: "
    "colors, shapes, textures, arrangements, or certain objects or symbols."
)

_FORMS: Mapping[Style, str] = {
    "neutral": (
        'Reply with one JSON object and nothing else: {"description": "...", "image_pattern": '
        '[{"name": "...", "reason": "..."}]}.'
    ),
    "paper": (
        'Reply with one JSON object and nothing else: {"description": "...", "image_pattern": '
        '["NAME", ...], "pattern_detail": {"NAME": "reason", ...}}.'
    ),
}

_SUMMARY_FORMS: Mapping[Style, str] = {
    "neutral": (
        'Reply with one JSON object and nothing else: {"image_pattern": [{"name": "...", '
        '"sentence": "...", "merged_from": ["...", ...]}]}, where merged_from lists the given '
        "names that a new one takes in."
    ),
    "paper": (
        'Reply with one JSON object and nothing else: {"image_pattern": ["NAME", ...], '
        '"pattern_detail": {"NAME": "what the pattern is", ...}}.'
    ),
}


def extraction_prompt(style: Style, examples: Examples) -> str:
    """The question for a description and for patterns of any name. Source: Figure 13."""
    named = ""
    if examples == "paper":
        named = f" Examples of patterns: {', '.join(EXAMPLE_NAMES)}."
    return (
        f"{_role(style)}{_DEFINITION}{named}\n\n"
        "1. Describe the image in detail, with everything that you see in it.\n"
        "2. Name the patterns that the image has, several where it has several, and give a reason "
        "for each.\n\n"
        f"{_FORMS[style]}"
    )


def annotation_prompt(style: Style, patterns: Sequence[Pattern]) -> str:
    """The question for patterns of a closed list. Source: Figure 15."""
    known = "\n".join(
        f"- {pattern.name}: {pattern.sentence}" if pattern.sentence else f"- {pattern.name}"
        for pattern in patterns
    )
    return (
        f"{_role(style)}{_DEFINITION} These are all patterns that count:\n{known}\n\n"
        "1. Describe the image in detail, with everything that you see in it.\n"
        "2. Name those of the patterns above that the image has, several where it has several and "
        "none where it has none, spelled as above, and give a reason for each. Use no other "
        "name.\n\n"
        f"{_FORMS[style]}"
    )


def summary_question(style: Style, counts: Mapping[str, int], most: int) -> str:
    """The question for a short list of patterns, given how often each name occurred.

    most: patterns that are wanted at most. Source: Figure 14.
    """
    given = json.dumps({"frequencies": dict(counts), "most": most}, ensure_ascii=False)
    return (
        f"{_role(style)}These are names of image patterns, and in how many images each was named:\n"
        f"{given}\n\n"
        f"Summarize them as at most {most} patterns. New names are as short as they can be, and "
        "general enough to take in several of the given ones: do not go by frequency alone. Say in "
        "a sentence what each pattern is.\n\n"
        f"{_SUMMARY_FORMS[style]}"
    )


def repair_prompt(prompt: str, problem: str, reply: str) -> str:
    """The same question once more, with what was wrong with the first reply."""
    return (
        f"{prompt}\n\nAn earlier reply could not be read as JSON: {problem}. It was:\n{reply}\n\n"
        "Reply with the JSON object alone."
    )


def pattern_schema(style: Style, names: Sequence[str] | None = None) -> dict[str, Any]:
    """JSON schema of a description with patterns.

    names: the closed list; None where any name may be given.
    """
    name: dict[str, Any] = {"type": "string"}
    if names is not None:
        name["enum"] = list(names)
    head = {"description": {"type": "string"}}
    if style == "paper":
        detail: dict[str, Any] = {
            "type": "object",
            "additionalProperties": {"type": "string"},
        }
        return _object({**head, "image_pattern": _list(name), "pattern_detail": detail})
    pattern = _object({"name": name, "reason": {"type": "string"}})
    return _object({**head, "image_pattern": _list(pattern)})


def summary_schema(style: Style) -> dict[str, Any]:
    """JSON schema of a summary."""
    text = {"type": "string"}
    if style == "paper":
        detail = {"type": "object", "additionalProperties": text}
        return _object({"image_pattern": _list(text), "pattern_detail": detail})
    pattern = _object({"name": text, "sentence": text, "merged_from": _list(text)})
    return _object({"image_pattern": _list(pattern)})


def _role(style: Style) -> str:
    return _ROLE if style == "paper" else ""


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
