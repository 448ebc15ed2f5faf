"""`cepbench dataset`: images to patterns, labels of a model, people who check, and frozen sets."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cepbench.cli.arguments import whole_number
from pytest_cepbench.cli.output import Section, Table, show, tell
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.folder import open_construction
from pytest_cepbench.construction.patterns import MOST_PATTERNS
from pytest_cepbench.construction.stages import (
    STAGES,
    Construction,
)
from pytest_cepbench.construction.verification import (
    settle_labels,
    write_frozen,
    write_verification,
)
from pytest_cepbench.errors import SpecError, did_you_mean
from pytest_cepbench.files import names_beside
from pytest_cepbench.ratings.folder import STUDY, read_ratings

if TYPE_CHECKING:
    from pytest_cepbench.models import RoleName


def run_patterns(arguments: Namespace) -> int:
    """Do the stages, print what they found; exit codes as in `main`.

    Raises SpecError naming the option that is wrong.
    """
    # Freezing needs none of what measures.
    from pytest_cepbench.cli.session import measuring, pool_line
    from pytest_cepbench.suites import RoleChoices
    from pytest_cepbench.suites.role_assignment import assigned_role

    out: Path = arguments.out
    number, file = _patterns(arguments.patterns)
    found = Construction(
        images=arguments.images,
        out=out,
        announce=tell,
        patterns=file,
        most=number,
        per_pattern=arguments.per_pattern,
        until=arguments.until or STAGES[-1],
    )
    made = file is not None or (out / files.PATTERNS).is_file()
    if arguments.writer is None and not made and arguments.until != "count":
        raise SpecError(
            "a summary of the names that are found needs a writer: give one with --writer SPEC, or "
            "the patterns themselves with --patterns FILE (or stop before it: --until count)"
        )
    # Modules of `python:` models may lie beside the folder of the data set.
    with measuring(arguments.store, out) as (pool, begin):
        given: dict[RoleName, str | None]
        given = {"describer": arguments.describer, "writer": arguments.writer}
        runners = {
            role: pool.runner(assigned_role(RoleChoices(roles={role: spec}), role))
            for role, spec in given.items()
            if spec is not None
        }
        if "image" not in runners["describer"].bound.reads:
            raise SpecError(f"--describer {arguments.describer} reads no images: name another")
        begin()
        found.run(runners["describer"], runners.get("writer"))
        tell(pool_line(pool))
    show(
        list(_patterns_page(found)), *(f"written: {path}" for path in dict.fromkeys(found.written))
    )
    if found.chosen is not None:
        quoted = shlex.quote(str(out))
        show(
            [],
            f"people check the labels: cepbench dataset verify {quoted} --annotators NAME,NAME",
            f"then freeze it: cepbench dataset freeze {quoted}",
        )
    return 0


def _patterns(text: str) -> tuple[int, Path | None]:
    """The number of patterns of a summary, or a file of patterns. Raises SpecError."""
    if (number := whole_number(text)) is not None:
        if not 1 <= number <= MOST_PATTERNS:
            raise SpecError(
                f"--patterns {text}: 1 to {MOST_PATTERNS} patterns are expected, or a file"
            )
        return number, None
    path = Path(text)
    if not path.is_file():
        near = did_you_mean(path.name, names_beside(path))
        raise SpecError(
            f"--patterns {text!r}: a number of patterns is expected, or a file of patterns in "
            f"TOML.{near}"
        )
    return MOST_PATTERNS, path


def _patterns_page(found: Construction) -> Iterator[Section]:
    source, counts, labelled, chosen = found.source, found.counts, found.annotations, found.chosen
    same = sum(len(record.same) for record in source.records)
    lines = [f"files with the same pixels as another, left out: {same}"]
    if source.unreadable:
        name, why = next(iter(source.unreadable.items()))
        lines.append(
            f"files that hold no image that can be read: {len(source.unreadable)} ({name}: {why})"
        )
    if counts is not None:
        shown = list(counts.patterns.items())[:20]
        names = ", ".join(f"{name} {number}" for name, number in shown)
        lines.append(f"{len(counts.patterns)} names of patterns in {counts.images} images: {names}")
        if counts.failures:
            failed = ", ".join(f"{kind} {number}" for kind, number in counts.failures.items())
            lines.append(f"images without an annotation: {failed}")
    if labelled:
        good = sum(not a.failure for a in labelled)
        dropped = sum(len(a.dropped) for a in labelled)
        repaired = sum(a.repaired for a in labelled)
        lines.append(
            f"annotated: {good} of {len(labelled)} images; {dropped} names "
            f"outside the list were dropped, {repaired} replies were repaired"
        )
    yield Section(f"{len(source.records)} images of {source.folder}", lines)
    if chosen is not None:
        rows = tuple(
            (name, str(share.images), str(share.chosen)) for name, share in chosen.patterns.items()
        )
        table = Table(("pattern", "images", "chosen"), rows)
        yield Section(f"{len(chosen.images)} images chosen", (table,))


def run_verify(arguments: Namespace) -> int:
    """Write the study where it is new, and serve it; exit codes as in `main`."""
    folder = open_construction(arguments.folder)
    path = folder.path / files.RATINGS
    known = (path / STUDY).is_file()
    if arguments.annotators is None and not known:
        raise SpecError(
            "say who checks: --annotators NAME,NAME (they vote with the model on each label)"
        )
    write_verification(folder, arguments.annotators or (), arguments.overlap)
    study = read_ratings(path)
    asked = f"{len(study.asked)} items for {', '.join(study.study.annotators)}"
    tell(f"goes on: {path}, {asked}" if known else f"{path}: {asked}")
    if not arguments.only_write:
        from pytest_cepbench.cli.rate import serve_ratings

        serve_ratings(path, arguments)
    return 0


def run_freeze(arguments: Namespace) -> int:
    """Settle the labels and write the files; exit codes as in `main`."""
    name: str = arguments.name or arguments.folder.resolve().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):  # which its files have
        raise SpecError(
            f"{name!r} cannot name the set, give --name NAME: letters, digits, '.', '_' and '-' "
            "are expected, at most 64, and a letter or a digit first"
        )
    folder = open_construction(arguments.folder)
    frozen = settle_labels(name, folder, unverified=arguments.unverified)
    written = write_frozen(frozen, arguments.to or arguments.folder / files.FROZEN)
    rows = tuple((pattern, str(len(own))) for pattern, own in frozen.members.items())
    table = Table(("pattern", "images"), rows)
    page = Section(f"{name}: {len(frozen.labels)} images", (*frozen.facts(), table))
    show([page], *(f"written: {path}" for path in written))
    return 0
