"""The options of a run: one table of their names, help and values, and the settings that they make.

Standard library only: this is imported in every pytest that has the plugin installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_cepbench.models import ROLE_NAMES
from pytest_cepbench.option_values import (
    LONGEST_SERIES,
    check_not_blind,
    is_url,
    named_specs,
    split_pair,
)

if TYPE_CHECKING:
    from pytest_cepbench.datasets.sources.hub import DataPlace

_POOL_KEYS = ("actors", "gpus")

_POOL_EXAMPLE = "describer:actors=4,gpus=0.5"

_MOST_DIGITS = 18

# Compiled where it is read: a plain run of pytest, which imports this module, has no use for it.
_BUDGET = r"(?P<samples>[0-9]{1,15})|(?P<seconds>[0-9]+(?:\.[0-9]+)?)s"


@dataclass(frozen=True)
class SampleBudget:
    """Limits on looking at more samples; None: no limit.

    samples: most samples of each case.
    seconds: since the run began.
    """

    samples: int | None = None
    seconds: float | None = None


class GivenValue(NamedTuple):
    """What was given for an option.

    texts: at least one; the last one counts where one is wanted.
    source: where they came from, for messages.
    path: makes a path of a text.
    """

    texts: Sequence[str]
    source: str
    path: Callable[[str], Path]

    def __str__(self) -> str:
        return f"{self.source} {self.last!r}"

    @property
    def last(self) -> str:
        """The text that counts where one is wanted."""
        return self.texts[-1]


# -- what texts stand for: each reader raises ValueError, which names the option and the value -----


def _text(given: GivenValue) -> str:
    return given.last


def _spec(given: GivenValue) -> str:
    if not given.last.strip():  # the suite's own model is not meant: it would pass in its place
        raise ValueError(f"{given}: a model is expected, such as a folder or a hub id")
    return given.last


def _path(given: GivenValue) -> Path:
    if not given.last:  # as of a variable of the shell that is not set: no folder is meant
        raise ValueError(f"{given}: a path is expected")
    return given.path(given.last)


def _file(given: GivenValue) -> Path:
    """Of a file that is written. Of `runs/` it is called `runs`, and lies beside that folder."""
    if Path(given.last).name in ("", ".."):
        raise ValueError(f"{given}: the path of a file is expected")
    return given.path(given.last)


def _places(given: GivenValue) -> tuple[Path | str, ...]:
    each = [given._replace(texts=[text]) for text in given.texts]
    return tuple(own.last if is_url(own.last) else _path(own) for own in each)


def _data(given: GivenValue) -> dict[str, Path | str]:
    names, texts = zip(*(split_pair(text, given.source) for text in given.texts), strict=True)
    return dict(zip(names, _places(given._replace(texts=texts)), strict=True))


def _count(given: GivenValue, least: int = 1, other: str = "") -> int:
    """A whole number. other: what else is expected, for the error."""
    text = given.last
    # Python refuses thousands of digits in words of its own.
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < least:
        raise ValueError(
            f"{given.source} {text!r:.60}: {other}a whole number of at least {least} and at most "
            f"{_MOST_DIGITS} digits is expected"
        )
    return int(text)


def _number(text: str) -> float:
    """The number in a text; NaN, which lies in no range, where there is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _tolerance(given: GivenValue) -> float:
    value = _number(given.last)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{given}: a number of at least 0 is expected")
    return value


def _alpha(given: GivenValue) -> float:
    value = _number(given.last)
    if not 0 < value <= 0.5:
        raise ValueError(f"{given}: a probability over 0 and at most 0.5 is expected, such as 0.05")
    check_not_blind(value, str(given))
    return value


def _series_length(given: GivenValue) -> int:
    value = _count(given)
    if value > LONGEST_SERIES:
        raise ValueError(
            f"{given}: each checkpoint would have {1 / (value + 1):.1g} of alpha or "
            f"less, at which no drop is told from noise; give {LONGEST_SERIES} or fewer, a series "
            "may become longer than expected"
        )
    return value


def _devices(given: GivenValue) -> int | None:
    """None: auto."""
    return None if given.last == "auto" else _count(given, other="auto or ")


def _switch(given: GivenValue) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if given.last.lower() not in known:
        raise ValueError(f"{given}: true or false is expected")
    return known[given.last.lower()]


