"""The settings of a run as plain data, read from the texts that the engineer typed.

Standard library only: this is imported in every pytest that has the plugin installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_cepbench.errors import did_you_mean
from pytest_cepbench.models import ROLE_NAMES
from pytest_cepbench.option_values import (
    LONGEST_SERIES,
    at_least_one,
    check_not_blind,
    is_url,
    named_specs,
    split_pair,
)

if TYPE_CHECKING:
    from pytest_cepbench.datasets.sources.hub import DataPlace

CHOICES = {
    "role": (*ROLE_NAMES, "unified"),
    "gate": ("regression", "noninferiority", "threshold"),
    "inconclusive": ("pass", "fail", "more"),
    "pairing": ("exact", "common"),
    "residency": ("all", "swap"),
    "engine": ("local", "ray"),
}
"""Setting -> the values that it can have."""

_POOL_KEYS = ("actors", "gpus", "cpus")

_POOL_EXAMPLE = "describer:actors=4,gpus=0.5,cpus=1"

_ATTRIBUTED = 16
"""Samples on which a regression is followed through the chain by default."""

_BUDGET = re.compile(r"(?P<samples>[0-9]+)|(?P<seconds>[0-9]+(?:\.[0-9]+)?)s")

T = TypeVar("T")


@dataclass(frozen=True)
class SampleBudget:
    """Limits on looking at more samples; None: no limit.

    samples: most samples of each case.
    seconds: since the run began.
    """

    samples: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class RunSettings:
    """What the engineer asked for; None leaves a setting to the suites.

    model: spec of the model under test.
    role: the role that it plays, or `unified`.
    roles: role -> spec.
    encoders: name -> spec, of the further encoders of suites.
    data: data set -> path or URL.
    home: folder of everything that a run leaves behind by default, never to be committed.
    store: folder of computed results.
    shared: folders and URLs of results that are only read.
    publish: folder or URL where results are written as well.
    baselines: folder of accepted baselines.
    report: the JSON report to write; HTML and Markdown lie beside it.
    history: folder of the history of runs; None: the run is not recorded.
    report_dir: folder for the page with its style, script and images as files; None for none.
    show: samples that reports show as well, beside those that they choose.
    gate, tolerance, alpha: as in `Policy`.
    series: name of the series of gates that the run belongs to; None for a run by itself.
    series_length: checkpoints over which half of the error of a series is spent.
    inconclusive: `pass`, `fail`, or `more` to look at more samples.
    budget: limits on looking at more samples.
    pairing: `exact`, or `common` to compare the samples that both have.
    samples: most samples of each category.
    seeds: how often each sample is played.
    attribute: samples on which a regression is followed through the chain; 0: none.
    residency: `all` models on the device together, or `swap` for one at a time.
    devices_per_worker: accelerators of each worker; None: as many as its models need.
    helpers: processes that grow chains for this one; None: the run decides.
    engine: where models run: `local` or `ray`.
    ray_address: of the cluster.
    ray_pools: role -> actors, gpus and cpus, as far as they were given.
    allow_skips: whether the run may pass without cases that tests, marks or modules skipped.
    plan: whether the run only says what it would evaluate.
    price: of a device for an hour, in any currency.
    accept_insensitive: whether a baseline may lie at its chance floor.
    listing: whether cases are only listed.
    sources: setting -> where its value came from, for each value that is not a default.
    """

    model: str | None
    role: str | None
    roles: Mapping[str, str]
    encoders: Mapping[str, str]
    data: Mapping[str, DataPlace]
    home: Path
    store: Path
    shared: tuple[Path | str, ...]
    publish: Path | str | None
    baselines: Path
    report: Path
    history: Path | None
    report_dir: Path | None
    show: tuple[str, ...]
    gate: str | None
    tolerance: float | None
    alpha: float | None
    series: str | None
    series_length: int | None
    inconclusive: str
    budget: SampleBudget
    pairing: str
    samples: int | None
    seeds: int | None
    attribute: int
    residency: str
    devices_per_worker: int | None
    helpers: int | None
    engine: str
    ray_address: str | None
    ray_pools: Mapping[str, Mapping[str, float]]
    allow_skips: bool
    plan: bool
    price: float | None
    accept_insensitive: bool
    listing: bool
    sources: Mapping[str, str]

    @property
    def names_models(self) -> bool:
        """Whether the engineer named any model."""
        return self.model is not None or bool(self.roles) or bool(self.encoders)

    @property
    def digest(self) -> dict[str, str]:
        """Digest of all of them, by their name for people."""
        return {
            "what options, ini file and environment say": sha256(repr(self).encode()).hexdigest()
        }


def read_settings(
    values: Mapping[str, Sequence[str]],
    sources: Mapping[str, str],
    root: Path,
    *,
    resolve: Callable[[str, str], Path] = lambda _, text: Path(text).absolute(),
    listing: bool = False,
) -> RunSettings:
    """Settings from what was typed. Raises ValueError naming the value that is wrong.

    values: setting (`ray-pool`) -> the texts given for it; the last one counts where one is wanted.
    sources: setting -> where its texts came from, for messages.
    root: folder of the project: defaults lie below it.
    resolve: makes a path of a setting's name and a text.
    listing: whether cases are only listed.
    """
    single = {name: texts[-1] for name, texts in values.items()}
    for name, choices in CHOICES.items():
        if name in single and single[name] not in choices:
            hint = did_you_mean(single[name], choices)
            expected = f"one of {', '.join(choices)} is expected"
            raise ValueError(
                f"{sources[name]} {single[name]!r}: {expected}{'.' if hint else ''}{hint}"
            )
    unnamed, encoders = named_specs(values.get("encoder", []))  # which share an option with one
    given: dict[str, str | None] = {**single, "encoder": unnamed}
    roles: dict[str, str] = {
        name: spec for name in ROLE_NAMES if (spec := given.get(name)) is not None
    }

    def folder(name: str, default: Path) -> Path:
        return resolve(name, single[name]) if name in single else default

    def folder_or_url(name: str, text: str) -> Path | str:
        return text if is_url(text) else resolve(name, text)

    def parse(name: str, parser: Callable[[str, str], T]) -> T | None:
        return parser(single[name], sources[name]) if name in single else None

    data = [split_pair(pair, sources["data"]) for pair in values.get("data", [])]
    home = root / ".cepbench"
    attribute = parse("attribute", _attribute)
    return RunSettings(
        model=single.get("model"),
        role=single.get("role"),
        roles=roles,
        encoders=encoders,
        data={name: folder_or_url("data", path) for name, path in data},
        home=home,
        store=folder("store", home / "store"),
        shared=tuple(folder_or_url("shared", text) for text in values.get("shared", [])),
        publish=folder_or_url("publish", single["publish"]) if single.get("publish") else None,
        baselines=folder("baselines", root / "baselines"),
        report=folder("report", home / "report.json"),
        history=None if single.get("history") == "off" else folder("history", home / "history"),
        report_dir=resolve("report-dir", single["report-dir"]) if "report-dir" in single else None,
        show=tuple(values.get("show", [])),
        gate=single.get("gate"),
        tolerance=parse("tolerance", _tolerance),
        alpha=parse("alpha", _alpha),
        series=_series(single, sources),
        series_length=parse("series-length", _series_length),
        inconclusive=single.get("inconclusive", "pass"),
        budget=parse("budget", _budget) or SampleBudget(),
        pairing=single.get("pairing", "exact"),
        samples=parse("samples", at_least_one),
        seeds=parse("seeds", at_least_one),
        attribute=_ATTRIBUTED if attribute is None else attribute,
        residency=single.get("residency", "all"),
        devices_per_worker=parse(
            "devices-per-worker",
            partial(_count, least=1, what="devices of at least 1 is expected"),
        ),
        helpers=parse(
            "helpers", partial(_count, least=0, what="processes is expected, 0 for none")
        ),
        engine=single.get("engine", "local"),
        ray_address=single.get("ray-address"),
        ray_pools=dict(
            _read_pool(text, sources["ray-pool"]) for text in values.get("ray-pool", [])
        ),
        allow_skips=parse("allow-skips", _switch) or False,
        plan=parse("plan", _switch) or False,
        price=parse("price", _price),
        accept_insensitive=parse("accept-insensitive", _switch) or False,
        listing=listing,
        sources=sources,
    )


def check_engine(
    values: Mapping[str, Sequence[str]], sources: Mapping[str, str], *, workers: bool
) -> None:
    """Raise ValueError for settings that the chosen engine makes no use of.

    values: setting -> the texts given for it.
    sources: setting -> where its texts came from.
    workers: whether xdist's workers are asked for.
    """
    if "ray" not in values.get("engine", [])[-1:]:
        for name in ("ray-address", "ray-pool"):
            # In an ini file they may stay for the runs that are on a cluster.
            if sources.get(name, "").startswith("--"):
                text = values[name][-1]
                raise ValueError(
                    f"{sources[name]} {text!r} is for --cep-engine=ray: "
                    "give that as well, or drop it"
                )
        return
    if "swap" in values.get("residency", [])[-1:]:
        raise ValueError(
            f"{sources['residency']} 'swap': with --cep-engine=ray models stay where they are; "
            "give each role a device of its own instead, with --cep-ray-pool"
        )
    if workers:
        raise ValueError(
            "--cep-engine=ray starts its own workers: drop -n (and --tx), or the engine"
        )


def _series(single: Mapping[str, str], sources: Mapping[str, str]) -> str | None:
    """The name of a series. Raises ValueError where the run has no error to divide."""
    name = single.get("series")
    if name is None and sources.get("series-length", "").startswith("--"):
        raise ValueError(
            f"{sources['series-length']} is of a series of gates: name it with --cep-series NAME"
        )
    if name is not None and single.get("gate") == "threshold":
        raise ValueError(
            f"{sources['series']} {name!r} divides the error of the gate over a series, and "
            f"{sources['gate']} 'threshold' makes none that is known: leave one of the two out"
        )
    return name


def _read_pool(text: str, source: str) -> tuple[str, dict[str, float]]:
    """A role, and what is asked for its pool. Raises ValueError naming what is wrong."""
    role, _, rest = text.partition(":")
    if role not in ROLE_NAMES:
        raise ValueError(
            f"{source} {text!r}: a role is expected first ({', '.join(ROLE_NAMES)}), as in "
            f"{_POOL_EXAMPLE}.{did_you_mean(role, ROLE_NAMES)}"
        )
    pool: dict[str, float] = {}
    for part in rest.split(","):
        key, _, value = part.strip().partition("=")
        number = _number(value)
        whole = key == "actors" or number > 1  # of devices Ray gives parts of one, or whole ones
        wrong = key not in _POOL_KEYS or key in pool or not 0 <= number < float("inf")
        if wrong or (key == "actors" and number < 1) or (whole and key != "cpus" and number % 1):
            raise ValueError(
                f"{source} {text!r}: {part.strip()!r} is not understood; actors (1 or more), gpus "
                "(a part of one, or a whole number) and cpus are expected, each once, as in "
                f"{_POOL_EXAMPLE}"
            )
        pool[key] = int(number) if key == "actors" else number
    return role, pool


def _number(text: str) -> float:
    """The number in a text; NaN, which lies in no range, where there is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _tolerance(text: str, source: str) -> float:
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{source} {text!r}: a number of at least 0 is expected")
    return value


