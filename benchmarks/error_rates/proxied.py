"""The figures of ways to look again: proxies that are good, useless and wrong.

Every world has 192 samples in eight categories, whole differences and those of a proxy. Without
drift each sample is turned around with probability one half; else its mean is a drop of the
tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.look_ways import WAYS, Drawn, look_again_by
from benchmarks.error_rates.simulated import Settings
from benchmarks.error_rates.verdicts import FAILS, PASSES
from benchmarks.error_rates.worlds import Array

PROXIED = "looked again: "
"""Before the names of these worlds: their table is their own."""

MEASURED = tuple(way for way in WAYS if way.proxy != "text" and not way.strata and not way.former)
"""The ways that runs offer and whose statistics differ: here the text is the first iteration."""

_CATEGORIES, _EACH = 8, 24
_SPREAD = 0.05
_RARE, _SEEN = 0.15, 0.6  # of the samples lose something; of the losses the first iteration shows

_FEWER = 2  # of the runs: each looks up to fourteen times

Draw = Callable[[np.random.Generator], tuple[Array, Array]]


@dataclass(frozen=True)
class ProxyWorld:
    """A law of whole differences and those of a proxy.

    draw: gives both, (n,) each; the whole ones have the mean that `drop` says, 0 if it is None.
    drop: the mean drop that is in them already; None where it is added.
    """

    name: str
    draw: Draw
    drop: float | None = None


def _good(generator: np.random.Generator) -> tuple[Array, Array]:
    proxy = generator.normal(0, _SPREAD, _CATEGORIES * _EACH)
    return proxy + generator.normal(0, 0.3 * _SPREAD, len(proxy)), proxy


def _loud(generator: np.random.Generator) -> tuple[Array, Array]:
    whole, proxy = _good(generator)
    louder = np.tile(np.linspace(0.25, 3.0, _CATEGORIES), _EACH)
    return whole * louder, proxy * louder


def _useless(generator: np.random.Generator) -> tuple[Array, Array]:
    whole, _ = _good(generator)
    return whole, generator.normal(0, _SPREAD, len(whole))


def _wrong(generator: np.random.Generator) -> tuple[Array, Array]:
    """A proxy that is far too kind, and says it of every sample."""
    whole, proxy = _good(generator)
    return whole, 0.5 * proxy + 0.1


def _contrary(generator: np.random.Generator) -> tuple[Array, Array]:
    whole, proxy = _good(generator)
    return whole, -proxy


_LOSS = _RARE * 0.4  # the mean of 0.4 in what is lost


def _rare(generator: np.random.Generator) -> tuple[Array, Array]:
    """Most samples lose nothing; some lose much, and the first iteration shows a part of them."""
    count = _CATEGORIES * _EACH
    lost = (generator.random(count) < _RARE) * generator.uniform(0.0, 0.8, count)
    shown = generator.random(count) < _SEEN
    return -lost, -lost * shown


WORLDS = (
    ProxyWorld("a good proxy", _good),
    ProxyWorld("loud categories", _loud),
    ProxyWorld("a useless proxy", _useless),
    ProxyWorld("a proxy that is too kind", _wrong),
    ProxyWorld("a proxy that says the contrary", _contrary),
    ProxyWorld("rare losses", _rare, _LOSS),
)


def figures(settings: Settings, *, quick: bool) -> Iterator[Figure]:
    """Both errors of each way of looking again, promised for a case."""
    few = replace(settings, runs=max(2, settings.runs // _FEWER))
    for world in WORLDS[-1:] if quick else WORLDS:
        yield from _errors(world, few)


def _errors(world: ProxyWorld, settings: Settings) -> Iterator[Figure]:
    tolerance = settings.tolerance if world.drop is None else world.drop
    for drift, what, wanted in (
        (0.0, "false failures", FAILS),
        (tolerance, "false passes", PASSES),
    ):
        names = [ord(letter) for letter in world.name]
        generator = np.random.default_rng([settings.seed, *names, round(drift * 1000)])
        hits: dict[str, list[bool]] = {}
        for _ in range(settings.runs):
            drawn = _drawn(world, generator, drift)
            for way in MEASURED:
                ended = look_again_by(way, drawn, settings.alpha, tolerance)
                hits.setdefault(way.name, []).append(ended.verdict in wanted)
        for name, own in hits.items():
            cell = Cell(name, f"{PROXIED}{world.name}", 192, 1, drift, tolerance)
            yield cell.rate(f"{what} of a case", np.array(own), settings.alpha)


def _drawn(world: ProxyWorld, generator: np.random.Generator, drift: float) -> Drawn:
    whole, proxy = world.draw(generator)
    if not drift:
        turned = np.where(generator.random(len(whole)) < 0.5, -1.0, 1.0)
        whole, proxy = whole * turned, proxy * turned
    elif world.drop is None:
        whole = whole - drift
    return Drawn(
        np.round(whole, 6),
        np.tile(np.arange(_CATEGORIES), _EACH),
        {"first": np.round(proxy, 6)},
    )
