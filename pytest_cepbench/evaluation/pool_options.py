"""Settings of the Ray engine: its pools, and what it does not go together with.

Standard library only: this is imported in every pytest that has the plugin installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_cepbench.errors import did_you_mean

ROLES = ("describer", "generator", "encoder", "detector", "judge")

_KEYS = ("actors", "gpus", "cpus")

_EXAMPLE = "describer:actors=4,gpus=0.5,cpus=1"


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
                msg = f"{sources[name]} {text!r} is for --cep-engine=ray: give that as well, or drop it"
                raise ValueError(msg)
        return
    if "swap" in values.get("residency", [])[-1:]:
        msg = (
            f"{sources['residency']} 'swap': with --cep-engine=ray models stay where they are; give each "
            "role a device of its own instead, with --cep-ray-pool"
        )
        raise ValueError(msg)
    if workers:
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
