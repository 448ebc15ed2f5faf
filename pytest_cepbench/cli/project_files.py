"""Files of a project: those that `init` writes, and baselines that stand in its folders."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cepbench.errors import SpecError, WriteError
from pytest_cepbench.studies.calibration import Proposal
from pytest_cepbench.suites.definition import FILE_NAME, NAME

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

_WORKFLOW = """\
# Gates a checkpoint, by hand or from a training pipeline. Written by `cepbench init`.
name: gate-{name}

on:
  workflow_dispatch:
    inputs:
      checkpoint:
        description: Model spec of the checkpoint under test
        required: true
        type: string

permissions:
  contents: read

concurrency: # one run at a time: each continues from the store that the last one saved
  group: gate-{name}
  cancel-in-progress: false

jobs:
  gate:
    runs-on: ubuntu-latest # for real checkpoints a runner of yours with a GPU: [self-hosted, gpu]
    timeout-minutes: 120
    env:
      CHECKPOINT: ${{{{ inputs.checkpoint }}}} # by environment: no input becomes part of a command
    steps:
      - uses: actions/checkout@v4

      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"

      - name: Install
        run: python -m pip install "pytest-cepbench[models]"

      - name: Restore what was computed before
        uses: actions/cache/restore@v4
        with:
          path: .cepbench/store
          key: cepbench-{name}-${{{{ github.run_id }}}}
          restore-keys: cepbench-{name}-

      - name: Gate
        run: >-
          {command}
          --cep-report=report/gate.json --junitxml=report/junit.xml

      - name: Save what was computed, also when the gate failed
        if: ${{{{ !cancelled() }}}}
        uses: actions/cache/save@v4
        with:
          path: .cepbench/store
          key: cepbench-{name}-${{{{ github.run_id }}}}-${{{{ github.run_attempt }}}}

      - name: Keep the report
        if: ${{{{ !cancelled() }}}}
        uses: actions/upload-artifact@v4
        with:
          name: gate-{name}
          path: report/
          if-no-files-found: error
"""


@dataclass(frozen=True)
class ProjectPlan:
    """A project that is to be written.

    root: its folder, where the command is run.
    name: of the suite, of its folder below `suites` and of the workflow.
    images: the folder of images.
    roles: role -> spec of the models that stay the same.
    """

    root: Path
    name: str
    images: Path
    roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def suite_folder(self) -> Path:
        """The folder of the suite."""
        return self.root / "suites" / self.name

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
        reasons = "\n".join(f"# {line}." for line in (source, *proposal.reasons))
        return _SUITE.format(
            name=_quoted(self.name),
            description=_quoted(f"The images of {self.images.name}, described and drawn again"),
            images=_quoted(self._image_path(folder)),
            roles=f"\n[roles]\n{roles}" if roles else "",
            reasons=re.sub(r"[^\x20-\x7e\n]", "?", reasons),
            tolerance=f"{proposal.tolerance:g}",
            cases=cases,
        )

    def files(self, proposal: Proposal) -> dict[Path, str]:
        """All files of the project, path -> text."""
        folder = self.suite_folder
        module = f"test_{self.name.replace('-', '_')}.py"
        command = shell_line(f"suites/{self.name}", '"--model=$CHECKPOINT"', proposal)
        return {
            folder / FILE_NAME: self.suite(folder, proposal),
            folder / module: _TEST.format(name=self.name),
            self.root / ".github" / "workflows" / f"gate-{self.name}.yml": _WORKFLOW.format(
                name=self.name, command=command
            ),
        }

    def _image_path(self, folder: Path) -> str:
        """Relative where the images are in the project, which another machine has elsewhere."""
        root, images = self.root.resolve(), self.images.resolve()
        inside = images.is_relative_to(root) and folder.is_relative_to(self.root)
        return os.path.relpath(images, folder.resolve()) if inside else str(images)


def suite_name(images: Path) -> str:
    """A suite's name from that of a folder."""
    name = re.sub(r"[^a-z0-9_-]+", "-", images.resolve().name.lower()).strip("-_")
    return name or "images"


def check_name(name: str) -> None:
    """Raise SpecError for what cannot be the name of a suite."""
    if not NAME.fullmatch(name):
        raise SpecError(f"--name {name!r}: lower-case letters, digits, - and _ are expected")


def shell_line(suite: str, model: str, proposal: Proposal) -> str:
    """The command that gates a model. model: the option, quoted for a shell."""
    samples = "" if proposal.samples is None else f" --cep-samples={proposal.samples}"
    return f"pytest {suite} {model}{samples}"


def refuse_existing(paths: Mapping[Path, str]) -> None:
    """Raise WriteError where a file is there already."""
    existing = [str(path) for path in paths if os.path.lexists(path)]
    if existing:
        raise WriteError(
            f"nothing was written: {', '.join(existing)} is there already. Choose another --name, "
            "or move it away"
        )


def write_files(files: Mapping[Path, str]) -> None:
    """Write new files, all or none. Raises WriteError where one is there or cannot be written."""
    refuse_existing(files)
    written: list[Path] = []
    try:
        for path, text in files.items():
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


def _seen_from(folder: Path, spec: str) -> str:
    """A spec that was typed here, as a suite in a folder has to name it."""
    if not spec.startswith(_RELATIVE):
        return spec
    body, mark, params = spec.partition("?")
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
