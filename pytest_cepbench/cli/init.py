"""`cepbench init`: a suite for one's own images, with samples and tolerance from measured noise."""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_cepbench.cli.output import Section, show, tell
from pytest_cepbench.cli.session import measuring, pool_line
from pytest_cepbench.datasets.folder import load_folder
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import CepError, EndedError, SpecError, WriteError
from pytest_cepbench.evaluation.python_api import gate_checkpoint
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.models.spec import PRESET, parse_spec
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.report.text import cause_lines
from pytest_cepbench.studies.calibration import (
    Proposal,
    calibrate,
    prepare_calibration,
    propose,
)
from pytest_cepbench.suites import RoleChoices, load_suite
from pytest_cepbench.suites.definition import FILE_NAME, FOLDER, NAME
from pytest_cepbench.suites.role_assignment import RoleAssignment, expand_preset

METRIC = "gc"
"""The metric of the suite that is gated with statistics."""

_RELATIVE = ("./", "../")

_SUITE = """\
# Written by `cepbench init`; docs/reference.md explains every key. A change of data, chain,
# prompts or roles makes baselines that were accepted before incomparable.
name = {name}
version = 1
description = {description}

[data]
loader = "folder"
name = {name}
path = {images}

[chain]
start = "image"
iterations = 3
seed = 0

[prompts]
describe = "Describe this image in detail, so that it could be drawn from your words alone."
generate = "{{description}}"
{roles}
[metrics.gc]

# A few more chains that stop are chance, and score 0 in the other metrics. A rise that is neither
# chance nor below the tolerance fails.
[metrics.failures]
tolerance = 0.05

[gate]
gate = "regression"
{reasons}
tolerance = {tolerance}
{cases}"""

_TEST = '''\
"""The images of {name} against their accepted baselines."""


def test_drift(cep_case, cep_gate):
    """No category or the whole drifts more than accepted."""
    cep_gate(cep_case)
'''


@dataclass(frozen=True)
class ProjectPlan:
    """A project that is to be written here.

    name: of the suite, of its folder below `suites` and of that of its baselines.
    images: the folder of images.
    roles: role -> spec of the models that stay the same.
    """

    name: str
    images: Path
    roles: Mapping[str, str]

    def suite(self, folder: Path, proposal: Proposal) -> str:
        """The text of the suite's file, as it has to be in a folder."""
        roles = "".join(
            f"{role} = {_quoted(_seen_from(folder, spec))}\n" for role, spec in self.roles.items()
        )
        cases = "".join(
            f"\n[cases.{_quoted(case)}]\ntolerance = {tolerance:g}\n"
            for case, tolerance in proposal.cases.items()
        )
        source = "By the noise that was measured" if proposal.measured else "A default"
        reasons = "\n".join(
            textwrap.fill(f"{line}.", 98, initial_indent="# ", subsequent_indent="# ")
            for line in (source, *proposal.reasons)
        )
        # Relative where the images are in the project, which another machine has elsewhere.
        here, images = Path.cwd().resolve(), self.images.resolve()
        inside = images.is_relative_to(here) and folder.is_relative_to(Path())
        path = os.path.relpath(images, folder.resolve()) if inside else str(images)
        return _SUITE.format(
            name=_quoted(self.name),
            description=_quoted(f"The images of {self.images.name}, described and drawn again"),
            images=_quoted(path),
            roles=f"\n[roles]\n{roles}" if roles else "",
            reasons=re.sub(r"[^\x20-\x7e\n]", "?", reasons),
            tolerance=f"{proposal.tolerance:g}",
            cases=cases,
        )


def _seen_from(folder: Path, spec: str) -> str:
    """A spec that was typed here, as a suite in a folder has to name it."""
    body, mark, params = spec.partition("?")
    here = Path(body).exists() and not Path(body).is_absolute()
    if not (here or spec.startswith(_RELATIVE)):
        return spec
    path = os.path.relpath(Path(body).absolute(), folder.absolute())
    return f"{path if path.startswith('..') else f'./{path}'}{mark}{params}"


