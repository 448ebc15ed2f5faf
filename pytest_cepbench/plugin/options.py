"""Options of pytest with their ini and environment twins; `settings_of` reads their values.

Standard library and pytest only: this runs in every pytest that has the plugin installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest

from pytest_cepbench.plugin.versions import known_flags, names_in_ini

SHORT_TAKEN = pytest.StashKey[Sequence[str]]()
"""Short names of options that other plugins own."""

_GROUPS = {
    "models": "cepbench: models",
    "gate": "cepbench: gate",
    "data": "cepbench: data and stored results",
    "workers": "cepbench: workers and devices",
    "reports": "cepbench: reports",
    "advanced": "cepbench: advanced (more in the ini file: {ini})",
}
"""Name of a group -> its title in `pytest --help`, in the order of the page."""

_LIKENESS = 0.85
"""Least likeness of an environment variable that is taken for a mistyped one of ours."""


class Option(NamedTuple):
    """One option: `--cep-NAME`, ini `cepbench_NAME`, environment `CEPBENCH_NAME`.

    group: where `--help` shows it, a key of `_GROUPS`.
    words: what the three names are made of, and what stands for the value in `--help`; a switch
        takes none, it is "true" in ini file and environment.
    help: one sentence.
    short: whether `--NAME` is offered as well.
    multiple: whether it may be given several times.
    in_ini: whether its place is the ini file: `--help` does not list the flag, which is still read.
    """

    group: str
    words: str
    help: str
    short: bool = False
    multiple: bool = False
    in_ini: bool = False

    @property
    def name(self) -> str:
        """What its names are made of."""
        return self.words.partition(" ")[0]

    @property
    def metavar(self) -> str:
        """Stands for its value; empty for a switch."""
        return self.words.partition(" ")[2]

    @property
    def switch(self) -> bool:
        """Whether it takes no value."""
        return not self.metavar

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values that it can have, where they are a list."""
        from pytest_cepbench.evaluation.settings import CHOICES

        return CHOICES.get(self.name)

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
        "models",
        "model SPEC",
        "Model under test: a checkpoint folder, a hub id, or a spec that begins with shapes:, "
        "tones:, python:, openai:, serve:, unicom:, cleanfid:, human:, preset: or replay:",
        short=True,
    ),
    Option(
        "models",
        "role ROLE",
        "Role of the model under test, or unified for describer and generator in one",
    ),
    Option("models", "describer SPEC", "Model that describes images", short=True),
    Option("models", "generator SPEC", "Model that draws descriptions", short=True),
    Option(
        "models",
        "encoder [NAME=]SPEC",
        "Model whose vectors are compared; with NAME= one of a suite's further encoders (several "
        "allowed)",
        short=True,
        multiple=True,
    ),
    Option("models", "detector SPEC", "Model that finds objects in images", short=True),
    Option("models", "judge SPEC", "Model that decides which of two answers is better", short=True),
    Option(
        "models",
        "writer SPEC",
        "Model that writes the texts of interleaved answers",
        short=True,
    ),
    Option(
        "models",
        "editor SPEC",
        "Model that draws a step of an answer by editing the image before it",
        short=True,
    ),
    Option(
        "models",
        "interleaver SPEC",
        "Model that makes the texts and images of interleaved answers by itself",
        short=True,
    ),
    Option("models", "vqa SPEC", "Model that answers questions about images and texts", short=True),
    Option(
        "gate",
        "gate RULE",
        "Rule of all suites: regression fails a drop that is larger than the tolerance and not "
        "noise, noninferiority passes only where such a drop is excluded, threshold compares "
        "without statistics",
    ),
    Option("gate", "tolerance DROP", "Largest drop that does not matter, in all suites"),
    Option(
        "gate",
        "alpha ERROR",
        "Probability of a false verdict in each direction, divided among the cases of the run",
    ),
    Option(
        "gate",
        "inconclusive ACTION",
        "Where the samples do not decide: pass with a warning (default), fail, or measure more of "
        "them, 25, 50, 100, ... until they do",
    ),
    Option(
        "gate",
        "series NAME",
        "Series of gates that this run belongs to, such as the checkpoints of a training: alpha is"
        " divided over all of them, however many there will be",
    ),
    Option(
        "gate",
        "allow-skips",
        "Let a run pass in which tests, marks or modules skipped cases: it fails by default",
    ),
    Option("gate", "baselines DIR", "Folder of accepted baselines (default: baselines)"),
    Option("gate", "plan", "Print what would be measured, and how well, and stop"),
    Option(
        "gate",
        "price PER_HOUR",
        "Price of a device for an hour: --cep-plan prints what the run would cost",
    ),
    Option(
        "data",
        "data NAME=PATH",
        "Where a data set of a suite is (several allowed)",
        multiple=True,
    ),
    Option("data", "samples N", "Most samples of each category; the same samples in every run"),
    Option("data", "seeds N", "Seeds under which each sample is measured, in all suites"),
    Option("data", "store DIR", "Folder of computed results (default: .cepbench/store)"),
    Option(
        "data",
        "shared DIR|URL",
        "Store of results that is only read: a folder, or a URL such as s3://BUCKET/PREFIX "
        "(several allowed)",
        multiple=True,
    ),
    Option(
        "data",
        "publish URL|DIR",
        "Store that is read, and to which this run uploads its results: s3://BUCKET/PREFIX, "
        "gs://..., or a folder that machines mount",
    ),
    Option(
        "workers",
        "helpers N|auto",
        "Processes that grow chains for this one: auto (default) starts them where all models are "
        "small, on the CPU, and have enough to do",
    ),
    Option(
        "workers",
        "engine ENGINE",
        "Where models run: local, in pytest's own processes (default), or ray, on a Ray cluster",
    ),
    Option(
        "workers",
        "residency MODE",
        "all: models stay on the device together (default); swap: one at a time, for devices that "
        "cannot hold them all",
    ),
    Option(
        "workers",
        "devices-per-worker N|auto",
        "Accelerators of each worker of -n: auto (default) gives as many as its models need",
    ),
    Option(
        "reports",
        "report FILE",
        "Report to write, as .json, .html and .md (default: .cepbench/report.json)",
    ),
    Option(
        "reports",
        "history DIR|off",
        "Folder to which each run adds a line with its verdicts (default: .cepbench/history)",
    ),
    Option(
        "reports",
        "report-dir DIR",
        "Folder for the page as DIR/index.html with style, script and images as files, for servers"
        " that allow no inline ones (Jenkins)",
    ),
    Option(
        "reports",
        "show SAMPLE",
        "Sample whose chain or answer the report shows as well, in every case that has it (several"
        " allowed)",
        multiple=True,
    ),
    Option(
        "advanced",
        "accept-insensitive",
        "Accept baselines at the floor by chance as well, where no regression could be seen",
    ),
    Option(
        "advanced",
        "series-length N",
        "Checkpoints of a --cep-series for which half of alpha is spent (default: 40); set when it"
        " begins",
        in_ini=True,
    ),
    Option(
        "advanced",
        "budget N,SECONDSs",
        "Most that --cep-inconclusive=more may spend: samples of a case, seconds of the run, or "
        "both (800,3600s)",
        in_ini=True,
    ),
    Option(
        "advanced",
        "pairing MODE",
        "exact: baselines of other samples are incomparable (default); common: compare the samples"
        " that both have",
        in_ini=True,
    ),
    Option(
        "advanced",
        "attribute N",
        "Samples on which a regression is followed through the chain (default: 16; 0: none)",
        in_ini=True,
    ),
    Option(
        "advanced",
        "ray-address HOST:PORT",
        "Cluster of --cep-engine=ray (default: RAY_ADDRESS, else one is started here)",
        in_ini=True,
    ),
    Option(
        "advanced",
        "ray-pool ROLE:K=V,...",
        "Actors, gpus and cpus of a role's pool with --cep-engine=ray, such as "
        "describer:actors=4,gpus=0.5 (several allowed)",
        multiple=True,
        in_ini=True,
    ),
)