def _budget(given: GivenValue) -> SampleBudget:
    limits: dict[str, float] = {}
    for part in given.last.split(","):
        match = re.fullmatch(_BUDGET, part.strip())
        kind = match.lastgroup if match else None
        if match is None or kind is None or kind in limits or float(match[kind]) == 0:
            raise ValueError(
                f"{given}: a number of samples, of seconds, or both are expected, over 0, such as "
                "800, 3600s or 800,3600s"
            )
        limits[kind] = float(match[kind])
    samples = limits.get("samples")
    return SampleBudget(None if samples is None else int(samples), limits.get("seconds"))


def _pools(given: GivenValue) -> dict[str, dict[str, float]]:
    """Role -> what is asked for its pool."""
    pools: dict[str, dict[str, float]] = {}
    for text in given.texts:
        role, _, rest = text.partition(":")
        if role not in ROLE_NAMES:
            from pytest_cepbench.errors import did_you_mean

            raise ValueError(
                f"{given.source} {text!r}: a role is expected first ({', '.join(ROLE_NAMES)}), as "
                f"in {_POOL_EXAMPLE}.{did_you_mean(role, ROLE_NAMES)}"
            )
        pool = pools[role] = {}
        for part in rest.split(","):
            key, _, value = part.strip().partition("=")
            number = _number(value)
            whole = key == "actors" or number > 1  # of devices Ray gives parts of one, or whole
            wrong = key not in _POOL_KEYS or key in pool or not 0 <= number < float("inf")
            if wrong or (key == "actors" and number < 1) or (whole and number % 1):
                raise ValueError(
                    f"{given.source} {text!r}: {part.strip()!r} is not understood; actors (1 or "
                    "more) and gpus (a part of one, or a whole number) are expected, as in "
                    f"{_POOL_EXAMPLE}"
                )
            pool[key] = int(number) if key == "actors" else number
    return pools


# -- the table ------------------------------------------------------------------------------------


class RunOption(NamedTuple):
    """One option: `--cep-NAME`, ini `cepbench_NAME`, environment `CEPBENCH_NAME`.

    group: where `--help` shows it.
    name: what the three names are made of.
    metavar: stands for the value in `--help`; empty for a switch, which takes none: it is "true" in
        ini file and environment.
    help: one sentence.
    read: the setting of what was given. default: where nothing was.
    below: the default as a path below the project's folder.
    choices: the values that it can have, where they are a list.
    short: whether `--NAME` is offered as well.
    multiple: whether it may be given several times.
    """

    group: str
    name: str
    metavar: str
    help: str
    read: Callable[[GivenValue], Any] = _text
    default: Any = None
    below: str = ""
    choices: tuple[str, ...] | None = None
    short: bool = False
    multiple: bool = False

    @property
    def switch(self) -> bool:
        """Whether it takes no value."""
        return not self.metavar

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


def _options(*own: RunOption) -> Any:
    """A field of `RunSettings` whose value comes from options."""
    return field(metadata={"options": own})


def _option(about: str, read: Callable[[GivenValue], Any] = _text, **more: Any) -> Any:
    """A field of `RunSettings` that is the value of an option. about: `[group] words: help`."""
    names, _, help_ = about.partition(": ")
    group, _, words = names[1:].partition("] ")
    name, _, metavar = words.partition(" ")
    if not metavar:
        assert read is _text, f"{name} is a switch, which has a reader"
        assert not more, f"{name} is a switch, which has no more than its name and help"
        read, more = _switch, {"default": False}
    return _options(RunOption(group, name, metavar, help_, read, **more))


_ROLES = tuple(
    RunOption(
        "models",
        role,
        "[NAME=]SPEC" if role == "encoder" else "SPEC",
        f"Model {about}",
        _spec,
        short=True,
        multiple=role == "encoder",
    )
    for role, about in {
        "describer": "that describes images",
        "generator": "that draws descriptions",
        "encoder": "whose vectors are compared; with NAME= one of a suite's further encoders "
        "(several allowed)",
        "detector": "that finds objects in images",
        "judge": "that decides which of two answers is better",
        "writer": "that writes the texts of interleaved answers",
        "editor": "that draws a step of an answer by editing the image before it",
        "interleaver": "that makes the texts and images of interleaved answers by itself",
        "vqa": "that answers questions about images and texts",
    }.items()
)


