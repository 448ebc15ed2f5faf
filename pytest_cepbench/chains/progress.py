"""How far a process is: written by the thread that works, read by the one that shows it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

_WINDOW = (
    60.0  # seconds that a rate is taken over: models differ, and what was in the store is quick
)


@dataclass
class Progress:
    """What is being done for the case that runs, in steps: one input of one role each.

    case: its name; empty while none runs. samples, of_samples: whose chains are grown and read, of
    all of the case; 0 where nobody counts them. step: what goes on now. steps, of_steps: done and to do, found ones included.
    waiting: whether another process has what this one needs.
    """

    case: str = ""
    samples: int = 0
    of_samples: int = 0
    step: str = ""
    steps: int = 0
    of_steps: int = 0
    waiting: bool = False
    _seen: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    def begin(self, case: str, samples: int, steps: int) -> None:
        """A case begins: so many samples, so many steps."""
        self.case, self.of_samples, self.of_steps = case, samples, steps
        self.samples = self.steps = 0
        self.step, self.waiting = "", False
        self._seen.clear()
        self._seen.append((time.monotonic(), 0))

    def end(self) -> None:
        """The case is judged."""
        self.case = ""

    def did(self, steps: int) -> None:
        """So many more steps have their results."""
        self.steps += steps
        now = time.monotonic()
        self._seen.append((now, self.steps))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Steps per second, of late; None before there is any."""
        seen = tuple(self._seen)  # at once: the thread that works may clear it
        if len(seen) < 2:
            return None
        (since, before), (until, after) = seen[0], seen[-1]
        return (after - before) / (until - since) if until > since and after > before else None

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at this rate; None where that is not known."""
        rate = self.rate
        return None if rate is None else max(0, self.of_steps - self.steps) / rate
