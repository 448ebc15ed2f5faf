"""Options of the Ray engine: its pools, and what it does not go together with.

Standard library and pytest only: this runs in every pytest that has the plugin installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pytest_cepbench.errors import did_you_mean
from pytest_cepbench.plugin.options import ROLES

_KEYS = ("actors", "gpus", "cpus")

_EXAMPLE = "describer:actors=4,gpus=0.5,cpus=1"


def check_engine(
    config: pytest.Config, values: Mapping[str, str], sources: Mapping[str, str]
) -> None:
    """Raise ValueError for options that have no effect with the engine of the run.

    values, sources: of the options, by their names.
    """
    if values.get("engine") != "ray":
        for name in ("ray-address", "ray-pool"):
            # In an ini file they may stay for the runs that are on a cluster.
            if sources.get(name, "").startswith("--"):
                msg = f"{sources[name]} {values[name]!r} is for --cep-engine=ray: give that as well, or drop it"
                raise ValueError(msg)
        return
    if values.get("residency") == "swap":
        msg = (
            f"{sources['residency']} 'swap': with --cep-engine=ray models stay where they are; give each "
            "role a device of its own instead, with --cep-ray-pool"
        )
        raise ValueError(msg)
    workers = getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None)
    if workers or hasattr(config, "workerinput"):
        msg = "--cep-engine=ray starts its own workers: drop -n (and --tx), or the engine"
        raise ValueError(msg)


def read_pools(texts: Sequence[str], source: str) -> dict[str, dict[str, float]]:
    """Role -> what was given for its pool. Raises ValueError naming what is wrong."""
    return dict(_pool(text, source) for text in texts)


def _pool(text: str, source: str) -> tuple[str, dict[str, float]]:
    role, _, rest = text.partition(":")
    if role not in ROLES:
        msg = f"{source} {text!r}: a role is expected first ({', '.join(ROLES)}), as in {_EXAMPLE}.{did_you_mean(role, ROLES)}"
        raise ValueError(msg)
    pool: dict[str, float] = {}
    for part in rest.split(","):
        key, _, value = part.strip().partition("=")
        number = _number(value)
        whole = key == "actors" or number > 1  # of devices Ray gives parts of one, or whole ones
        wrong = key not in _KEYS or key in pool or not 0 <= number < float("inf")
        if wrong or (key == "actors" and number < 1) or (whole and key != "cpus" and number % 1):
            msg = (
                f"{source} {text!r}: {part.strip()!r} is not understood; actors (1 or more), gpus (a part "
                f"of one, or a whole number) and cpus are expected, each once, as in {_EXAMPLE}"
            )
            raise ValueError(msg)
        pool[key] = int(number) if key == "actors" else number
    return role, pool


def _number(text: str) -> float:
    """The number in a text; NaN, which is in no range, where there is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