def _price(text: str, source: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise ValueError(
            f"{source} {text!r}: the price of a device for an hour is expected, such as 2.50"
        )
    return value


def _alpha(text: str, source: str) -> float:
    value = _number(text)
    if not 0 < value <= 0.5:
        raise ValueError(
            f"{source} {text!r}: a probability over 0 and at most 0.5 is expected, such as 0.05"
        )
    check_not_blind(value, f"{source} {text!r}")
    return value


def _series_length(text: str, source: str) -> int:
    value = at_least_one(text, source)
    if value > LONGEST_SERIES:
        raise ValueError(
            f"{source} {text!r}: each checkpoint would have {1 / (value + 1):.1g} of alpha or "
            f"less, at which no drop is told from noise; give {LONGEST_SERIES} or fewer, a series "
            "may become longer than expected"
        )
    return value


def _attribute(text: str, source: str) -> int:
    return 0 if text == "0" else at_least_one(text, source)


def _count(text: str, source: str, least: int, what: str) -> int | None:
    """A number of at least so much; None for `auto`."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{source} {text!r}: auto or a number of {what}")
    return int(text)


def _switch(text: str, source: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise ValueError(f"{source} {text!r}: true or false is expected")
    return known[text.lower()]


def _budget(text: str, source: str) -> SampleBudget:
    limits: dict[str, float] = {}
    for part in text.split(","):
        match = _BUDGET.fullmatch(part.strip())
        kind = match.lastgroup if match else None
        if match is None or kind is None or kind in limits or float(match[kind]) == 0:
            raise ValueError(
                f"{source} {text!r}: a number of samples, of seconds, or both are expected, such "
                "as 800, 3600s or 800,3600s"
            )
        limits[kind] = float(match[kind])
    samples = limits.get("samples")
    return SampleBudget(None if samples is None else int(samples), limits.get("seconds"))
