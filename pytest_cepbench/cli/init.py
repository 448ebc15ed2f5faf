"""`cepbench init`: a suite for one's own images, with samples and tolerance from measured noise."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.chains import total
from pytest_cepbench.cli.output import (
    NOT_DONE,
    Section,
    Table,
    complain,
    show,
    show_document,
    tell,
)
from pytest_cepbench.cli.project_files import (
    METRIC,
    ProjectPlan,
    check_name,
    refuse_existing,
    shell_line,
    suite_name,
    write_files,
)
from pytest_cepbench.cli.session import measuring, spent_line
from pytest_cepbench.datasets.folder import load_folder
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import CepError, WriteError
from pytest_cepbench.evaluation.python_api import GateOptions, gate_checkpoint
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.models.spec import PRESET, parse_spec
from pytest_cepbench.report.number_format import number
from pytest_cepbench.studies.calibration import (
    Proposal,
    Trial,
    calibrate,
    prepare_calibration,
    propose,
)
from pytest_cepbench.studies.study_data import StudyUsage
from pytest_cepbench.suites import RoleChoices, load_suite
from pytest_cepbench.suites.definition import FILE_NAME, FOLDER
from pytest_cepbench.suites.model_options import RoleAssignment
from pytest_cepbench.suites.role_assignment import expand_preset

_ROLES = ("describer", "generator", "encoder")


def run(arguments: Namespace) -> int:
    """Measure, write the project, accept where that was asked for; exit codes as in `main`."""
    plan = _plan(arguments)
    dataset = load_folder(plan.images)
    refuse_existing(plan.files(Proposal()))
    if arguments.no_measure:
        proposal = Proposal(reasons=("no model was asked (--no-measure)",))
        _tell_unseen([arguments.model, *(getattr(arguments, role) for role in _ROLES)])
    else:
        proposal = _measured(arguments, plan, dataset)
    files = plan.files(proposal)
    try:
        write_files(files)
        baselines = plan.root / "baselines" / plan.name
        baselines.mkdir(parents=True, exist_ok=True)
    except (WriteError, OSError) as error:
        return complain(str(error), NOT_DONE)
    show([_summary(plan, dataset, proposal, [*files, baselines])])
    if arguments.accept:
        return _accept(arguments, plan, proposal)
    command = _command(arguments, plan, proposal)
    show(
        [],
        f"accept this model's numbers: {command} --snapshot-update",
        f"then gate another one:       {_command(arguments, plan, proposal, 'CHECKPOINT')}",
    )
    return 0


def _plan(arguments: Namespace) -> ProjectPlan:
    """The project. Raises SpecError for a name, a spec or a folder that cannot be used."""
    images = arguments.images
    name = suite_name(images) if arguments.name is None else arguments.name
    check_name(name)
    given = {role: getattr(arguments, role) for role in _ROLES}
    roles = {role: _expanded(role, spec) for role, spec in given.items() if spec is not None}
    return ProjectPlan(Path(), name, images, roles)


def _tell_unseen(texts: Sequence[str | None]) -> None:
    """Tell which models are no folders here: without a measurement nobody looks them up."""
    specs = [parse_spec(text) for text in dict.fromkeys(texts) if text is not None]
    unseen = [
        spec.target
        for spec in specs
        if not spec.scheme and not Path(spec.target).expanduser().exists()
    ]
    if unseen:
        tell(
            "no folder here, so taken for an id on the Hugging Face hub, where --no-measure looks "
            f"nothing up: {', '.join(unseen)}"
        )


def _expanded(role: str, text: str) -> str:
    """A spec; a preset is one of the shipped suite `folder`, and written out."""
    spec = parse_spec(text)
    if spec.scheme != PRESET:
        return text
    suite = load_suite(FOLDER / "folder" / FILE_NAME)
    named = RoleAssignment("generator", spec, f"--{role}")
    return expand_preset(suite, named).spec.text


def _measured(arguments: Namespace, plan: ProjectPlan, dataset: Dataset) -> Proposal:
    """The proposal of a pilot."""
    with TemporaryDirectory(prefix="cepbench-") as name:
        folder = Path(name) / plan.name
        folder.mkdir()
        file = folder / FILE_NAME
        file.write_text(plan.suite(folder, Proposal()), encoding="utf-8")
        choices = RoleChoices(arguments.model, arguments.role)
        trial = Trial(file, choices, arguments.seeds, samples=arguments.samples)
        with measuring(arguments.store, file) as (pool, begin):
            prepared = prepare_calibration(trial, pool)
            begin()
            calibrated = calibrate(prepared, pool, tell)
            spent = total(runner.tally for runner in pool.runners.values())
            tell(spent_line(StudyUsage(spent.loads, spent.inputs, spent.hits, spent.seconds)))
    return propose(calibrated, _counts(dataset), METRIC)


def _counts(dataset: Dataset) -> Mapping[str, int]:
    return Counter(category for sample in dataset.samples for category in sample.categories)


def _summary(
    plan: ProjectPlan, dataset: Dataset, proposal: Proposal, written: Sequence[Path]
) -> Section:
    counts = _counts(dataset)
    samples = "all" if proposal.samples is None else f"{proposal.samples} of each category"
    source = "measured" if proposal.measured else "a default, nothing was measured"
    sizes = {OVERALL: len(dataset.samples), **counts}
    rows = [_row(part, size, proposal) for part, size in sizes.items()]
    head = ("part", "images", "tolerance", "held", "visible", "needed")
    lines = [f"samples: {samples}; tolerance: {source}", *proposal.reasons]
    lines += dataset.notes
    if proposal.measured:
        lines.append(
            "held: in so many of 100 runs a checkpoint as good as this one is held, and undecided "
            "else; visible: the smallest drop that fails in 80 of them; needed: images with which "
            "80 are held. Checkpoints differ by more than seeds: take these numbers as the best "
            "there can be"
        )
    table = Table(head, tuple(rows))
    return Section(
        f"suite {plan.name}: {len(dataset.samples)} images in {len(counts)} categories",
        (*lines, table, *(f"written: {path}" for path in written)),
    )


def _row(part: str, size: int, proposal: Proposal) -> tuple[str, ...]:
    """A part of the suite, and what its case can tell."""
    tolerance = proposal.cases.get(f"{part}/{METRIC}", proposal.tolerance)
    power = proposal.power.get(part)
    known = ("-", "-", "-")
    if power is not None:
        known = (
            str(power.held_of_100),
            number(power.visible) if isfinite(power.visible) else "-",
            "-" if power.needed is None else str(power.needed),
        )
    return (part, str(size), f"{tolerance:g}", *known)


def _command(
    arguments: Namespace, plan: ProjectPlan, proposal: Proposal, model: str | None = None
) -> str:
    """The line that gates a model, this one by default."""
    spec = arguments.model if model is None else model
    role = f" --cep-role={arguments.role}" if arguments.role else ""
    quoted = shlex.quote(f"--model={spec}")
    return shell_line(plan.suite_folder.as_posix(), f"{quoted}{role}", proposal)


def _accept(arguments: Namespace, plan: ProjectPlan, proposal: Proposal) -> int:
    """Accept the model's numbers as the first baselines."""
    options = GateOptions(model=arguments.model, store=arguments.store)
    if arguments.role is not None:
        options["role"] = arguments.role
    if proposal.samples is not None:
        options["samples"] = proposal.samples
    try:
        result = gate_checkpoint(plan.suite_folder, snapshot_update=True, **options)
    except CepError as error:
        return complain(f"nothing was accepted: {error}", NOT_DONE)
    if not result.changed:
        show_document(f"{result}\n")
        again = f"{_command(arguments, plan, proposal)} --snapshot-update"
        return complain(f"nothing was accepted; the suite is written. Try again: {again}", NOT_DONE)
    show(
        [],
        f"accepted: {len(result.changed)} baselines below {plan.root / 'baselines' / plan.name}",
        f"gate another model: {_command(arguments, plan, proposal, 'CHECKPOINT')}",
    )
    return 0
