"""What was asked for, read from the command line, else the environment, else the ini file.

Standard library and pytest only: this runs in every pytest that has the plugin installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_cepbench.escapes import visible
from pytest_cepbench.option_values import at_least_one, is_url, named_specs, split_pair
from pytest_cepbench.plugin.options import OPTIONS, ROLES, Option, check_choice
from pytest_cepbench.plugin.pool_options import check_engine, read_pools

_ENV_LIST_SEPARATOR = ";"

_ATTRIBUTED = 16
"""Samples on which a regression is followed where nothing is said."""

_BUDGET = re.compile(r"(?P<samples>[0-9]+)|(?P<seconds>[0-9]+(?:\.[0-9]+)?)s")

_LISTINGS = ("collectonly", "showfixtures", "show_fixtures_per_test")
"""Options of pytest with which tests are collected and shown, and no session of tests begins."""

T = TypeVar("T")


@dataclass(frozen=True)
class SampleBudget:
    """What looking at more samples may spend; None: as many as there are, as long as it takes.

    samples: most of each case. seconds: since the run began.
    """

    samples: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class RunSettings:
    """What was asked for; None where the suites have the word.

    roles: role -> spec. encoders: name -> spec, of the further encoders of suites.
    home: folder of everything a run leaves behind by default, never to be committed. shared: folders
    and URLs of results that are only read. publish: where results are written as well. residency: whether models share a device or take turns. attribute: on
    how many samples a regression is followed. helpers: processes that grow chains beside this one, None
    where the run decides. engine: where models play. ray_pools: role ->
    actors, gpus, cpus, as far as they were given. accept_insensitive: whether a baseline may lie at
    its floor by chance. listing: whether cases are only listed. sources: for every value that is not a default, where
    it came from.
    """

    model: str | None
    role: str | None
    roles: Mapping[str, str]
    encoders: Mapping[str, str]
    data: Mapping[str, Path]
    home: Path
    store: Path
    shared: tuple[Path | str, ...]
    publish: Path | str | None
    baselines: Path
    report: Path
    gate: str | None
    tolerance: float | None
    alpha: float | None
    inconclusive: str
    budget: SampleBudget
    pairing: str
    samples: int | None
    seeds: int | None
    attribute: int
    residency: str
    helpers: int | None
    engine: str
    ray_address: str | None
    ray_pools: Mapping[str, Mapping[str, float]]
    plan: bool
    accept_insensitive: bool
    listing: bool
    sources: Mapping[str, str]

    @property
    def names_models(self) -> bool:
        """Whether the user named any model."""
        return self.model is not None or bool(self.roles) or bool(self.encoders)

    @classmethod
    def from_config(cls, config: pytest.Config) -> RunSettings:
        """Read the settings. Raises pytest.UsageError naming the option that is wrong."""
        values, sources = _given(config)
        single = {name: value[-1] for name, value in values.items()}

        def place(name: str, text: str) -> Path:
            """Paths in the ini file start where it lies, as pytest's own do; others here."""
            if sources[name].startswith("ini ") and config.inipath is not None:
                return config.inipath.parent / text
            return Path(text).absolute()

        def store(name: str, text: str) -> Path | str:
            return text if is_url(text) else place(name, text)

        def folder(name: str, default: Path) -> Path:
            return place(name, single[name]) if name in single else default

        def read(name: str, parse: Callable[[str, str], T]) -> T | None:
            if name not in single:
                return None
            with _usage_errors():
                return parse(single[name], sources[name])

        unnamed, encoders = named_specs(values.get("encoder", []))
        roles = {name: single[name] for name in ROLES if name in single and name != "encoder"}
        if unnamed is not None:
            roles["encoder"] = unnamed
        with _usage_errors():
            check_engine(config, single, sources)
            pools = read_pools(values.get("ray-pool", []), sources.get("ray-pool", ""))
        home = config.rootpath / ".cepbench"
        attribute = read("attribute", _count_or_none)
        return cls(
            model=single.get("model"),
            role=single.get("role"),
            roles={name: roles[name] for name in ROLES if name in roles},
            encoders=encoders,
            data={
                name: place("data", path)
                for name, path in _pairs(values.get("data", []), sources.get("data", ""))
            },
            home=home,
            store=folder("store", home / "store"),
            shared=tuple(store("shared", text) for text in values.get("shared", [])),
            publish=store("publish", single["publish"]) if single.get("publish") else None,
            baselines=folder("baselines", config.rootpath / "baselines"),
            report=folder("report", home / "report.json"),
            gate=single.get("gate"),
            tolerance=read("tolerance", _tolerance),
            alpha=read("alpha", _alpha),
            inconclusive=single.get("inconclusive", "pass"),
            budget=read("budget", _budget) or SampleBudget(),
            pairing=single.get("pairing", "exact"),
            samples=read("samples", at_least_one),
            seeds=read("seeds", at_least_one),
            attribute=_ATTRIBUTED if attribute is None else attribute,
            residency=single.get("residency", "all"),
            helpers=read("helpers", _helpers),
            engine=single.get("engine", "local"),
            ray_address=single.get("ray-address"),
            ray_pools=pools,
            plan=read("plan", _switch) or False,
            accept_insensitive=read("accept-insensitive", _switch) or False,
            listing=any(config.getoption(name, default=False) for name in _LISTINGS),
            sources=sources,
        )


def updating(config: pytest.Config) -> bool:
    """Whether baselines are accepted rather than compared with; syrupy's options say so."""
    options = ("update_snapshots", "update_new_snapshots_only")
    return any(config.getoption(name, default=False) for name in options)


def _given(config: pytest.Config) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The values of every option that was given anywhere, and where. Raises pytest.UsageError."""
    values: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        found = _lookup(config, option)
        if found is None:
            continue
        values[option.name], sources[option.name] = found
        for value in found[0]:
            with _usage_errors():
                check_choice(option, value, found[1])
    return values, sources


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


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise pytest.UsageError(visible(str(error))) from None


def _number(text: str) -> float:
    """The number in a text; NaN, which lies in no range, where there is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _tolerance(text: str, source: str) -> float:
    value = _number(text)
    if not 0 <= value < float("inf"):
        msg = f"{source} {text!r}: a number of at least 0 is expected"
        raise ValueError(msg)
    return value


def _alpha(text: str, source: str) -> float:
    value = _number(text)
    if not 0 < value <= 0.5:
        msg = f"{source} {text!r}: a probability over 0 and at most 0.5 is expected, such as 0.05"
        raise ValueError(msg)
    return value


def _count_or_none(text: str, source: str) -> int:
    return 0 if text == "0" else at_least_one(text, source)


def _helpers(text: str, source: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal():
        msg = f"{source} {text!r}: auto or a number of processes is expected, 0 for none"
        raise ValueError(msg)
    return int(text)


def _switch(text: str, source: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        msg = f"{source} {text!r}: true or false is expected"
        raise ValueError(msg)
    return known[text.lower()]


def _budget(text: str, source: str) -> SampleBudget:
    found: dict[str, float] = {}
    for part in text.split(","):
        match = _BUDGET.fullmatch(part.strip())
        kind = match.lastgroup if match else None
        if match is None or kind is None or kind in found or float(match[kind]) == 0:
            msg = (
                f"{source} {text!r}: a number of samples, of seconds, or both are expected, such as "
                "800, 3600s or 800,3600s"
            )
            raise ValueError(msg)
        found[kind] = float(match[kind])
    samples = found.get("samples")
    return SampleBudget(None if samples is None else int(samples), found.get("seconds"))