@dataclass(frozen=True)
class RunSettings:
    """What the engineer asked for, most of it by options; None leaves a setting to the suites.

    home: folder of everything that a run leaves behind by default, never to be committed.
    listing: whether cases are only listed.
    sources: option -> where its value came from, for each value that is not a default.
    roles: role -> spec. encoders: name -> spec, of the further encoders of suites.
    All others are values of the option that stands beside them.
    """

    home: Path
    listing: bool
    sources: Mapping[str, str]
    encoders: Mapping[str, str]
    model: str | None = _option(
        "[models] model SPEC: Model under test: a checkpoint folder, a hub id, or a spec that "
        "begins with shapes:, tones:, python:, openai:, serve:, unicom:, cleanfid:, human:, "
        "preset: or replay:",
        _spec,
        short=True,
    )
    role: str | None = _option(
        "[models] role ROLE: Role of the model under test, or unified for describer and generator "
        "in one",
        choices=(*ROLE_NAMES, "unified"),
    )
    roles: Mapping[str, str] = _options(*_ROLES)
    gate: str | None = _option(
        "[gate] gate RULE: Rule of all suites: regression fails a drop that is larger than the "
        "tolerance and not noise, noninferiority passes only where such a drop is excluded, "
        "threshold compares without statistics",
        choices=("regression", "noninferiority", "threshold"),
    )
    tolerance: float | None = _option(
        "[gate] tolerance DROP: Largest drop that does not matter, in all suites", _tolerance
    )
    alpha: float | None = _option(
        "[gate] alpha ERROR: Probability of a false verdict in each direction, divided among the "
        "cases of the run",
        _alpha,
    )
    inconclusive: str = _option(
        "[gate] inconclusive ACTION: Where the samples do not decide: pass with a warning "
        "(default), fail, or measure more of them, 25, 50, 100, ... until they do",
        choices=("pass", "fail", "more"),
        default="pass",
    )
    series: str | None = _option(
        "[gate] series NAME: Series of gates that this run belongs to, such as the checkpoints of "
        "a training: alpha is divided over all of them, however many there will be"
    )
    allow_skips: bool = _option(
        "[gate] allow-skips: Let a run pass in which tests, marks or modules skipped cases: it "
        "fails by default"
    )
    baselines: Path = _option(
        "[gate] baselines DIR: Folder of accepted baselines (default: baselines)",
        _path,
        below="baselines",
    )
    plan: bool = _option("[gate] plan: Print what would be measured, and how well, and stop")
    data: Mapping[str, DataPlace] = _option(
        "[data] data NAME=PATH: Where a data set of a suite is (several allowed)",
        _data,
        default={},
        multiple=True,
    )
    samples: int | None = _option(
        "[data] samples N: Most samples of each category; the same samples in every run",
        _count,
    )
    seeds: int | None = _option(
        "[data] seeds N: Seeds under which each sample is measured, in all suites", _count
    )
    store: Path = _option(
        "[data] store DIR: Folder of computed results (default: .cepbench/store)",
        _path,
        below=".cepbench/store",
    )
    shared: tuple[Path | str, ...] = _option(
        "[data] shared DIR|URL: Store of results that is only read: a folder, or a URL such as "
        "s3://BUCKET/PREFIX (several allowed)",
        _places,
        default=(),
        multiple=True,
    )
    publish: Path | str | None = _option(
        "[data] publish URL|DIR: Store that is read, and to which this run uploads its results: "
        "s3://BUCKET/PREFIX, gs://..., or a folder that machines mount",
        lambda given: _places(given)[-1] if given.last else None,
    )
    engine: str = _option(
        "[workers] engine ENGINE: Where models run: local, in pytest's own processes (default), or "
        "ray, on a Ray cluster",
        choices=("local", "ray"),
        default="local",
    )
    residency: str = _option(
        "[workers] residency MODE: all: models stay on the device together (default); swap: one at "
        "a time, for devices that cannot hold them all",
        choices=("all", "swap"),
        default="all",
    )
    devices_per_worker: int | None = _option(
        "[workers] devices-per-worker N|auto: Accelerators of each worker of -n: auto (default) "
        "gives as many as its models need",
        _devices,
    )
    report: Path = _option(
        "[reports] report FILE: Report to write, as .json, .html and .md (default: "
        ".cepbench/report.json)",
        _file,
        below=".cepbench/report.json",
    )
    history: Path | None = _option(
        "[reports] history DIR|off: Folder to which each run adds a line with its verdicts "
        "(default: .cepbench/history)",
        lambda given: None if given.last == "off" else _path(given),
        below=".cepbench/history",
    )
    show: tuple[str, ...] = _option(
        "[reports] show SAMPLE: Sample whose chain or answer the report shows as well, in every "
        "case that has it (several allowed)",
        lambda given: tuple(given.texts),
        default=(),
        multiple=True,
    )
    accept_insensitive: bool = _option(
        "[advanced] accept-insensitive: Accept baselines at the floor by chance as well, where no "
        "regression could be seen"
    )
    series_length: int | None = _option(
        "[advanced] series-length N: Checkpoints of a --cep-series for which half of alpha is "
        "spent (default: 40); set when it begins",
        _series_length,
    )
    budget: SampleBudget = _option(
        "[advanced] budget N,SECONDSs: Most that --cep-inconclusive=more may spend: samples of a "
        "case, seconds of the run, or both (800,3600s)",
        _budget,
        default=SampleBudget(),
    )
    pairing: str = _option(
        "[advanced] pairing MODE: exact: baselines of other samples are incomparable (default); "
        "common: compare the samples that both have",
        choices=("exact", "common"),
        default="exact",
    )
    attribute: int = _option(
        "[advanced] attribute N: Samples on which a regression is followed through the chain "
        "(default: 16; 0: none)",
        partial(_count, least=0),
        default=16,
    )
    ray_address: str | None = _option(
        "[advanced] ray-address HOST:PORT: Cluster of --cep-engine=ray (default: RAY_ADDRESS, else "
        "one is started here)"
    )
    ray_pools: Mapping[str, Mapping[str, float]] = _option(
        "[advanced] ray-pool ROLE:K=V,...: Actors and gpus of a role's pool with "
        "--cep-engine=ray, such as describer:actors=4,gpus=0.5 (several allowed)",
        _pools,
        default={},
        multiple=True,
    )

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


