"""Progress of a process: written by the thread that works, read by the one that shows it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

# A rate is taken over these seconds: models differ in speed, and stored results are quick.
_WINDOW = 60.0


@dataclass
class Progress:
    """The steps of the case that runs; a step is one input of one role.

    case: its name; empty while none runs.
    samples, of_samples: those whose chains are done, and all of the case; 0 where unknown.
    step: that is being made now.
    steps, of_steps: done and all of the case, stored ones included.
    waiting: whether another process works on what this one needs.
    holder: the process of another run that has it, in words; empty where it is of this run.
    server: what a server is waited for; empty while none is.
    """

    case: str = ""
    samples: int = 0
    of_samples: int = 0
    step: str = ""
    steps: int = 0
    of_steps: int = 0
    waiting: bool = False
    holder: str = ""
    server: str = ""
    _points: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    def begin(self, case: str, samples: int, steps: int) -> None:
        """Begin a case of so many samples and steps."""
        self.case, self.of_samples, self.of_steps = case, samples, steps
        self.samples = self.steps = 0
        self.step, self.waiting = "", False
        self._points.clear()
        self._points.append((time.monotonic(), 0))

    def end(self) -> None:
        """End the case."""
        self.case = ""

    def add(self, steps: int) -> None:
        """Count steps that have their results."""
        self.steps += steps
        now = time.monotonic()
        self._points.append((now, self.steps))
        while len(self._points) > 2 and now - self._points[0][0] > _WINDOW:
            self._points.popleft()

    @property
    def rate(self) -> float | None:
        """Steps per second of the last minute; None before there is any."""
        points = tuple(self._points)  # a copy: the thread that works may clear it
        if len(points) < 2:
            return None
        (since, before), (until, after) = points[0], points[-1]
        return (after - before) / (until - since) if until > since and after > before else None

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at this rate; None where the rate is unknown."""
        rate = self.rate
        return None if rate is None else max(0, self.of_steps - self.steps) / rate
