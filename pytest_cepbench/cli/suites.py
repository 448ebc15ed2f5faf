"""`cepbench suites`: the suites that come with the package, and what each of them needs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from pytest_cepbench.cli.output import Section, Table, show
from pytest_cepbench.errors import SpecError, unknown_name
from pytest_cepbench.models.protocols import ROLE_NAMES
from pytest_cepbench.suites import Suite
from pytest_cepbench.suites.data import data_name, needs_path
from pytest_cepbench.suites.definition import list_suites, package_of
from pytest_cepbench.suites.role_assignment import needed_roles


def run(arguments: Namespace) -> int:
    """Print the table of all suites, or one of them in full; exit codes as in `main`."""
    suites = {suite.name: suite for suite in list_suites()}
    if arguments.name in suites:
        suite = suites[arguments.name]
        show([Section(f"{suite.name}: {suite.table.description}", tuple(_lines(suite)))])
        return 0
    if arguments.name is not None:
        raise SpecError(unknown_name("suite", arguments.name, suites))
    rows = []
    for suite in suites.values():
        first, *others = suite.metrics
        rows.append(
            (
                suite.name,
                f"{first} and {len(others)} more" if others else first,
                (needs_path(suite) and data_name(suite)) or "built in",
                ", ".join(role for role, spec in needed_roles(suite).items() if spec is None)
                or "none",
            )
        )
    table = Table(("suite", "metrics", "data", "models that you name"), tuple(rows))
    more = "one in full, with its command: cepbench suites NAME"
    show([Section(f"{len(suites)} suites come with the package", (more, table))])
    return 0


def _lines(suite: Suite) -> Iterator[str]:
    yield f"metrics: {', '.join(suite.metrics)}"
    data, name = suite.table.data, data_name(suite)
    place = f" --cep-data {name}=PATH" if needs_path(suite) else ""
    if name is None:
        yield "data: built in"
    else:
        own = "" if needs_path(suite) else "built in, or "
        yield f"data: {own}--cep-data {name}=PATH. {data.how_to_get}".rstrip()
    yield "models, one of them under test (--model):"
    for role, spec in needed_roles(suite).items():
        option = f"--{role}=SPEC" if role in ROLE_NAMES else f"--encoder {role}=SPEC"
        yield f"  {role}: {option if spec is None else f'{spec}, or {option}'}"
    yield f"file: {suite.file}"
    # The tests of a folder gate all suites in it; each calls its own file by name.
    yield f"run: pytest --pyargs {package_of(suite)} --model=SPEC{place}"
    yield "baselines: the folder `baselines` of your project, or --cep-baselines DIR"
