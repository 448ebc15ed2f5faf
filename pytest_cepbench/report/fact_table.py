"""What became of facts, in words and cells: which kinds are lost, when, and by which role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_cepbench.report.number_format import counted, percent, printable
from pytest_cepbench.report.result import CaseResult, FactKindShown, FactsShown

ROLE_STEPS = {"describer": "description", "generator": "drawing"}
"""Role -> what one of its steps is called."""

_ARTIFACTS = {"describer": "text", "generator": "picture"}

_LISTED_HEADS = ("changed", "regained", "not true", "new")

PAIR_HEADS = ("text, picture", "right in both", "text alone", "picture alone", "in neither")
"""Of the columns of `pair_rows`."""


def kind_heads(facts: FactsShown) -> tuple[str, ...]:
    """Of the columns of `kind_rows`."""
    last = facts.generations[-1]
    lost = (f"{_ARTIFACTS[loss.role]} loses" for loss in facts.every.losses)
    return ("facts", "n", f"right at {last}", "half-life (95 %)", *lost)


def kind_rows(facts: FactsShown) -> Iterator[tuple[str, ...]]:
    """Cells of each kind, and of all where there are several.

    n, the share right at the last generation, half-life in generations, and of the facts that are
    right before a step of each role the share that is wrong after it.
    """
    every = [facts.every] if len(facts.kinds) > 1 else []
    for kind in (*facts.kinds, *every):
        yield (
            printable(kind.kind) or "all kinds",
            str(kind.facts),
            "-" if not kind.curve or kind.curve[-1] is None else percent(kind.curve[-1]),
            half_life_shown(kind),
            *(_share(loss.lost, loss.right) for loss in kind.losses),
        )


def step_heads(facts: FactsShown) -> tuple[str, ...]:
    """Of the columns of `step_rows`."""
    return ("facts", "artifact", *(_LISTED_HEADS if facts.precision else ("regained",)))


def step_rows(facts: FactsShown) -> Iterator[tuple[str, ...]]:
    """Cells of each kind and role whose steps change, regain or invent something.

    Of the facts that are right before a step the share that another claim of the kind stands for
    after it; of those that are wrong before it the share that is right after it; of what its
    artifacts claim the share that is not true, and the part of it that the artifact before did not
    claim.
    """
    every = [facts.every] if len(facts.kinds) > 1 else []
    for kind in (*facts.kinds, *every):
        for loss in kind.losses:
            regained = _share(loss.regained, loss.wrong)
            listed = (
                _share(loss.changed, loss.right),
                regained,
                _share(loss.untrue, loss.claims),
                _share(loss.invented, loss.claims),
            )
            if loss.regained or loss.invented:
                name = printable(kind.kind) or "all kinds"
                cells = listed if facts.precision else (regained,)
                yield (name, _ARTIFACTS[loss.role], *cells)


def half_life_shown(kind: FactKindShown) -> str:
    """A half-life with its interval, or how long the chain saw less than half go."""
    if not kind.curve:
        return "-"
    value, low, high = (
        f"over {kind.last}" if end is None else f"{end:.1f}"
        for end in (kind.half_life, kind.low, kind.high)
    )
    if kind.half_life is None:
        return value if kind.low is None else f"{value} (from {low})"
    return f"{value} ({low} to {high})"


def _share(part: float | None, whole: float | None) -> str:
    return percent(part / whole) if part is not None and whole else "-"


def share_of(cell: float, whole: float) -> str:
    """A cell of a 2 x 2 table as a share of the facts, one decimal; a dash of none."""
    return f"{100 * cell / whole:.1f} %" if whole else "-"


def pair_rows(kind: FactKindShown) -> Iterator[tuple[str, ...]]:
    """Cells of the 2 x 2 tables of a kind, one row for each pair, in shares of the facts."""
    for pair in kind.tables:
        cells = (pair.both, pair.read, pair.drawn, pair.neither)
        whole = sum(cells)
        yield (f"{pair.text}, {pair.picture}", *(share_of(cell, whole) for cell in cells))


def loses_most(facts: FactsShown) -> str:
    """The role of which a step loses more facts, in a sentence; empty where it cannot be said."""
    shares = [(loss.lost / loss.right, loss) for loss in facts.every.losses if loss.right]
    if len(shares) < 2:
        return ""
    (most, first), (least, second) = sorted(shares, key=lambda pair: pair[0], reverse=True)
    steps = [ROLE_STEPS[loss.role] for loss in (first, second)]
    if most == least:
        return f"a {steps[0]} loses {percent(most)} of the right facts, and so does a {steps[1]}"
    return f"a {steps[0]} loses {percent(most)} of the right facts, a {steps[1]} {percent(least)}"


def mostly_invented(facts: FactsShown) -> str:
    """That what is claimed beyond the facts is most of what is wrong; empty where it is not."""
    losses = facts.every.losses
    untrue = sum(loss.untrue or 0 for loss in losses)
    missing = sum(loss.wrong + loss.lost - loss.regained for loss in losses)
    if not untrue or untrue < 2 * missing:
        return ""
    counts = f"{untrue:.0f} claims are not true, {missing:.0f} facts are missing"
    return f"most of it is invented: {counts}"


def fact_lines(results: Iterable[CaseResult]) -> list[str]:
    """A line for each case about facts."""
    lines = []
    for result in results:
        facts = result.shown.facts
        if facts is None or not facts.every.curve or facts.every.curve[-1] is None:
            continue
        right = f"{percent(facts.every.curve[-1])} of {facts.every.facts} right"
        parts = [f"{right} after {counted(facts.generations[-1], 'generation')}"]
        lost = any(loss.lost or loss.wrong or loss.untrue for loss in facts.every.losses)
        if lost or facts.unanswered:
            first = min(facts.kinds, key=_lifetime)
            parts += [
                f"half-life of every kind: over {first.last}"
                if first.half_life is None and first.low is None
                else f"half-life of {printable(first.kind)}, the shortest: "
                f"{half_life_shown(first)}",
                loses_most(facts),
                mostly_invented(facts),
                f"{facts.unanswered} answers are missing" if facts.unanswered else "",
            ]
        line = f"facts of {result.suite} {result.part} [{result.metric}]: "
        lines.append(printable(line + "; ".join(filter(None, parts)), 700))
    return lines


def _lifetime(kind: FactKindShown) -> tuple[float, float]:
    """Sorts kinds by half-life, those that outlive the chain by what is left at its end."""
    end = kind.curve[-1] if kind.curve else None
    beyond = kind.last + 1.0
    return beyond if kind.half_life is None else kind.half_life, 1.0 if end is None else end
