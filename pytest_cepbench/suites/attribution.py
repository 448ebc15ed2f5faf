"""At which hop of the chain a case lost its score: the baseline's hops are put back one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.chains import Modality, RoleRunner
from pytest_cepbench.chains.baseline_model import recall, remember
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import BaselineError, MeasurementError, NotInStoreError
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.hybrid_chains import HybridChains, first_difference, relay
from pytest_cepbench.suites.suite_run import SuiteRun

_GROWERS = ("describer", "generator")

_NOTHING = 5e-7
"""What is smaller is no difference: scores are kept with six decimals."""

_MOST_OTHERS = 3


@dataclass(frozen=True)
class Hop:
    """One hop of a role that differs from the baseline's.

    start: of its chains. generation: from 1 on. cost: what was lost there, in the metric's own
    unit; above 0 for a loss, whichever direction of the metric is better.
    """

    start: Modality
    role: str
    generation: int
    cost: float


@dataclass(frozen=True)
class Attribution:
    """Where a case lost its score.

    samples: how many were looked at. drop: what was lost over them, above 0 for a loss; None where
    nothing can be said. hops: of the roles that differ, chain by chain; their costs add up to the
    drop. first_difference: the earliest generation at which an artifact differs from the
    baseline's, and how many chains differ from there on; None where none does. said: the same in
    words, or why nothing can be said.
    """

    samples: int
    drop: float | None
    hops: tuple[Hop, ...]
    first_difference: tuple[int, int] | None
    said: str


def attribute(run: SuiteRun, case: Case, step: str, sample_ids: Sequence[str]) -> Attribution:
    """Say at which hops a case lost its score, by chains that begin as the baseline's.

    Hybrid k has the baseline's first k hops of the roles that differ and is played on by the
    candidate: hybrid 0 is the candidate's own chain, the last one the baseline's. Hop k costs what
    hybrid k scores better than hybrid k - 1. The baseline's hops come from the store, its model is
    never loaded; the candidate's are computed where they are not stored.

    step: the baseline's model, by `remember`; empty where it has none. sample_ids: of the case; all when empty, which is
    what distances between sets need. Over given samples each counts once, in however many
    categories it is.
    Raises ValueError for an id that is not the case's; DatasetError, CheckpointError, ModelError
    and StoreError as they come. What cannot be found out is said, not raised.
    """
    samples = _choose(run, case, sample_ids)
    try:
        absent = _absent(run, step)
        if isinstance(absent, str):
            return _silent(absent)
        played = relay(case, run.measures[case.key.metric], run.evidence, absent)
        return _attribute(run, played, samples, whole=not sample_ids)
    except (BaselineError, MeasurementError, NotInStoreError) as error:
        return _silent(f"Where the score was lost cannot be said: {error}.")


def _choose(run: SuiteRun, case: Case, sample_ids: Sequence[str]) -> list[Sample]:
    dataset = run.evidence.dataset
    own = {s.id: s for category in case.categories for s in dataset.in_category(category)}
    strange = [name for name in sample_ids if name not in own]
    if strange:
        msg = f"{case.key} has no sample {strange[0]!r}: ids of its own samples are expected"
        raise ValueError(msg)
    return [own[name] for name in sorted(set(sample_ids) or own)]


def _absent(run: SuiteRun, step: str) -> dict[str, RoleRunner] | str:
    """By role, the baseline's players that are not the candidate's; or why none can be put back."""
    if run.lineup.replay is not None:
        return "The chains were made elsewhere: there is no model to play them on from a hop."
    if not step:
        return (
            "The baseline does not say whose steps it was measured with: it is of chains made "
            "elsewhere, or of an older version; a new one, accepted with --snapshot-update, does."
        )
    remembered = {one.role: one for one in recall(step)}
    readers = [role for role in remembered if role not in _GROWERS]
    if readers:
        return (
            f"The {' and '.join(readers)} under test only reads: the chains are the baseline's own, "
            "and what was lost was lost in reading them."
        )
    absent: dict[str, RoleRunner] = {
        role: RoleRunner(one, run.evidence.store)
        for role, one in remembered.items()
        if remember(run.evidence.runner(role).bound) != remember(one)
    }
    return absent or f"The {' and '.join(remembered)} is the baseline's own: nobody can be swapped."


def _attribute(
    run: SuiteRun, played: HybridChains, samples: Sequence[Sample], *, whole: bool
) -> Attribution:
    known = played.in_store(samples)
    if not known:
        return _silent(
            "The baseline's chains are not in this run's store, so where the score was lost cannot "
            "be said: use the store of the run that measured the baseline (--cep-store), or measure "
            "its model once with this one."
        )
    values = played.values(known, whole=whole)
    sign = 1.0 if played.measure.higher_is_better else -1.0
    hops = tuple(
        Hop(*place, cost=_tidy(sign * (after - before)))
        for place, before, after in zip(played.places, values, values[1:], strict=False)
    )
    drop = _tidy(sign * (values[-1] - values[0]))
    ends = (played.chains(swapped, known) for swapped in (0, len(played.places)))
    partings = Counter(first_difference(*pair) for pair in zip(*ends, strict=True))
    differing = sorted(at for at in partings if at is not None)
    sentences = (
        _say_hops(hops, drop, len(known), both=len(played.plans) > 1),
        _say_roles(run, played, hops),
        _say_partings(partings),
        _say_left_out(len(samples) - len(known)),
    )
    return Attribution(
        samples=len(known),
        drop=drop,
        hops=hops,
        first_difference=(differing[0], partings[differing[0]]) if differing else None,
        said=" ".join(filter(None, sentences)),
    )


def _tidy(cost: float) -> float:
    """Without the last bits of sums over equal scores, and without -0.0."""
    return 0.0 if abs(cost) < _NOTHING else cost


def _silent(why: str) -> Attribution:
    return Attribution(0, None, (), None, why)


def _say_hops(hops: Sequence[Hop], drop: float, samples: int, *, both: bool) -> str:
    """Which hop cost most, and which others had a part."""
    over = f"over {samples} sample{'s' if samples > 1 else ''}"
    if drop <= 0:
        gained = f", the value is {-drop:.4f} better than the baseline's" if drop < 0 else ""
        return f"Nothing was lost {over}{gained}."
    worst = max(hops, key=lambda hop: hop.cost)
    others = sorted((h for h in hops if h.cost and h is not worst), key=lambda h: -abs(h.cost))
    said = (
        f"Lost {drop:.4f} {over}: {worst.cost:.4f} ({worst.cost / drop:.0%}) by the {worst.role} at "
        f"{_where(worst, both=both)}"
    )
    for hop in others[:_MOST_OTHERS]:
        said += f", {hop.cost:.4f} at {_where(hop, both=both)}"
    return f"{said}{', less elsewhere' if len(others) > _MOST_OTHERS else ''}."


def _where(hop: Hop, *, both: bool) -> str:
    return f"generation {hop.generation}{f' of the {hop.start}-first chains' if both else ''}"


def _say_roles(run: SuiteRun, played: HybridChains, hops: Sequence[Hop]) -> str:
    """What each role cost where several differ, and who is the baseline's own."""
    costs = {role: sum(hop.cost for hop in hops if hop.role == role) for role in played.absent}
    by_role = ", ".join(f"{role} {cost:.4f}" for role, cost in costs.items())
    same = ", ".join(seat for seat in run.lineup.seats if seat not in played.absent)
    said = [f"By role: {by_role}."] if len(costs) > 1 else []
    return " ".join([*said, f"The baseline's own: {same}."] if same else said)


def _say_partings(partings: Mapping[int | None, int]) -> str:
    """From which generation on how many chains are not the baseline's."""
    total = sum(partings.values())
    found = sorted((at, count) for at, count in partings.items() if at is not None)
    if not found:
        return f"All {total} chains are the baseline's, artifact by artifact."
    where = ", ".join(f"generation {at} ({count} of {total})" for at, count in found)
    return f"Chains first differ from the baseline's at {where}."


def _say_left_out(count: int) -> str:
    if not count:
        return ""
    return f"Left out: {count} whose chains by the baseline are not in the store."
