"""The worlds of sensitivity: suites, undamaged models, and what is damaged in them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_cepbench.suites import Suite, load_suite

ROOT = Path(__file__).resolve().parents[2]

CHECKPOINTS = ROOT / "reference" / "checkpoints"

_CHAINS = """\
name = "chains"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples} }}
[chain]
start = "image"
generations = 6
seed = {seed}
[prompts]
describe = "describe the image"
[roles]
describer = "{describer}"
generator = "{generator}"
encoder = "{encoder}"
{presets}
[metrics]
gc = {{ parts = "overall" }}
s = {{ parts = "overall" }}
gc1 = {{ kind = "gc", at = 1, parts = "overall" }}
sim = {{ parts = "overall" }}
gc_fid = {{ pool = "samples", parts = "overall" }}
fid = {{ pool = "samples", parts = "overall" }}
kid = {{ pool = "samples", parts = "overall" }}
mcd = {{}}
retrieval = {{ parts = "overall" }}
retrieval1 = {{ kind = "retrieval", at = 1, parts = "overall" }}
diversity = {{}}
truth = {{ kind = "facts", parts = "overall" }}
truth1 = {{ kind = "facts", at = 1, parts = "overall" }}
failures = {{}}
"""

_DRAWING = """\
[presets.drawing]
model = "{drawing}"
[presets.drawing.parameters]
num_inference_steps = 8
guidance_scale = 1
height = 64
width = 64
batch_size = 24
dtype = "float32"
"""


@dataclass(frozen=True)
class Setting:
    """A suite with the models of its roles.

    roles: what the suite's text asks for, by name, and "drawing", the checkpoint of the preset that
    a generator may be.
    """

    roles: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.roles.items())))

    def load(self, folder: Path, samples: int, seed: int) -> Suite:
        """The suite, by way of a file in the folder. samples: of each category. seed: of models."""
        path = folder / f"chains-{seed}.toml"
        drawing = self.roles.get("drawing")
        presets = "" if drawing is None else _DRAWING.format(drawing=drawing)
        own = {"samples": samples, "seed": seed, "presets": presets}
        fields = {**self.roles, **own}
        path.write_text(_CHAINS.format(**fields), encoding="utf-8")
        return load_suite(path)


@dataclass(frozen=True)
class Sampling:
    """How much is played and drawn.

    samples: of each category. sizes: of each category, in a draw. draws: of each size. seed: of the
    draws.
    """

    samples: int
    sizes: tuple[int, ...]
    draws: int
    seed: int = 0


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a model. setting: what is played instead of the sound one."""

    name: str
    setting: Setting


@dataclass(frozen=True)
class World:
    """Models without damage, and the damages that are looked for.

    setting: the undamaged models. seeds: of the undamaged runs that thresholds
    come from, at least 2. damaged_seeds: of every damaged run; none of them is among `seeds`.
    """

    name: str
    setting: Setting
    damages: tuple[Damage, ...]
    sampling: Sampling
    seeds: tuple[int, ...]
    damaged_seeds: tuple[int, ...]


UNCHANGED = "unchanged"
"""The control: the undamaged models again, at seeds that no threshold has seen."""

# -- the instrument: rule-based models that lose what they are told to lose ------------------------

_KNOBS = ("miss", "recolor", "reshape", "resize", "move", "swap")
"""Of objects, which every model has a little of."""

_RARE = ("blank", "collapse")
"""Of whole answers, which undamaged models do not have."""

_ALWAYS = 0.01  # models without any loss have no noise to be told from

_MORE = 0.1


def _knobs(more: Mapping[str, float]) -> str:
    turned = dict.fromkeys(_KNOBS, _ALWAYS)
    for name, amount in more.items():
        turned[name] = turned.get(name, 0.0) + amount
    return "shapes:?" + "&".join(f"{name}={value:.3g}" for name, value in turned.items())


def instrument(sampling: Sampling, seeds: tuple[int, ...], damaged: tuple[int, ...]) -> World:
    """Chains of rule-based models, of which the describer has one knob turned up.

    Both roles lose alike in this world, so that a worse generator is no other case.
    """
    base = Setting({"describer": _knobs({}), "generator": _knobs({}), "encoder": "shapes:"})
    damages = [
        Damage(knob, _with_role(base, "describer", _knobs({knob: _MORE})))
        for knob in (*_KNOBS, *_RARE)
    ]
    return World("instrument", base, (Damage(UNCHANGED, base), *damages), sampling, seeds, damaged)


def _with_role(base: Setting, role: str, spec: str) -> Setting:
    return replace(base, roles={**base.roles, role: spec})


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
    base = Setting(roles)
    damages = []
    earlier = {
        f"describer-step{step}": CHECKPOINTS / f"describer-step{step}" for step in (800, 600)
    }
    for name, folder in {**_damaged_copies(best, copies), **earlier}.items():
        damages.append(Damage(name, _with_role(base, "describer", f"{folder}{_PRECISION}")))
    drawing = _with_role(base, "drawing", f"{CHECKPOINTS / 'generator-step500'}")
    damages.append(Damage("generator-step500", drawing))
    return World("reference", base, tuple(damages), sampling, seeds, damaged)


def _damaged_copies(best: Path, copies: Path) -> dict[str, Path]:
    """Name -> folder; its numbers are the same whenever it is made."""
    # `reference/regress.py` is run as a script and imports its neighbours; it needs torch.
    sys.path.insert(0, str(ROOT / "reference"))
    from regress import REGRESSIONS, regress

    made = {}
    for name, amount in {CONTROL: None, **AMOUNTS}.items():
        shown = REGRESSIONS[name].amount if amount is None else amount
        made[name] = copies / (name if shown is None else f"{name}-{shown:g}")
        if not made[name].exists():
            copies.mkdir(parents=True, exist_ok=True)
            regress(name, best, made[name], amount)
    return made
