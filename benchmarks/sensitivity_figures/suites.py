"""The suites that are played: every metric that is compared is a table of one of them.

A new metric is a line: `list_cases` finds it, and its cost follows from what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cepbench.suites import Suite, load_suite

_CHAINS = """\
name = "{name}"
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

_EDITED = """\
name = "{name}"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples} }}
edits = ["mirror", "recolor"]
[chain]
start = "image"
generations = 1
seed = {seed}
[prompts]
describe = "describe the image"
[roles]
describer = "{describer}"
generator = "{generator}"
{presets}
[metrics]
described = {{ kind = "equivariance", start = "image" }}
"""

_ARENA = """\
name = "{name}"
version = 1
[data]
loader = "shapes-arena"
options = {{ samples_per_category = {samples} }}
[answer]
steps = "free"
seed = {seed}
[prompts]
[arena]
against = "gold"
order = "both"
[roles]
interleaver = "{interleaver}"
judge = "{judge}"
[metrics]
win_rate = {{ parts = "overall" }}
"""

_TRUTH = """\
truth = {{ parts = "overall" }}
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

CHAINS, SEEN, ARENA, ARENA_TRUTH = "chains", "seen", "arena", "arena truth"
"""Chains from images; edited scenes that are described; answers before a judge, or before the truth
as well."""

_TEXTS = {
    CHAINS: _CHAINS,
    SEEN: _EDITED,
    ARENA: _ARENA,
    ARENA_TRUTH: _ARENA + _TRUTH,
}


@dataclass(frozen=True)
class Setting:
    """A suite with the models of its roles.

    text: which of the texts. name: of the suite, in front of its metrics. roles: what its text asks
    for, by name, and "drawing", the checkpoint of the preset that a generator may be.
    """

    text: str
    name: str
    roles: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.text, self.name, *sorted(self.roles.items())))

    def load(self, folder: Path, samples: int, seed: int) -> Suite:
        """The suite, by way of a file in the folder. samples: of each category. seed: of models."""
        path = folder / f"{self.name}-{seed}.toml"
        drawing = self.roles.get("drawing")
        presets = "" if drawing is None else _DRAWING.format(drawing=drawing)
        own = {"name": self.name, "samples": samples, "seed": seed, "presets": presets}
        fields = {**self.roles, **own}
        path.write_text(_TEXTS[self.text].format(**fields), encoding="utf-8")
        return load_suite(path)
