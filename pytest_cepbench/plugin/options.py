"""Options with their ini and environment twins; what comes of them is in `settings`.

Standard library and pytest only: this runs in every pytest that has the plugin installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from pytest_cepbench.evaluation.pool_options import ROLES
from pytest_cepbench.evaluation.settings import (
    ENGINES,
    GATES,
    INCONCLUSIVE,
    PAIRINGS,
    RESIDENCIES,
)


@dataclass(frozen=True)
class Option:
    """One option: `--cep-NAME`, ini `cepbench_NAME`, environment `CEPBENCH_NAME`.

    short: whether `--NAME` is offered as well. multiple: may be given several times. switch: takes
    no value; "true" in ini file and environment.
    """

    name: str
    metavar: str
    help: str
    short: bool = False
    multiple: bool = False
    choices: tuple[str, ...] | None = None
    switch: bool = False

    @property
    def flag(self) -> str:
        """The canonical option string."""
        return f"--cep-{self.name}"

    @property
    def dest(self) -> str:
        """Attribute of config.option."""
        return f"cep_{self._word}"

    @property
    def ini(self) -> str:
        """Name in the ini file."""
        return f"cepbench_{self._word}"

    @property
    def env(self) -> str:
        """Name in the environment."""
        return f"CEPBENCH_{self._word.upper()}"

    @property
    def _word(self) -> str:
        return self.name.replace("-", "_")


OPTIONS = (
    Option(
        "model", "SPEC", "Model under test: a checkpoint folder, hub id, or other spec", short=True
    ),
    Option(
        "role",
        "ROLE",
        "What the model under test plays: a role, or unified for describer and generator",
        choices=(*ROLES, "unified"),
    ),
    Option("describer", "SPEC", "Model that describes images", short=True),
    Option("generator", "SPEC", "Model that draws descriptions", short=True),
    Option(
        "encoder",
        "[NAME=]SPEC",
        "Model whose vectors are compared; with NAME= one of a suite's further encoders (several "
        "allowed)",
        short=True,
        multiple=True,
    ),
    Option("detector", "SPEC", "Model that finds objects in images", short=True),
    Option("judge", "SPEC", "Model that says which of two answers is better", short=True),
    Option("data", "NAME=PATH", "Where a suite's data set lies (several allowed)", multiple=True),
    Option("samples", "N", "Most samples of each category: the same ones in every run"),
    Option("seeds", "N", "How often each sample is played, instead of the suites' own"),
    Option("store", "DIR", "Folder of computed results (default: .cepbench/store)"),
    Option(
        "shared",
        "DIR|URL",
        "Results that others computed, read only, under the store: a folder, or a URL such as "
        "s3://BUCKET/PREFIX (several allowed)",
        multiple=True,
    ),
    Option(
        "publish",
        "URL|DIR",
        "Shared store that is read, and given what this run computes: s3://BUCKET/PREFIX, gs://..., "
        "or a folder that machines mount",
    ),
    Option("baselines", "DIR", "Folder of accepted baselines (default: baselines)"),
    Option("report", "FILE", "Report to write, .json and .html (default: .cepbench/report.json)"),
    Option(
        "gate",
        "RULE",
        "regression fails a drop that is larger than the tolerance and not noise, noninferiority "
        "passes only where such a drop is excluded, threshold makes no statistics; instead of the "
        "suites' own",
        choices=GATES,
    ),
    Option("tolerance", "DROP", "Largest drop that does not matter, instead of the suites' own"),
    Option(
        "alpha",
        "ERROR",
        "Probability of a false verdict in each direction, divided among the cases of the run",
    ),
    Option(
        "inconclusive",
        "WHAT",
        "Where the samples do not tell: pass with a warning (default), fail, or look at more of "
        "them, 25, 50, 100, ... until they do",
        choices=INCONCLUSIVE,
    ),
    Option(
        "budget",
        "N,SECONDSs",
        "What more may spend: samples of a case, seconds of the run, or both (800,3600s)",
    ),
    Option(
        "pairing",
        "WHICH",
        "exact: baselines of other samples are incomparable (default); common: compare the samples "
        "that both have",
        choices=PAIRINGS,
    ),
    Option(
        "attribute",
        "N",
        "Samples on which a regression is followed through the chain (default: 16; 0: none)",
    ),
    Option(
        "residency",
        "WHICH",
        "all: models stay on the device together (default); swap: one at a time, for devices that "
        "cannot hold them",
        choices=RESIDENCIES,
    ),
    Option(
        "helpers",
        "N|auto",
        "Processes beside this one that grow chains for it: auto (default) starts them where all models "
        "are small and on the CPU, and there is enough to do",
    ),
    Option(
        "engine",
        "WHICH",
        "Where models play: local, in pytest's own processes (default), or ray, on a Ray cluster",
        choices=ENGINES,
    ),
    Option(
        "ray-address",
        "HOST:PORT",
        "With --cep-engine=ray: the cluster (default: RAY_ADDRESS, else one is started here)",
    ),
    Option(
        "ray-pool",
        "ROLE:K=V,...",
        "With --cep-engine=ray: actors, gpus and cpus of a role's pool, such as "
        "describer:actors=4,gpus=0.5 (several allowed)",
        multiple=True,
    ),
    Option(
        "accept-insensitive",
        "",
        "Accept also what lies at the floor by chance, where a regression could not be seen",
        switch=True,
    ),
    Option("plan", "", "Print what would be judged, and how well, without judging it", switch=True),
)


def add_options(parser: pytest.Parser) -> None:
    """Register every option and ini key."""
    group = parser.getgroup("cepbench", "model-regression gating")
    for option in OPTIONS:
        if option.switch:
            group.addoption(
                option.flag,
                dest=option.dest,
                help=option.help,
                default=None,
                action="store_const",
                const="true",
            )
        else:
            group.addoption(
                option.flag,
                dest=option.dest,
                metavar=option.metavar,
                help=option.help,
                default=None,
                action="append" if option.multiple else "store",
                choices=option.choices,
            )
        kind = "linelist" if option.multiple else "string"
        parser.addini(option.ini, f"{option.help}; twin of {option.flag}", type=kind)  # type: ignore[arg-type]


def hide_short_values(config: pytest.Config, args: Sequence[str]) -> None:
    """Take the values of `--model DIR` and its siblings out of the paths to collect.

    The short names are registered last (see `add_short_options`), so pytest's first, rough parse
    takes DIR for a test path and would import a conftest.py from inside a checkpoint.
    """
    shorts = {f"--{option.name}" for option in OPTIONS if option.short}
    paths = config.known_args_namespace.file_or_dir
    for flag, value in pairwise(args):
        if flag in shorts and value in paths:
            paths.remove(value)


def add_short_options(parser: pytest.Parser) -> list[str]:
    """Register `--model` and its siblings where no other plugin or conftest has them.

    Called when all of those are loaded. Returns the names that others own.
    """
    group = parser.getgroup("cepbench")
    taken = []
    for option in OPTIONS:
        if option.short:
            try:
                group.addoption(
                    f"--{option.name}",
                    dest=option.dest,
                    metavar=option.metavar,
                    help=f"Short for {option.flag}",
                    default=None,
                    action="append" if option.multiple else "store",
                )
            except (argparse.ArgumentError, ValueError):
                taken.append(f"--{option.name}")
    return taken