def add_options(parser: pytest.Parser) -> None:
    """Register every option and ini key."""
    in_ini = ", ".join(option.ini for option in OPTIONS if option.in_ini)
    previous = None
    for name, title in _GROUPS.items():
        parser.getgroup(f"cepbench-{name}", title.format(ini=in_ini), after=previous)
        previous = f"cepbench-{name}"
    for option in OPTIONS:
        _add_flag(parser, option, option.flag, argparse.SUPPRESS if option.in_ini else option.help)
        about = option.help if option.in_ini else f"Twin of {option.flag}"
        kind = "linelist" if option.multiple else "string"
        parser.addini(option.ini, about, type=kind)  # type: ignore[arg-type]


def _add_flag(parser: pytest.Parser, option: Option, flag: str, help_: str) -> None:
    # Choices are checked where the values are read, in words that are the same for all three twins.
    group = parser.getgroup(f"cepbench-{option.group}")
    if option.metavar:
        group.addoption(
            flag, dest=option.dest, help=help_, default=None, metavar=option.metavar,
            action="append" if option.multiple else "store",
        )  # fmt: skip
    else:
        group.addoption(
            flag, dest=option.dest, help=help_, default=None, action="store_const", const="true"
        )


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
    owned = known_flags(parser)
    taken = []
    for option in OPTIONS:
        flag = f"--{option.name}"
        if option.short and flag in owned:
            taken.append(flag)
        elif option.short:
            _add_flag(parser, option, flag, f"Short for {option.flag}")
    return taken


