"""Items whose right answer is known: whether an answer is right, and what people are told of it.

`Item.known` says it, by task:

pair, caption   {"winner": "first"}, or "second"
grades          {"better": [[0, 2]]}: option 0 ranks above option 2, and has no lower grade
describe        {"words": [["red", "crimson"]]}: a word of each list occurs
verify          {"ticked": ["Color"]}: these names and no others

with {"why": "..."} for the people who practise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_cepbench.ratings.records import GRADES, Fields, Item, Task, Vote, option_name

WHY = "why"


def known_fault(task: Task, item: Item) -> str:
    """Why an item cannot be asked as one whose answer is known; empty where it can."""
    known = {key: value for key, value in item.known.items() if key != WHY}
    match task, known:
        case (("pair" | "caption"), {"winner": "first" | "second"}):
            return ""
        case "grades", {"better": [*pairs]} if pairs and all(_is_pair(p, item) for p in pairs):
            return ""
        case "describe", {"words": [*groups]} if groups and all(map(_are_texts, groups)):
            return ""
        case "verify", {"ticked": [*names]} if set(names) <= set(map(option_name, item.options)):
            return ""
    return f"what is known of it does not fit the task {task}: {known!r:.80}"


def is_right(task: Task, known: Fields, vote: Vote) -> bool:
    """Whether an answer is the known one; a skipped item is not answered right."""
    if vote.skip:
        return False
    if task in ("pair", "caption"):
        return bool(vote.winner == known["winner"])
    if task == "grades":
        return all(_is_above(vote, *pair) for pair in known["better"])
    if task == "describe":
        words = set(re.findall(r"\w+", (vote.text or "").casefold()))
        return all(words & {word.casefold() for word in group} for group in known["words"])
    return sorted([*(vote.ticked or ()), *(vote.added or ())]) == sorted(known["ticked"])


def expected_answer(task: Task, known: Fields, shown: Sequence[str | int], item: Item) -> str:
    """The known answer in the words of the page. shown: order of its options there."""
    if task in ("pair", "caption"):
        letter = ("A", "B") if task == "pair" else ("Caption 1", "Caption 2")
        return f"{letter[list(shown).index(known['winner'])]} is better."
    if task == "grades":
        place = {number: at + 1 for at, number in enumerate(shown)}
        return " ".join(
            f"Output {place[better]} is better than output {place[worse]}."
            for better, worse in known["better"]
        )
    if task == "describe":
        words = [" or ".join(group) for group in known["words"]]
        return f"A description says: {', '.join(words)}."
    fitting = [name for name in map(option_name, item.options) if name in known["ticked"]]
    return f"These fit: {', '.join(fitting) or 'none'}."


def _is_above(vote: Vote, better: int, worse: int) -> bool:
    places: dict[int, int] = {}
    for place, options in enumerate(vote.ranking):
        for option in (options,) if isinstance(options, int) else options:
            places[option] = place
    grades = [GRADES.index(vote.grades[str(option)]) for option in (better, worse)]
    return places[better] < places[worse] and grades[0] <= grades[1]


def _is_pair(pair: object, item: Item) -> bool:
    match pair:
        case [int(better), int(worse)]:
            return better != worse and {better, worse} <= set(range(len(item.options)))
    return False


def _are_texts(group: object) -> bool:
    return (
        isinstance(group, list | tuple) and bool(group) and all(isinstance(w, str) for w in group)
    )