OPTIONS: tuple[RunOption, ...] = tuple(
    option for each in fields(RunSettings) for option in each.metadata.get("options", ())
)
"""All options, in the order of `pytest --help`."""


def read_settings(
    values: Mapping[str, Sequence[str]],
    sources: Mapping[str, str],
    root: Path,
    *,
    resolve: Callable[[str, str], Path] = lambda _, text: Path(text).absolute(),
    listing: bool = False,
) -> RunSettings:
    """Settings from what was given. Raises ValueError naming the value that is wrong.

    values: option (`ray-pool`) -> the texts given for it.
    sources: option -> where its texts came from, for messages.
    root: folder of the project: defaults lie below it.
    resolve: makes a path of a setting's name and a text.
    listing: whether cases are only listed.
    """
    given = {
        name: GivenValue(texts, sources.get(name, name), partial(resolve, name))
        for name, texts in values.items()
    }
    for option in OPTIONS:
        if option.choices and (own := given.get(option.name)) and own.last not in option.choices:
            from pytest_cepbench.errors import did_you_mean

            hint = did_you_mean(own.last, option.choices)
            expected = f"one of {', '.join(option.choices)} is expected"
            raise ValueError(f"{own}: {expected}{'.' if hint else ''}{hint}")
    _check_series(given)
    _check_engine(given)

    def value_of(option: RunOption) -> Any:
        if own := given.get(option.name):
            return option.read(own)
        return root / option.below if option.below else option.default

    options = {each.name: each.metadata.get("options", ()) for each in fields(RunSettings)}
    roles = {option.name: value_of(option) for option in options.pop("roles")}
    roles["encoder"], encoders = named_specs(values.get("encoder", []))  # which share an option
    return RunSettings(
        **{name: value_of(*own) for name, own in options.items() if own},
        roles={role: roles[role] for role in ROLE_NAMES if roles[role] is not None},
        encoders=encoders,
        home=root / ".cepbench",
        listing=listing,
        sources=sources,
    )


def _check_series(given: Mapping[str, GivenValue]) -> None:
    """Raise ValueError for a length without a series, and where a run has no error to divide."""
    series, length, gate = (given.get(name) for name in ("series", "series-length", "gate"))
    if series is None and length is not None and length.source.startswith("--"):
        raise ValueError(f"{length.source} is of a series of gates: name it with --cep-series NAME")
    if series is not None and gate is not None and gate.last == "threshold":
        raise ValueError(
            f"{series} divides the error of the gate over a series, and {gate} makes none that is "
            "known: leave one of the two out"
        )


def _check_engine(given: Mapping[str, GivenValue]) -> None:
    """Raise ValueError for settings that the chosen engine makes no use of."""
    engine, residency = given.get("engine"), given.get("residency")
    if engine is None or engine.last != "ray":
        for own in filter(None, map(given.get, ("ray-address", "ray-pool"))):
            # In an ini file they may stay for the runs that are on a cluster.
            if own.source.startswith(("--", "gate_checkpoint")):
                raise ValueError(f"{own} is for --cep-engine=ray: give that as well, or drop it")
    elif residency is not None and residency.last == "swap":
        raise ValueError(
            f"{residency}: with --cep-engine=ray models stay where they are; give each role a "
            "device of its own instead, with --cep-ray-pool"
        )
