"""The classes that a detector of a fixed set knows, by the names that they are asked by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_cepbench.errors import RoleError, unknown_name
from pytest_cepbench.models.checkpoints import Checkpoint

_SAME_CLASS = (
    # GenEval's prompts say which mouse is meant; COCO's names do not.
    ("mouse", "computer mouse"),
    ("remote", "tv remote"),
    ("keyboard", "computer keyboard"),
    # COCO's names, and those of Pascal VOC that some checkpoints carry for the same classes.
    ("airplane", "aeroplane"),
    ("motorcycle", "motorbike"),
    ("couch", "sofa"),
    ("tv", "tvmonitor"),
    ("potted plant", "pottedplant"),
    ("dining table", "diningtable"),
)


class ClassNames:
    """A checkpoint's classes (`id2label` of its configuration) by name; case does not matter."""

    def __init__(self, checkpoint: Checkpoint, labels: Mapping[Any, str]) -> None:
        self._checkpoint = checkpoint
        self._known: dict[str, int] = {}
        for index, name in labels.items():
            self._known.setdefault(_plain(name), int(index))
        own = dict(self._known)
        for names in _SAME_CLASS:
            index = next((own[name] for name in names if name in own), None)
            if index is not None:
                for name in names:
                    self._known.setdefault(name, index)

    def asked(self, queries: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """Index of each class that is asked for -> the queries that mean it, word for word.

        Raises RoleError naming the classes for a query that is the name of none.
        """
        found: dict[int, tuple[str, ...]] = {}
        for query in queries:
            index = self._known.get(_plain(query))
            if index is None:
                msg = (
                    f"{self._checkpoint.path}: {self._checkpoint.what} finds its own classes only, "
                    f"asked for by their plain names: {unknown_name('class', query, self._known)}"
                )
                raise RoleError(msg)
            found[index] = (*found.get(index, ()), query)
        return found


def _plain(name: str) -> str:
    return " ".join(name.lower().split())
