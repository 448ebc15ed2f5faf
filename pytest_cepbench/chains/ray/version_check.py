"""Whether all nodes are alike: what is installed there, and what a spec names there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_cepbench._version import __version__
from pytest_cepbench.artifacts import canonical_json
from pytest_cepbench.chains.ray.actor_factory import offered_paths
from pytest_cepbench.chains.ray.cluster import Node
from pytest_cepbench.chains.ray.logging_setup import silenced_ray
from pytest_cepbench.chains.ray.messages import ActorReady
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.protocols import BoundRole

_DIFFER = (
    "the weights or configurations differ: copy them, or share the folder, and let no trainer write "
    "there meanwhile"
)

_GREETING = 60.0  # seconds for a node to start a process and say which versions it has


def check_nodes(nodes: Sequence[Node]) -> None:
    """Raise SpecError naming the first node whose pytest-cepbench or Python is another one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(_greeting(offered_paths(), str(Path.cwd())))
    with silenced_ray():
        asked = [
            task.options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            ).remote()
            for node in nodes
        ]
        for node, ref in zip(nodes, asked, strict=True):
            try:
                version, python = ray.get(ref, timeout=_GREETING)
            except ray.exceptions.RayError as error:
                msg = f"node {node.name} starts no process: {' '.join(str(error).split())[:200]}"
                raise SpecError(msg) from error
            check_versions(node.name, version, python)


def _greeting(paths: list[str], folder: str) -> Any:
    """A function that says which versions a node has; sent as it is, for it must run without us."""

    def greet() -> tuple[str, str]:
        import os as there
        import platform
        import sys as its
        from pathlib import Path as Its

        if Its(folder).is_dir():
            there.chdir(folder)
        its.path.extend(path for path in paths if path not in its.path and Its(path).exists())
        try:
            from pytest_cepbench import __version__ as found
        except ImportError as error:
            found = f"not importable: {error}"
        return found, platform.python_version()

    return greet


def check_versions(node: str, version: str, python: str) -> None:
    """Raise SpecError where a node has another pytest-cepbench, or another minor of Python."""
    here = ".".join(map(str, sys.version_info[:2]))
    if version != __version__ or python.rpartition(".")[0] != here:
        msg = (
            f"node {node} has pytest-cepbench {version} on Python {python}, this process {__version__} "
            f"on Python {sys.version.split()[0]}: install the same on all nodes, and here"
        )
        raise SpecError(msg)


def difference(name: str, first: BoundRole, said: ActorReady) -> str:
    """What an actor's model has other than the first one's; empty where it is the same.

    name: of the model, for people. first: as it was bound first.
    """
    try:
        check_versions(said.node, *said.version.split())
    except SpecError as error:
        return str(error)
    for what, hint in (
        ("fingerprint", _DIFFER),
        ("adapter", "install the same packages on all nodes"),
        ("params", "give device= and dtype= in the spec, or only nodes of one kind"),
    ):
        expected, its = (_short(getattr(bound, what)) for bound in (first, said.bound))
        if expected != its:
            return f"{name}: {what} {its} on node {said.node}, {expected} elsewhere: {hint}"
    return ""


def _short(value: Any) -> str:
    return value[:16] if isinstance(value, str) else canonical_json(dict(value))
