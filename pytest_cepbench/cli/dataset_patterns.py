"""`cepbench dataset patterns`: images to patterns, labels of a model, and a choice of images."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.cli.dataset_files import has_study, write_study
from pytest_cepbench.cli.output import Section, Table, show, tell
from pytest_cepbench.cli.session import measuring, pool_line
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.folder import open_construction
from pytest_cepbench.construction.pattern_stages import (
    STAGES,
    Constructed,
    ConstructionSettings,
    construct_patterns,
)
from pytest_cepbench.construction.patterns import MOST_PATTERNS
from pytest_cepbench.errors import SpecError, did_you_mean
from pytest_cepbench.files import names_beside
from pytest_cepbench.models import RoleName
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.model_options import assigned_role

VERIFY = "verify"
"""The stage behind the last one that needs no people: here the study is written, not served."""

_MOST_SHOWN = 20


def run(arguments: Namespace) -> int:
    """Do the stages, print what they found; exit codes as in `main`.

    Raises SpecError naming the option that is wrong.
    """
    number, file = _patterns(arguments.patterns)
    settings = ConstructionSettings(
        images=arguments.images,
        out=arguments.out,
        style=arguments.prompts,
        patterns=file,
        most=number,
        per_pattern=arguments.per_pattern,
        sampling=arguments.sampling,
        seed=arguments.seed,
        until=STAGES[-1] if arguments.until in (None, VERIFY) else arguments.until,
    )
    if arguments.until == VERIFY and arguments.annotators is None and not has_study(arguments.out):
        raise SpecError(
            "--until verify writes the study of the people who check: name them, --annotators"
        )
    made = file is not None or (arguments.out / files.PATTERNS).is_file()
    if arguments.writer is None and not made and arguments.until not in ("extract", "count"):
        raise SpecError(
            "a summary of the names that are found needs a writer: give one with --writer SPEC, or "
            "the patterns themselves with --patterns FILE (or stop before it: --until count)"
        )
    names: tuple[RoleName, ...] = ("describer", "writer")
    given = {role: getattr(arguments, role) for role in names}
    choices = RoleChoices(roles={role: spec for role, spec in given.items() if spec is not None})
    # Modules of `python:` models may lie beside the folder of the data set.
    with measuring(arguments.store, arguments.out) as (pool, begin):
        describer = pool.runner(assigned_role(choices, "describer"))
        has_writer = "writer" in choices.roles
        writer = pool.runner(assigned_role(choices, "writer")) if has_writer else None
        begin()
        found = construct_patterns(settings, describer, writer, tell)
        tell(pool_line(pool))
    show(list(_page(found)), *(f"written: {path}" for path in dict.fromkeys(found.written)))
    if arguments.until == VERIFY:
        write_study(
            open_construction(arguments.out),
            arguments.images,
            arguments.annotators,
            arguments.overlap,
            # Of a study that is there, it is the seed of draws and models alone.
            None if has_study(arguments.out) else arguments.seed,
        )
    if found.chosen is not None:
        folder = shlex.quote(str(arguments.out))
        show(
            [],
            f"people check the labels: cepbench dataset verify {folder} --annotators NAME,NAME",
            f"then freeze it:          cepbench dataset freeze {folder}",
        )
    return 0


def _patterns(text: str) -> tuple[int, Path | None]:
    """The number of patterns of a summary, or a file of patterns. Raises SpecError."""
    if text.isascii() and text.isdecimal():
        number = int(text)
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


def _page(constructed: Constructed) -> Iterator[Section]:
    source, counts = constructed.source, constructed.counts
    same = sum(len(record.same) for record in source.records)
    lines = [f"files with the same pixels as another, left out: {same}"]
    if source.unreadable:
        name, why = next(iter(source.unreadable.items()))
        lines.append(
            f"files that hold no image that can be read: {len(source.unreadable)} ({name}: {why})"
        )
    if counts is not None:
        shown = list(counts.patterns.items())[:_MOST_SHOWN]
        names = ", ".join(f"{name} {number}" for name, number in shown)
        lines.append(f"{len(counts.patterns)} names of patterns in {counts.images} images: {names}")
        if counts.failures:
            failed = ", ".join(f"{kind} {number}" for kind, number in counts.failures.items())
            lines.append(f"images without an annotation: {failed}")
    labelled = constructed.annotations
    if labelled:
        good = sum(not a.failure for a in labelled)
        dropped = sum(len(a.dropped) for a in labelled)
        repaired = sum(a.repaired for a in labelled)
        lines.append(
            f"annotated: {good} of {len(labelled)} images; {dropped} names "
            f"outside the list were dropped, {repaired} replies were repaired"
        )
    yield Section(f"{len(source.records)} images of {source.folder}", tuple(lines))
    chosen = constructed.chosen
    if chosen is not None:
        rows = tuple(
            (name, str(share.images), str(share.chosen)) for name, share in chosen.patterns.items()
        )
        title = f"{len(chosen.images)} images chosen by {chosen.sampling}"
        yield Section(title, (Table(("pattern", "images", "chosen"), rows),))
