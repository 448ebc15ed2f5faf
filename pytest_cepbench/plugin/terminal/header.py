"""The header of a run: which model is gated against what, and one line for each suite.

Short names; every report has full specs and identities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from string import hexdigits
from typing import TYPE_CHECKING, NamedTuple

from pytest_cepbench.errors import SpecError, did_you_mean
from pytest_cepbench.files import shown_path

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.evaluation.settings import RunSettings
    from pytest_cepbench.gate.series import SeriesFile
    from pytest_cepbench.models.binding import BoundRole

_LONGEST_SPEC = 32
"""Characters of a spec up to which it is its own short name."""

_DIGITS = 8
"""Of a fingerprint, as the HTML report shows it."""


class HeaderLine(NamedTuple):
    """One line of the header.

    full: with whole specs and identities, for reports.
    short: what is printed in its place; empty where nothing is.
    """

    full: str
    short: str | None = None


def setup_lines(
    settings: RunSettings, evaluator: Evaluator, taken: Sequence[str], *, workers: bool
) -> Iterator[HeaderLine]:
    """What the user named, resolved.

    taken: short options that other plugins own.
    workers: whether models work in processes of xdist, which have devices of their own.
    Raises SpecError for a shared store that is not there, and what binding a model raises.
    """
    for location in settings.shared:
        if isinstance(location, Path) and not location.is_dir():
            raise SpecError(
                f"--cep-shared {shown_path(location)}: no such folder; that of a store is expected"
            )
    if evaluator.engine is not None:
        yield HeaderLine(evaluator.engine.header)
    yield from _model_lines(settings, evaluator)
    published = ""
    if settings.publish is not None:
        published = f", published to {shown_location(settings.publish)}"
    baselines, store = shown_path(settings.baselines), shown_path(settings.store)
    yield HeaderLine(f"baselines {baselines}, store {store}{published}")
    if evaluator.series is not None:
        yield HeaderLine(series_line(evaluator.series))
    for name in taken:
        yield HeaderLine(f"{name} belongs to another plugin here, use --cep-{name[2:]}")
    typed = settings.sources.items()
    elsewhere = [f"{name} from {source}" for name, source in typed if not source.startswith("--")]
    if elsewhere:
        yield HeaderLine(", ".join(elsewhere), "")
    if not workers and (devices := evaluator.devices.devices):  # of several, those that were given
        full = ", ".join(f"{spec} on {device}" for spec, device in devices.items())
        short = ", ".join(f"{short_name(spec)} on {device}" for spec, device in devices.items())
        yield HeaderLine(f"devices: {full}", f"devices: {short}")


def series_line(file: SeriesFile) -> str:
    """Where a series is. Raises SeriesError for a record that cannot be used."""
    from pytest_cepbench.gate.statistics.constants import EXPECTED_CHECKPOINTS
    from pytest_cepbench.gate.statistics.error_budget import checkpoint_share

    record = file.read()
    if record is None or not record.lines:
        expected = file.expected or EXPECTED_CHECKPOINTS
        share = checkpoint_share(1, expected)
        return (
            f"series {file.name}: begins, with {share:.2%} of alpha for its first checkpoint and "
            f"half of it for the first {expected}"
        )
    number = record.next_look
    share = checkpoint_share(number, record.expected)
    return (
        f"series {file.name}: checkpoint {number}, {share:.2%} of alpha; one that was gated before "
        "keeps its number"
    )


def _model_lines(settings: RunSettings, evaluator: Evaluator) -> Iterator[HeaderLine]:
    from pytest_cepbench.models.protocols import ROLE_NAMES
    from pytest_cepbench.models.spec import PRESET
    from pytest_cepbench.suites.definition import ANSWERS_ONLY
    from pytest_cepbench.suites.role_assignment import possible_roles

    choices = evaluator.suites.choices
    assignments = choices.assigned
    gated_roles: Sequence[str] = () if choices.replay is not None else choices.played
    recorded, on_cluster = choices.recorded, settings.listing and settings.engine == "ray"
    if recorded is not None:
        yield HeaderLine(
            f"{choices.replayed} under test: {choices.replay} (layout {recorded.name})"
        )
    for name in sorted(
        assignments, key=lambda name: (name not in gated_roles, name not in ROLE_NAMES)
    ):
        spec = str(assignments[name].spec)
        # A preset's model is named by each suite; a listing of a run on a cluster binds none.
        unbound = assignments[name].spec.scheme == PRESET or on_cluster
        bound = None if unbound else evaluator.bind_named(name)
        if name in gated_roles:
            full, short = _identities(bound)
            label = f"model under test, {name if bound is None else bound.role}: "
            others = possible_roles(choices, name)[1:] if len(gated_roles) == 1 else ()
            if any(other.role in ANSWERS_ONLY for other in others):
                label = "model under test: "  # each suite's line says what it plays there
            yield HeaderLine(f"{label}{spec}{full}", f"{label}{short_name(spec)}{short}")
        else:
            yield HeaderLine(f"{name}: {spec}{_identities(bound)[0]}", "")
        for remark in () if bound is None else bound.remarks:
            yield HeaderLine(f"{name}: {remark}")


def _identities(bound: BoundRole | None) -> tuple[str, str]:
    """(the whole identity of a model, a short one), each in brackets after a space."""
    from pytest_cepbench.suites.model_pool import describe_role

    if bound is None:
        return "", ""
    short = bound.short_fingerprint
    if not short.strip(hexdigits):  # a digest, not a model's own name
        short = short[:_DIGITS]
    return f" ({describe_role(bound)})", f" ({bound.what} {short})"


def suite_lines(
    settings: RunSettings, evaluator: Evaluator, selected: Collection[str | None]
) -> Iterator[str]:
    """What the suites with selected cases gate, and a line for each name that no suite has.

    Below is what there is to say of their data, such as the commit that was read.

    selected: names of the cases that were collected.
    """
    loaded_suites = evaluator.suites.loaded
    known = {
        name
        for loaded in loaded_suites
        for name in (*loaded.suite.table.encoders, *loaded.assignments.roles)
    }
    for name in settings.encoders:
        if name not in known and loaded_suites:
            hint = did_you_mean(name, known)
            yield f"no suite here has an encoder {name!r} (--encoder {name}=...){hint}"
    shown = [
        loaded
        for loaded in loaded_suites
        if any(str(case.key) in selected for case in loaded.cases)
    ]
    gated: dict[str, list[str]] = {}
    for loaded in shown:
        own = loaded.assignments
        model = f"{own.under_test} {short_name(str(own.subject))}"
        if len(shown) == 1:
            fixed = ", ".join(
                f"{role} {short_name(str(assignment.spec))}"
                for role, assignment in own.roles.items()
                if role not in own.gated
            )
            location = shown_path(settings.baselines / loaded.suite.name)
            model += f"{f' ({fixed})' if fixed else ''} against {location}"
        gated.setdefault(model, []).append(loaded.suite.name)
    for roles, names in gated.items():
        verb = "suite {} gates {}" if len(names) == 1 else f"{len(names)} suites gate {{1}}: {{0}}"
        yield verb.format(", ".join(names), roles)
    yield from dict.fromkeys(note for loaded in shown for note in loaded.dataset.notes)


def short_name(spec: str) -> str:
    """A model spec as it is told from others at a glance.

    A short spec is its own name. Of a longer one it is the last part of the path, with "?..." where
    parameters follow: `reference/checkpoints/clip?dtype=float32` is `clip?...`.
    """
    if len(spec) <= _LONGEST_SPEC:
        return spec
    target, question, _ = spec.partition("?")
    last = target.rstrip("/").rpartition("/")[2] or target
    return f"{last}?..." if question else last


def shown_location(location: Path | str) -> str:
    """A shared store as it is shown; a URL with secrets was refused before."""
    return location if isinstance(location, str) else str(shown_path(location))
