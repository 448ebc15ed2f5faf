"""What is damaged, and how: knobs of the instrument, and copies of the reference describer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.sensitivity_figures.playing import Sampling
from benchmarks.sensitivity_figures.suites import ARENA, ARENA_TRUTH, CHAINS, SEEN, Setting

ROOT = Path(__file__).resolve().parents[2]

CHECKPOINTS = ROOT / "reference" / "checkpoints"


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a model.

    about: for people. settings: what is played instead of the undamaged settings, in their order.
    """

    name: str
    about: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class World:
    """Models without damage, and the damages that are looked for.

    settings: the undamaged models, one for each suite. seeds: of the undamaged runs that thresholds
    come from, at least 2. damaged_seeds: of every damaged run; none of them is among `seeds`.
    """

    name: str
    settings: tuple[Setting, ...]
    damages: tuple[Damage, ...]
    sampling: Sampling
    seeds: tuple[int, ...]
    damaged_seeds: tuple[int, ...]


UNCHANGED = "unchanged"
"""The control: the undamaged models again, at seeds that no threshold has seen."""

# -- the instrument: rule-based models that lose what they are told to lose ------------------------

_KNOBS = {
    "miss": "objects are left out",
    "recolor": "objects get another color",
    "reshape": "objects get another shape",
    "resize": "objects get the other size",
    "move": "objects go to another place",
    "swap": "two objects exchange places",
    "blank": "the answer is empty",
    "collapse": "the answer is always the same scene",
}

_PRIORS = {
    "prior": "objects are red, whatever they were",
    "left": "objects right of the center go to the left of it",
}
"""Further knobs of describers and generators."""

_ALWAYS = 0.01  # of the knobs of objects: models without any loss have no noise to be told from

_RARE = ("blank", "collapse")
"""Knobs of whole answers, which undamaged models do not have."""

_MORE = 0.1


def _knobs(more: Mapping[str, float]) -> str:
    turned = {name: _ALWAYS for name in _KNOBS if name not in _RARE}
    for name, amount in more.items():
        turned[name] = turned.get(name, 0.0) + amount
    return "shapes:?" + "&".join(f"{name}={value:.3g}" for name, value in turned.items())


def instrument(sampling: Sampling, seeds: tuple[int, ...], damaged: tuple[int, ...]) -> World:
    """Chains of rule-based models, of which the describer has one knob turned up.

    Both roles lose alike in this world, so that a worse generator is no other case.
    """
    roles = {"describer": _knobs({}), "generator": _knobs({}), "encoder": "shapes:"}
    base = Setting(CHAINS, "chains", roles), Setting(SEEN, "edits", roles)

    def turned(more: Mapping[str, float]) -> tuple[Setting, ...]:
        return _with_role(base, "describer", _knobs(more))

    damages = [
        Damage(knob, f"{about}, {_MORE:g} more", turned({knob: _MORE}))
        for knob, about in (_KNOBS | _PRIORS).items()
    ]
    control = Damage(UNCHANGED, "the same models", base)
    return World("instrument", base, (control, *damages), sampling, seeds, damaged)


def _with_role(base: Sequence[Setting], role: str, spec: str) -> tuple[Setting, ...]:
    return tuple(replace(each, roles={**each.roles, role: spec}) for each in base)


_ERRING = "shapes:?flip=0.1&first=0.2"
"""A judge that turns one verdict of ten around, and leans to the first answer in one of five."""


def arena(sampling: Sampling, seeds: tuple[int, ...], damaged: tuple[int, ...]) -> World:
    """Answers of a rule-based interleaver with one knob turned up, before two judges."""

    def settings(more: Mapping[str, float]) -> tuple[Setting, ...]:
        answers = _knobs(more)
        exact = Setting(ARENA_TRUTH, "exact-judge", {"interleaver": answers, "judge": "shapes:"})
        erring = Setting(ARENA, "erring-judge", {"interleaver": answers, "judge": _ERRING})
        return exact, erring

    damages = [
        Damage(f"interleaver {knob}", f"{about}, {_MORE:g} more", settings({knob: _MORE}))
        for knob, about in _KNOBS.items()
    ]
    control = Damage(UNCHANGED, "the same model", settings({}))
    return World("arena", settings({}), (control, *damages), sampling, seeds, damaged)


# -- the reference models --------------------------------------------------------------------------

AMOUNTS: Mapping[str, float | None] = {
    "quantized": 2,
    "pruned": 0.5,
    "lora-scale": 3,
    "stale-projector": 600,
    "swapped-layers": None,
    "swapped-colors": None,
    "fp16-overflow": None,
    "wrong-tokenizer": None,
    "wrong-mean": None,
    "cropped": 68,
    "cut-short": 24,
    "repetition-penalty": 3,
    "no-image-place": None,
}
"""The thirteen kinds of `reference/regress.py`, as mild as they still change captions."""

CONTROL = "resaved-bfloat16"

_PRECISION = "?dtype=float32"


def reference(
    sampling: Sampling, seeds: tuple[int, ...], damaged: tuple[int, ...], copies: Path
) -> World:
    """Chains of the trained models, with a damaged describer or an earlier step of one role.

    copies: folder of the damaged describers; what is there is not made again.
    """
    best = CHECKPOINTS / "describer-step2000"
    roles = {
        "describer": f"{best}{_PRECISION}",
        "generator": "preset:drawing",
        "encoder": f"{CHECKPOINTS / 'clip'}{_PRECISION}",
        "drawing": f"{CHECKPOINTS / 'generator-step3000'}",
    }
    base = Setting(CHAINS, "chains", roles), Setting(SEEN, "edits", roles)
    damages = [
        Damage(name, about, _with_role(base, "describer", f"{folder}{_PRECISION}"))
        for name, about, folder in _damaged_copies(best, copies)
    ]
    for step in (800, 600):
        folder = CHECKPOINTS / f"describer-step{step}"
        settings = _with_role(base, "describer", f"{folder}{_PRECISION}")
        damages.append(Damage(f"describer-step{step}", "an earlier step", settings))
    earlier = _with_role(base, "drawing", f"{CHECKPOINTS / 'generator-step500'}")
    damages.append(Damage("generator-step500", "an earlier step", earlier))
    return World("reference", base, tuple(damages), sampling, seeds, damaged)


def _damaged_copies(best: Path, copies: Path) -> list[tuple[str, str, Path]]:
    """Name, what it is, and folder of each; its numbers are the same whenever it is made."""
    regressions = _regressions()
    made = []
    for name, amount in {CONTROL: None, **AMOUNTS}.items():
        regression = regressions.REGRESSIONS[name]
        shown = regression.amount if amount is None else amount
        folder = copies / (name if shown is None else f"{name}-{shown:g}")
        if not folder.exists():
            copies.mkdir(parents=True, exist_ok=True)
            regressions.regress(name, best, folder, amount)
        about = regression.about if shown is None else f"{regression.about}: {shown:g}"
        made.append((name, about, folder))
    return made


def _regressions() -> Any:
    """`reference/regress.py`, which is run as a script and imports its neighbours; needs torch."""
    sys.path.insert(0, str(ROOT / "reference"))
    import regress

    return regress