def are_named(config: pytest.Config, args: Sequence[str]) -> bool:
    """Whether any option is given, in one of its three places; also before pytest has parsed them.

    So it is where the environment has a name like ours.
    """
    flags = {arg.partition("=")[0] for arg in args}
    options = vars(config.option)
    return any(name.startswith("CEPBENCH_") for name in os.environ) or any(
        flags & {option.flag, *([f"--{option.name}"] if option.short else [])}
        or options.get(option.dest) is not None
        or config.getini(option.ini)
        for option in OPTIONS
    )


def suggest_options(parser: pytest.Parser, args: Sequence[str]) -> None:
    """Have pytest's own message on an unknown option name our option that is most like it.

    Raises pytest.UsageError for an option that was removed.
    """
    given = {arg.partition("=")[0] for arg in args if arg.startswith("--")}
    if given <= known_flags(parser):
        return
    from pytest_cepbench.errors import nearest_name

    _, unknown = parser.parse_known_and_unknown_args(args)
    flags = [option.flag for option in OPTIONS]
    flags += [f"--{option.name}" for option in OPTIONS if option.short]
    for argument in unknown:
        flag = argument.partition("=")[0]
        _refuse_removed(flag, flag)
        close = nearest_name(flag, flags, cutoff=_LIKENESS)
        if close is not None:
            parser.extra_info[flag] = f"did you mean {close}?"


def check_names(config: pytest.Config) -> None:
    """Raise pytest.UsageError for a mistyped name in the ini file, which would set nothing.

    So it is for a setting that was removed, in the ini file or the environment. pytest warns of
    names that no plugin registered after collection.
    """
    known = [option.ini for option in OPTIONS]
    twins = {name: f"the environment variable {name}" for name in os.environ}
    twins |= {name: f"ini {name}" for name in names_in_ini(config) if name not in known}
    for name, given in twins.items():
        if name.lower().startswith("cepbench_"):
            word = name.lower().removeprefix("cepbench_").replace("_", "-")
            _refuse_removed(given, f"--cep-{word}")
            if given.startswith("ini "):
                from pytest_cepbench.errors import did_you_mean

                hint = did_you_mean(name, known)
                if hint:
                    raise pytest.UsageError(f"{given}: there is no such setting.{hint}")


def _refuse_removed(given: str, flag: str) -> None:
    from pytest_cepbench.errors import removed

    gone = removed(flag, given)
    if gone is not None:
        raise pytest.UsageError(gone)


def notes_on_options(sources: Mapping[str, str]) -> Iterator[str]:
    """Sentences for the header: flags whose place is the ini file, variables that are mistyped.

    sources: option name -> flag, variable or ini key that gave its value.
    """
    from pytest_cepbench.errors import nearest_name

    for option in OPTIONS:
        if option.in_ini and sources.get(option.name) == option.flag:
            yield f"{option.flag} is still read; its place is the ini file: {option.ini}"
    known = [option.env for option in OPTIONS]
    for name in sorted(os.environ):
        if name.startswith("CEPBENCH_") and name not in known:
            close = nearest_name(name, known, cutoff=_LIKENESS)
            if close is not None:
                yield f"the environment variable {name} is not read: did you mean {close}?"
