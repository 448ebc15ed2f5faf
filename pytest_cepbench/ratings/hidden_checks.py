"""How annotators did on the hidden items: attention items, and items that came a second time.

The operator's page and `cepbench agreement` both count with these functions.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.known_answers import is_right
from pytest_cepbench.ratings.records import Vote


def attention_results(ratings: Ratings, votes: Votes) -> Iterator[tuple[Vote, bool]]:
    """Each answer to an attention item that counts, and whether it is the known one.

    A skipped one is left out: "broken image" is a sensible answer to an image whose tiles were
    shuffled.
    """
    for vote in votes.answers("attention"):
        yield vote, is_right(vote.task, ratings.items[vote.item].known, vote)


def repeat_results(votes: Votes) -> Iterator[tuple[Vote, bool]]:
    """Each answer to an item that came again, and whether it is the first answer once more.

    Items that were skipped at one of the two times are left out, and so are descriptions, which
    are not compared.
    """
    for vote in votes.answers("repeat"):
        first = votes.counted.get((vote.annotator, vote.item, "item"))
        if vote.task != "describe" and first is not None and not first.skip:
            yield vote, _is_same(first, vote)


def _is_same(first: Vote, second: Vote) -> bool:
    """Whether two answers to one item are equal; a tie counts for the side to which it leans."""
    match first.task:
        case "grades":
            return first.grades == second.grades
        case "verify":
            return _names(first) == _names(second)
        case _:
            return first.winner == second.winner


def _names(vote: Vote) -> set[str]:
    return {*(vote.ticked or ()), *(vote.added or ())}
