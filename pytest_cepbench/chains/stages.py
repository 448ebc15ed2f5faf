"""Stages of work on several devices at once: a thread for each device, one stage at a time on it.

A stage says, when it is done, which stages can begin now; so lanes of work flow from device to
device, and no device waits for a lane that is on another one as long as there are further lanes.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from pytest_cepbench.models.torch_runtime import warnings_by_thread

MOST_LANES = 8
"""Lanes under way at a time: more of them hold memory, fewer let a device wait at the end of one.
Three devices with work of equal length are kept busy by four."""

_MOST_BOUNDED = 2  # bounded stages that wait for a device: each holds inputs or results


@dataclass(frozen=True)
class Stage:
    """A piece of a lane's work.

    device: whose thread does it.
    order: of the stages that wait for a device, the one of lowest order comes first.
    work: does it, and returns the stages that can begin then.
    bounded: whether it holds inputs or results in memory: a thread that hands on one too many waits
        until there is room.
    stores: whether it waits for results to be stored, and is done even where another stage failed.
    """

    device: str
    order: tuple[int, ...]
    work: Callable[[], Sequence[Stage]]
    bounded: bool = False
    stores: bool = False


def run_stages(lanes: Iterable[Sequence[Stage]], most: int = MOST_LANES) -> None:
    """Do the stages of all lanes, each on the thread of its device; returns when all are done.

    lanes: the first stages of each; a lane is taken, on this thread, when fewer than `most` are
        under way.
    Raises what a stage raises, with its traceback: the stages that are being done end, and no other
    begins. An interrupt of this thread, or any other error in it, is passed on to the threads. No
    thread is left in any case, but for one that a second interrupt leaves in the midst of a call.
    """
    threads = _DeviceThreads(most)
    with warnings_by_thread():
        try:
            for stages in lanes:
                threads.begin(stages)
            threads.finish()
        except BaseException as error:
            threads.stop(interrupt=not isinstance(error, Exception))
            raise
        finally:
            threads.join()


@dataclass
class _Lane:
    """A lane that is under way. stages: of it that wait or are being done."""

    stages: int = 0


class _DeviceThreads:
    """The threads, and the stages that wait for each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._waiting: dict[str, list[tuple[tuple[int, ...], int, Stage, _Lane]]] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._working: set[int] = set()  # threads in the midst of a stage that can be interrupted
        self._lanes = 0
        self._error: BaseException | None = None
        self._stopped = self._closed = False

    # -- the thread that asks ----------------------------------------------------------------------

    def begin(self, stages: Sequence[Stage]) -> None:
        """Begin a lane, when there is room for it. Raises what a stage has raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._lanes < self._most or self._stopped)
            self._raise_error()
            if stages:
                self._lanes += 1
                self._put(_Lane(), stages)

    def finish(self) -> None:
        """Wait until all lanes are done. Raises what a stage has raised."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lanes or self._stopped)
            self._raise_error()

    def stop(self, *, interrupt: bool) -> None:
        """Begin no further stage. interrupt: whether to end those that are being done."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            for thread in self._working if interrupt else ():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt)
                )

    def join(self) -> None:
        """Wait for the end of the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads.values():
            thread.join()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame, and maybe tensors that did not fit

    # -- a device's thread -------------------------------------------------------------------------

    def _put(self, lane: _Lane, stages: Sequence[Stage]) -> None:
        lane.stages += len(stages)
        for stage in stages:
            queue = self._waiting.setdefault(stage.device, [])
            heappush(queue, (stage.order, next(self._numbers), stage, lane))
            if stage.device not in self._threads:
                name = f"cepbench-{stage.device}"
                thread = threading.Thread(
                    target=self._work, args=(stage.device,), name=name, daemon=True
                )
                self._threads[stage.device] = thread
                thread.start()
        self._changed.notify_all()

    def _work(self, device: str) -> None:
        with suppress(KeyboardInterrupt):  # that of `stop` may come in any line
            while (taken := self._take(device)) is not None:
                stage, lane = taken
                try:
                    following = self._do(stage)
                except BaseException as error:  # noqa: BLE001 - raised on the thread that asked
                    self._fail(error)
                else:
                    self._hand_on(lane, following)

    def _take(self, device: str) -> tuple[Stage, _Lane] | None:
        """The next stage of a device; None when there will be no more."""
        with self._changed:
            while True:
                queue = self._waiting[device]
                if self._stopped:
                    queue[:] = [waiting for waiting in queue if waiting[2].stores]
                    heapify(queue)
                if queue:
                    _, _, stage, lane = heappop(queue)
                    self._changed.notify_all()
                    return stage, lane
                if self._stopped or self._closed:
                    return None
                self._changed.wait()

    def _do(self, stage: Stage) -> Sequence[Stage]:
        if stage.stores:
            return stage.work()
        thread = threading.get_ident()
        with self._changed:
            if self._stopped:
                return ()
            self._working.add(thread)
        try:
            return stage.work()
        finally:
            with self._changed:
                self._working.discard(thread)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._stopped = True
            self._changed.notify_all()

    def _hand_on(self, lane: _Lane, following: Sequence[Stage]) -> None:
        """Queue the stages that can begin now, and count the one that is done."""
        with self._changed:
            for stage in following:
                while stage.bounded and not (self._stopped or self._has_room(stage)):
                    self._changed.wait()
            if not self._stopped:
                self._put(lane, following)
                lane.stages -= 1
                if not lane.stages:
                    self._lanes -= 1
                    self._changed.notify_all()
                return
        for stage in following:
            if stage.stores:
                with suppress(Exception):  # the first error is the one to raise
                    stage.work()

    def _has_room(self, stage: Stage) -> bool:
        waiting = (other for _, _, other, _ in self._waiting.get(stage.device, ()))
        return sum(other.bounded for other in waiting) < _MOST_BOUNDED
