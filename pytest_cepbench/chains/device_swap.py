"""Whose weights are on a device: everybody's, or one role's at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

ResidencyName = Literal["all", "swap"]


class SwappableModel(Protocol):
    """Something that holds a model."""

    @property
    def device(self) -> str:
        """Where its model works."""

    def leave(self) -> None:
        """Let go of the device; does nothing where it is not on it."""


class DeviceSwap:
    """Who is on which device.

    swap: one at a time on each device, for those that cannot hold several. begin: called once, before
    the first model is loaded.
    """

    def __init__(self, *, swap: bool = False, begin: Callable[[], None] | None = None) -> None:
        self.swap = swap
        self._begin = begin
        self._present: dict[str, list[SwappableModel]] = {}

    def enter(self, one: SwappableModel) -> None:
        """Make room for one that is about to work; called before its model is loaded or moved."""
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()
        present = self._present.setdefault(one.device, [])
        if self.swap:
            for other in present:
                if other is not one:
                    other.leave()
            present[:] = [one]
        elif not any(other is one for other in present):
            present.append(one)

    def clear(self) -> None:
        """Everybody leaves: what is needed again comes back when it is."""
        for present in self._present.values():
            for one in present:
                one.leave()
            present.clear()
