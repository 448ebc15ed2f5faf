"""Options, their ini and environment twins, and the settings that come of them.

Standard library and pytest only: this runs in every pytest that has the plugin installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_cepbench.conventions import at_least_one, named_specs, split_pair

ROLES = ("describer", "generator", "encoder", "detector")

_ENV_LIST_SEPARATOR = ";"


@dataclass(frozen=True)
class Option:
    """One option: `--cep-NAME`, ini `cepbench_NAME`, environment `CEPBENCH_NAME`.

    short: whether `--NAME` is offered as well. multiple: may be given several times.
    """

    name: str
    metavar: str
    help: str
    short: bool = False
    multiple: bool = False
    choices: tuple[str, ...] | None = None

    @property
    def flag(self) -> str:
        """The canonical option string."""
        return f"--cep-{self.name}"

    @property
    def dest(self) -> str:
        """Attribute of config.option."""
        return f"cep_{self.name}"

    @property
    def ini(self) -> str:
        """Name in the ini file."""
        return f"cepbench_{self.name}"

    @property
    def env(self) -> str:
        """Name in the environment."""
        return f"CEPBENCH_{self.name.upper()}"


OPTIONS = (
    Option(
        "model", "SPEC", "Model under test: a checkpoint folder, hub id, or other spec", short=True
    ),
    Option(
        "role",
        "ROLE",
        "What the model under test plays: describer, generator, encoder or detector",
        choices=ROLES,
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
    Option("data", "NAME=PATH", "Where a suite's data set lies (several allowed)", multiple=True),
    Option("samples", "N", "Most samples of each category: the same ones in every run"),
    Option("store", "DIR", "Folder of computed results (default: .cepbench/store)"),
    Option("baselines", "DIR", "Folder of accepted baselines (default: baselines)"),
    Option("report", "FILE", "Report to write, .json and .html (default: .cepbench/report.json)"),
    Option("tolerance", "DROP", "Largest drop that does not matter, instead of the suites' own"),
)


def add_options(parser: pytest.Parser) -> None:
    """Register every option and ini key."""
    group = parser.getgroup("cepbench", "model-regression gating")
    for option in OPTIONS:
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


@dataclass(frozen=True)
class Settings:
    """What was asked for, from the command line, else the environment, else the ini file.

    roles: role -> spec. encoders: name -> spec, of the further encoders of suites.
    home: folder of everything a run leaves behind by default, never to be committed. sources: for
    every value that is not a default, where it came from.
    """

    model: str | None
    role: str | None
    roles: Mapping[str, str]
    encoders: Mapping[str, str]
    data: Mapping[str, Path]
    home: Path
    store: Path
    baselines: Path
    report: Path
    tolerance: float | None
    samples: int | None
    sources: Mapping[str, str]

    @property
    def names_models(self) -> bool:
        """Whether the user named any model."""
        return self.model is not None or bool(self.roles) or bool(self.encoders)

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read the settings. Raises pytest.UsageError naming the option that is wrong."""
        values: dict[str, list[str]] = {}
        sources: dict[str, str] = {}
        for option in OPTIONS:
            found = _lookup(config, option)
            if found is not None:
                values[option.name], sources[option.name] = found
        single = {name: value[-1] for name, value in values.items()}
        role = single.get("role")
        if role is not None and role not in ROLES:
            msg = f"{sources['role']} {role!r}: one of {', '.join(ROLES)} is expected"
            raise pytest.UsageError(msg)

        def place(name: str, text: str) -> Path:
            """Paths in the ini file start where it lies, as pytest's own do; others here."""
            if sources[name].startswith("ini ") and config.inipath is not None:
                return config.inipath.parent / text
            return Path(text).absolute()

        def folder(name: str, default: Path) -> Path:
            return place(name, single[name]) if name in single else default

        unnamed, encoders = named_specs(values.get("encoder", []))
        roles = {name: single[name] for name in ROLES if name in single and name != "encoder"}
        if unnamed is not None:
            roles["encoder"] = unnamed
        home = config.rootpath / ".cepbench"
        return cls(
            model=single.get("model"),
            role=role,
            roles={name: roles[name] for name in ROLES if name in roles},
            encoders=encoders,
            data={
                name: place("data", path)
                for name, path in _pairs(values.get("data", []), sources.get("data", ""))
            },
            home=home,
            store=folder("store", home / "store"),
            baselines=folder("baselines", config.rootpath / "baselines"),
            report=folder("report", home / "report.json"),
            samples=_count(single.get("samples"), sources.get("samples", "")),
            tolerance=_tolerance(single.get("tolerance"), sources.get("tolerance", "")),
            sources=sources,
        )


def _lookup(config: pytest.Config, option: Option) -> tuple[list[str], str] | None:
    given = config.getoption(option.dest, default=None)
    if given is not None:
        return (list(given) if option.multiple else [given]), option.flag
    text = os.environ.get(option.env)
    if text:
        parts = text.split(_ENV_LIST_SEPARATOR) if option.multiple else [text]
        return [part.strip() for part in parts if part.strip()], option.env
    ini = config.getini(option.ini)
    if ini:
        return (list(ini) if option.multiple else [ini]), f"ini {option.ini}"
    return None


def _pairs(pairs: Sequence[str], source: str) -> list[tuple[str, str]]:
    with _usage_errors():
        return [split_pair(pair, source) for pair in pairs]


def _count(text: str | None, source: str) -> int | None:
    with _usage_errors():
        return None if text is None else at_least_one(text, source)


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def _tolerance(text: str | None, source: str) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        msg = f"{source} {text!r}: a number of at least 0 is expected"
        raise pytest.UsageError(msg)
    return value
