"""Which models the baselines name: their own, and those that were held fixed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_cepbench.errors import SpecError
from pytest_cepbench.files import MOST_TEXT, parse_toml, read_regular
from pytest_cepbench.gate.baseline import SUFFIX
from pytest_cepbench.models.protocols import SHORT_FINGERPRINT


def needed_models(folders: Sequence[Path], known: Iterable[str]) -> frozenset[str]:
    """Those of the known models that a baseline or an anchor below these folders names.

    Raises SpecError for a folder without baselines and for a baseline that cannot be read: what it
    needs would look as if nobody did.
    """
    words = [f" {text} " for folder in folders for text in _texts_below(folder)]
    return frozenset(model for model in known if any(f" {model} " in text for text in words))


def _texts_below(folder: Path) -> Iterator[str]:
    paths = sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not paths:
        msg = f"--baselines {str(folder)!r}: no baselines there; give the folder that holds them"
        raise SpecError(msg)
    for path in paths:
        try:
            table = parse_toml(read_regular(path, MOST_TEXT))
        except (OSError, ValueError) as error:
            msg = f"--baselines: {str(path)!r} cannot be read as a baseline: {error}"
            raise SpecError(msg) from error
        yield from dict.fromkeys(_texts_of(table))


def _texts_of(table: dict[str, object]) -> Iterator[str]:
    for name in ("model", "identity"):
        part = table.get(name)
        for field, text in part.items() if isinstance(part, dict) else ():
            if field == "step":
                yield _fingerprint(str(text))
            else:
                yield str(text)


def _fingerprint(step: str) -> str:
    try:
        return str(json.loads(step)["fingerprint"])[:SHORT_FINGERPRINT]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
