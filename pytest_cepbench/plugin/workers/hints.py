"""Hints for the scheduler: the chains and models that each case of a run needs, and its cost.

Workers know them, since they have the suites and their data; the controller schedules. So a worker
writes them to the folder of the run before xdist tells the controller what was collected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cepbench.evaluation.run_context import CASES, write_message

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import AssignedCase, Evaluator

CATEGORY, WHOLE, POOLED = 0, 1, 2
"""Order of cases: categories, then what is made of several, then the verdict of all."""

_MAPPINGS = ("text-to-text", "text-to-image", "image-to-image", "image-to-text")
_SHARED = tuple(f"{part}-" for part in ("overall", *_MAPPINGS))
_VERDICT = "suite-verdict"


@dataclass(frozen=True)
class CaseHint:
    """What one case needs.

    unit: cases of one unit need the same chains, so one worker judges them, one after the other.
    suite: its suite file.
    models: its models, as "role spec".
    turn: CATEGORY, WHOLE or POOLED.
    cost: samples times generations of its chains.
    """

    unit: str
    suite: str
    models: tuple[str, ...] = ()
    turn: int = CATEGORY
    cost: int = 0


def unit_of(nodeid: str) -> str:
    """`suites/x/test_x.py::test_drift[color-gc]` belongs to `...[color`; others to themselves.

    Mappings belong to `...[overall`: all of them read the chains of the whole suite.
    """
    file, _, name = nodeid.partition("::")
    test, bracket, case = name.partition("[")
    part, dash, _ = case.rpartition("-")
    if not (bracket and dash):
        return nodeid
    if case.startswith(_SHARED):  # their metrics may be named with dashes
        part = "overall"
    return f"{file}::{test}[{part}"


def guess_hint(nodeid: str) -> CaseHint:
    """The hint for a test that no worker wrote one for: a plain test, or the file was lost."""
    unit = unit_of(nodeid)
    case = nodeid.partition("[")[2].removesuffix("]")
    turn = POOLED if case == _VERDICT else WHOLE if unit.endswith("[overall") else CATEGORY
    return CaseHint(unit, nodeid.partition("::")[0] if case else "", turn=turn)


def write_hints(evaluator: Evaluator, pooled: Mapping[str, Path]) -> None:
    """Write the hints of all collected cases, unless another worker has; all would write the same.

    pooled: suite file of each suite's own verdict, by node id.
    """
    folder = evaluator.context.folder
    if (folder / CASES).exists():
        return
    hints = {
        nodeid: _hint(evaluator, nodeid, assigned)
        for nodeid, assigned in evaluator.assigned.items()
    }
    for nodeid, path in pooled.items():
        hints[nodeid] = CaseHint(nodeid, str(path), _models(evaluator, path), POOLED)
    text = json.dumps({nodeid: asdict(hint) for nodeid, hint in hints.items()})
    with suppress(OSError):  # a full disk: the scheduler guesses
        write_message(evaluator.context.make_folder(), CASES, text)


def _hint(evaluator: Evaluator, nodeid: str, assigned: AssignedCase) -> CaseHint:
    loaded, case = evaluator.suites.get(assigned.suite_file), assigned.case
    samples = {s.id for name in case.categories for s in loaded.dataset.in_category(name)}
    unit = unit_of(nodeid)
    whole = len(case.categories) > 1 or unit.endswith("[overall")
    return CaseHint(
        unit=unit,
        suite=str(assigned.suite_file),
        models=_models(evaluator, assigned.suite_file),
        turn=WHOLE if whole else CATEGORY,
        cost=len(samples) * loaded.suite.table.chain.length,
    )


def _models(evaluator: Evaluator, path: Path) -> tuple[str, ...]:
    assignments = evaluator.suites.get(path).assignments
    chosen = {f"{seat.role} {seat.spec}" for seat in assignments.roles.values()}
    return tuple(sorted(chosen | {f"{assignments.under_test} {assignments.subject}"}))


def read_hints(folder: Path, nodeids: Sequence[str]) -> list[CaseHint]:
    """The hint for each test, in their order; guessed where no worker wrote one."""
    try:
        known = json.loads((folder / CASES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    return [
        CaseHint(**{**known[nodeid], "models": tuple(known[nodeid]["models"])})
        if nodeid in known
        else guess_hint(nodeid)
        for nodeid in nodeids
    ]