def _quoted(text: str) -> str:
    """A string of TOML. Raises SpecError for a name that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{text!r} is not UTF-8, and no file of text can name it: rename it"
        ) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def run(arguments: Namespace) -> int:
    """Measure, write the project, accept where that was asked for; exit codes as in `main`.

    Raises SpecError for a name, a spec or a folder that cannot be used, and WriteError.
    """
    plan = _plan(arguments)
    dataset = load_folder(plan.images)
    counts = Counter(category for sample in dataset.samples for category in sample.categories)
    folder, baselines = (Path(place) / plan.name for place in ("suites", "baselines"))
    suite, test = folder / FILE_NAME, folder / f"test_{plan.name.replace('-', '_')}.py"
    if existing := [str(path) for path in (suite, test) if os.path.lexists(path)]:
        raise WriteError(
            f"nothing was written: {', '.join(existing)} would be replaced. Choose another "
            "--name, or move away what is there"
        )
    if arguments.no_measure:
        proposal = Proposal(reasons=("no model was asked (--no-measure)",))
    else:
        proposal = _measured(arguments, plan, counts)
    texts = {suite: plan.suite(folder, proposal), test: _TEST.format(name=plan.name)}
    _write_project(texts, baselines)
    images = counted(len(dataset.samples), "image")
    parts = "" if len(counts) == 1 else f" in {len(counts)} categories"
    lines = (*_sight(dataset, proposal), *(f"written: {path}" for path in (*texts, baselines)))
    show([Section(f"suite {plan.name}: {images}{parts}", lines)])

    def command(model: str) -> str:
        words = [f"--model={model}"]
        words += [f"--cep-role={arguments.role}"] if arguments.role else []
        words += [] if proposal.samples is None else [f"--cep-samples={proposal.samples}"]
        return f"pytest {folder.as_posix()} {shlex.join(words)}"

    accepting = f"{command(arguments.model)} --snapshot-update"
    if not arguments.accept:
        show(
            [],
            f"accept this model's numbers: {accepting}",
            f"then gate another one: {command('CHECKPOINT')}",
        )
        return 0
    accepted = _accept(arguments, folder, proposal, accepting)
    show(
        [],
        f"accepted: {accepted} baselines below {baselines}",
        f"gate another model: {command('CHECKPOINT')}",
    )
    return 0


def _write_project(texts: Mapping[Path, str], baselines: Path) -> None:
    """Write the files of a project, all or none, and its folder of baselines.

    Raises WriteError, also where one of them is there.
    """
    written: list[Path] = []
    try:
        baselines.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as stream:
                written.append(path)
                stream.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise WriteError(
            f"nothing was written: {error.filename or 'a file'}: {error.strerror}"
        ) from error


def _accept(arguments: Namespace, folder: Path, proposal: Proposal, again: str) -> int:
    """Accept the model's numbers; how many. again: the command that does it.

    Raises EndedError where none could be accepted.
    """
    options = {"model": arguments.model, "store": arguments.store}
    if arguments.role is not None:
        options["role"] = arguments.role
    if proposal.samples is not None:
        options["samples"] = proposal.samples
    try:
        result = gate_checkpoint(folder, snapshot_update=True, **options)
    except CepError as error:
        raise EndedError(f"nothing was accepted: {error}") from error
    if not result.changed:
        summary, _, _ = f"{result}".partition("\nverdict: ")  # each case in full comes behind it
        show([], *summary.splitlines(), *cause_lines(result.cases))
        raise EndedError(f"nothing was accepted; the suite is written. Try again: {again}")
    return len(result.changed)


def _plan(arguments: Namespace) -> ProjectPlan:
    images: Path = arguments.images
    name = arguments.name
    if name is None:  # from that of the folder
        name = re.sub(r"[^a-z0-9_-]+", "-", images.resolve().name.lower()).strip("-_") or "images"
    if not NAME.fullmatch(name):
        raise SpecError(f"--name {name!r}: lower-case letters, digits, - and _ are expected")
    given = {role: getattr(arguments, role) for role in ("describer", "generator", "encoder")}
    roles = {role: spec for role, spec in given.items() if spec is not None}
    for role, text in roles.items():
        spec = parse_spec(text)
        if spec.scheme == PRESET:  # one of the shipped suite `folder`, which is written out
            suite = load_suite(FOLDER / "folder" / FILE_NAME)
            named = RoleAssignment("generator", spec, f"--{role}")
            roles[role] = expand_preset(suite, named).spec.text
    return ProjectPlan(name, images, roles)


def _measured(arguments: Namespace, plan: ProjectPlan, counts: Mapping[str, int]) -> Proposal:
    """The proposal of a pilot."""
    with TemporaryDirectory(prefix="cepbench-") as name:
        folder = Path(name) / plan.name
        folder.mkdir()
        file = folder / FILE_NAME
        file.write_text(plan.suite(folder, Proposal()), encoding="utf-8")
        choices = RoleChoices(arguments.model, arguments.role)
        seeds, samples = arguments.seeds, arguments.samples
        with measuring(arguments.store, file) as (pool, begin):
            prepared = prepare_calibration(file, choices, seeds, pool, samples=samples)
            begin()
            calibrated = calibrate(prepared, pool, tell)
            tell(pool_line(pool))
    return propose(calibrated, counts, METRIC)


def _sight(dataset: Dataset, proposal: Proposal) -> tuple[str, ...]:
    """What the suite will see and what not, in three sentences; else why that is not known."""
    whole = proposal.power.get(OVERALL)
    if whole is None:
        return ("tolerance: a default, nothing was measured", *proposal.reasons, *dataset.notes)
    seen = {part: power.visible for part, power in proposal.power.items()}
    parts = ", ".join(f"{part} {drop:.3g}" for part, drop in seen.items() if part != OVERALL)
    enough = "" if whole.needed is None else f"about {whole.needed} images would do for 80; "
    see = (
        f"It will see a drop of {seen[OVERALL]:.3g} or more of the whole, in 80 of 100 runs"
        f"{f' (of a category: {parts})' if parts else ''}."
    )
    not_see = (
        "It will not see smaller drops, nor what becomes of images that are not here, and "
        "checkpoints differ by more than the seeds that were compared."
    )
    held = (
        f"A checkpoint as good as this one is held in {whole.held_of_100} of 100 runs, and "
        f"undecided else: {enough}there are {len(dataset.samples)}."
    )
    return see, not_see, held, *proposal.reasons, *dataset.notes
