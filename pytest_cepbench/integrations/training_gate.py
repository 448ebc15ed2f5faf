"""A gate in a training loop: when it runs, what its verdicts mean for the training.

    with TrainingGate(Gate("runs/1/gate", "suites/shapes"), every=500) as training_gate:
        for step, batch in enumerate(loader, start=1):
            ...
            if training_gate.step(step, save=model.save_pretrained):
                break

Leaving the block waits for the last verdict, and raises TrainingStoppedError where a checkpoint did
not pass. In a distributed training every rank makes the same calls: rank 0 gates, and all of them
stop at the same step, wherever torch.distributed is initialized, whoever did it: transformers,
Lightning, accelerate or the training itself. Elsewhere there is one rank.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from pytest_cepbench.errors import TrainingGateError, TrainingStoppedError, unknown_name
from pytest_cepbench.integrations.gate import Gate, GateRun
from pytest_cepbench.integrations.gate_folder import Submission
from pytest_cepbench.integrations.tracking import LOGGER, Tracker, track
from pytest_cepbench.integrations.verdict import GateVerdict, Outcome

When = Literal["between", "beside"]
StopOn = Literal["regressed", "inconclusive", "never"]
OnError = Literal["stop", "warn"]


@dataclass
class TrainingGate:
    """Gates the checkpoints of a training loop, and tells the loop when to stop.

    gate: what is run on a checkpoint.
    every: steps between two gates; None: each checkpoint that is saved.
    when: `between` steps, while the training waits; or `beside` it, in the background: the verdict
        is taken at the first step after it is there, and the end of the training waits for it. One
        checkpoint is gated at a time; the newest of those that come meanwhile waits.
    stop_on: outcomes that stop the training: `regressed`; `inconclusive`, which means both; or
        `never`.
    on_error: where a checkpoint could not be measured: `stop` the training, or `warn` and go on.
    start: the model that the training starts from, as a path or a spec: where nothing is accepted
        yet, it is gated before the first step, and the first checkpoint is held to it. Without it
        the first checkpoint is accepted, however bad it is.
    trackers: get the numbers and texts of each verdict; None: every run of W&B or MLflow that is
        active in this process.
    verdicts: of this training so far, in the order in which they came.
    stopped: the verdict that stops the training, None while there is none.
    Raises TrainingGateError for settings that do not exist.
    """

    gate: Gate
    every: int | None = None
    when: When = "between"
    stop_on: StopOn = "regressed"
    on_error: OnError = "stop"
    trackers: Sequence[Tracker] | None = None
    start: str | Path | None = None
    verdicts: list[GateVerdict] = field(default_factory=list, init=False)
    stopped: GateVerdict | None = field(default=None, init=False)
    _begun: bool = field(default=False, init=False, repr=False)
    _run: GateRun | None = field(default=None, init=False, repr=False)
    _queue: list[Submission] = field(default_factory=list, init=False, repr=False)
    _busy: bool = field(default=False, init=False, repr=False)
    _last: tuple[int, str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, kind in (("when", When), ("stop_on", StopOn), ("on_error", OnError)):
            given = getattr(self, name)
            if given not in get_args(kind):
                raise TrainingGateError(unknown_name(name, str(given), get_args(kind)))
        if self.every is not None and self.every < 1:
            raise TrainingGateError(
                f"every={self.every}: a number of steps of at least 1 is expected"
            )

    # -- the calls of a loop, by every rank --------------------------------------------------------

    def begin(self, step: int = 0) -> bool:
        """Begin or resume a training; without this call its first step does it.

        A checkpoint that the process before was gating is gated again.

        step: that the training starts from; 0 for a new one.
        Returns whether to stop. Raises TrainingStoppedError where the gate stopped this training at
        an earlier step than it now starts from.
        """
        self._begun, self.stopped, self._last = True, None, None
        return self._look(lambda: self._resume(step))

    def due(self, step: int) -> bool:
        """Whether a checkpoint of this step is to be gated."""
        return self.every is None or step % self.every == 0

    def step(self, step: int, save: Callable[[Path], object] | None = None) -> bool:
        """Tell that a step of the training is done.

        step: from 1.
        save: writes the model as a folder that pytest can load, into the empty folder that it is
            given; called by every rank, in the steps that are due.
        Returns whether to stop. Raises TrainingGateError where the gate cannot run (`on_error`) and
        where `save` calls sys.exit().
        """
        if not self._begun and self.begin(step - 1):
            return True
        submission = Submission("", f"step-{step}", step, local=True)
        if save is None or not self.due(step) or not self._is_new(step, submission.name):
            return self.look()
        try:
            folder = self._ranks.on_first(lambda: self.gate.files.begin_copy(submission.name))
        except TrainingGateError as error:
            self._raise_or_warn(error)
            return self.look()
        try:
            save(folder)
        except SystemExit as leaving:  # the script would end without a verdict, perhaps with 0
            raise TrainingGateError(
                f"the checkpoint of step {step} was not saved: save called sys.exit()"
            ) from leaving
        self._ranks.wait_for_all()  # until every rank has written its part
        return self._look(lambda: self._add(self.gate.files.end_copy(submission)))

    def submit(self, step: int, checkpoint: str | Path) -> bool:
        """Gate a checkpoint that the training saved. A checkpoint is gated once in its step.

        Returns whether to stop. Raises as `step` does.
        """
        if not self._begun and self.begin(step):
            return True
        if not self._is_new(step, str(checkpoint)):
            return self.look()
        self._ranks.wait_for_all()  # until every rank has written its part
        return self._look(lambda: self._add(self.gate.submit(checkpoint, step)))

    def look(self, *, wait: bool = False) -> bool:
        """Take the verdicts that are there; costs nothing while no checkpoint is being gated.

        wait: until all checkpoints have theirs.
        Returns whether to stop. Raises as `step` does.
        """
        if self._busy:
            return self._look(lambda: self._advance(wait=wait))
        return self.stopped is not None

    def finish(self) -> None:
        """End the training: wait for the last verdicts.

        Raises TrainingStoppedError, whose text is for the engineer who finds the training stopped.
        """
        try:
            self.look(wait=self.stopped is None)
        finally:
            self.close()
        if self.stopped is not None:
            raise TrainingStoppedError(self.stopped.summary, self.stopped.code)
        if not self.verdicts:
            LOGGER.warning("gate: the training ends, and no checkpoint of it was gated")

    def close(self) -> None:
        """End a gate that still runs; the next process of this training runs it again."""
        if self._run is not None:
            self._run.close()
        self._run, self._busy, self._queue = None, False, []

    def leave(self, error: BaseException | None) -> None:
        """End the training as `finish` does, or as `close` does where it failed.

        error: what ends it. A `sys.exit()` that says success ends it as if there were none.
        """
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finish()
        else:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.leave(error)

    # -- what rank 0 does --------------------------------------------------------------------------

    @cached_property
    def _ranks(self) -> Ranks:
        return current_ranks()

    def _look(self, act: Callable[[], None]) -> bool:
        """Act on rank 0, and have every rank know what came of it."""

        def acted() -> tuple[list[GateVerdict], bool]:
            known = len(self.verdicts)
            try:
                act()
            except TrainingGateError as error:
                self._raise_or_warn(error)
            return self.verdicts[known:], self._run is not None

        new, self._busy = self._ranks.on_first(acted)
        if self._ranks.rank != 0:
            self.verdicts.extend(new)
        for verdict in new:
            if self.stopped is None and self._stops(verdict):
                self.stopped = verdict
        return self.stopped is not None

    def _is_new(self, step: int, name: str) -> bool:
        """Whether a checkpoint was not submitted before in its step, and the training goes on."""
        last, self._last = self._last, (step, name)
        return self.stopped is None and self._last != last

    def _raise_or_warn(self, error: TrainingGateError) -> None:
        """What a gate that cannot run means for the training."""
        if self.on_error == "stop":
            raise error
        LOGGER.warning("gate: %s", error)

    def _resume(self, step: int) -> None:
        state = self.gate.files.load()
        stopped = state.stopped
        if stopped is not None and self.stop_on != "never" and step >= (stopped.step or 0):
            raise TrainingStoppedError(
                f"the gate stopped this training at step {stopped.step}, and it starts from step "
                f"{step}: start from the last accepted checkpoint, "
                f"{self.gate.files.standing(state.accepted) or 'none'}, give a new training a new "
                'folder, or set stop_on="never"',
                1,
            )
        self._queue = []
        for each in (state.running, *state.waiting):
            if each is not None and self.gate.files.exists(each):
                self._queue.append(each)
            elif each is not None:
                LOGGER.warning("gate: %s was to be gated and is gone", each.given)
        if self.start is not None and state.accepted is None and not self._queue:
            self._queue = [self.gate.submit(self.start, 0)]
        self.gate.files.change(running=None, waiting=tuple(self._queue), stopped=None)
        self._advance(wait=self.when == "between")

    def _add(self, submission: Submission) -> None:
        """Gate a checkpoint now, or have it wait in the place of the one that waits."""
        self._advance(wait=False)
        self._queue = [submission]
        if self._run is not None:
            self.gate.files.change(waiting=(submission,))
            self.gate.files.prune()  # of a copy that another one replaces
        self._advance(wait=self.when == "between")

    def _advance(self, *, wait: bool) -> None:
        """Take the verdict of the run, and start on the first checkpoint that waits."""
        while self._run is not None or self._queue:
            if self._run is None:
                following, *self._queue = self._queue
                self._run = GateRun(self.gate, following)
                self.gate.files.change(waiting=tuple(self._queue))
            try:
                verdict = self._run.wait() if wait else self._run.poll()
            except BaseException:
                self.close()
                raise
            if verdict is None:
                return
            submission = self._run.submission
            self._run.close()
            self._run = None
            self.verdicts.append(verdict)
            failed, stops = verdict.outcome is Outcome.FAILED, self._stops(verdict)
            if stops:  # before trackers, which are the user's code and may be interrupted
                self._queue = []
                self.gate.files.change(stopped=None if failed else submission, waiting=())
            fine = verdict.outcome is Outcome.ACCEPTED
            (LOGGER.info if fine else LOGGER.warning)("%s", verdict.line)
            if failed and not stops:
                LOGGER.warning("%s", verdict.output)
            track(verdict, self.trackers)

    def _stops(self, verdict: GateVerdict) -> bool:
        if verdict.outcome is Outcome.FAILED:
            return self.on_error == "stop"
        if verdict.outcome is Outcome.ACCEPTED or self.stop_on == "never":
            return False
        # A run that was told to fail for an inconclusive case failed as for a regressed one.
        return verdict.code != 0 or self.stop_on == "inconclusive"


T = TypeVar("T")

_PATIENCE = timedelta(days=7)  # a gate may take longer than the training's collectives may


@dataclass(frozen=True)
class Ranks:
    """The ranks of this training.

    rank: of this process; 0 acts.
    group: process group for objects on the CPU; None where there is one rank.
    """

    rank: int = 0
    group: Any = None

    def on_first(self, act: Callable[[], T]) -> T:
        """Act on rank 0 and return the result on every rank, which all of them must call.

        act: its result is pickled. What it raises is raised on rank 0; the others raise a
        TrainingGateError with the same text.
        """
        if self.group is None:
            return act()
        import torch.distributed as dist

        box: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.rank == 0:
            try:
                box[0] = act()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised below
                failure, box[1] = error, str(error)
        dist.broadcast_object_list(box, src=0, group=self.group)
        if failure is not None:
            raise failure
        if box[1] is not None:
            raise TrainingGateError(f"on rank 0: {box[1]}")
        result: T = box[0]
        return result

    def wait_for_all(self) -> None:
        """Wait until every rank is here."""
        if self.group is not None:
            import torch.distributed as dist

            dist.barrier(group=self.group)


def current_ranks() -> Ranks:
    """The ranks of this training; every one of them must call it, since it makes a group.

    The group has a limit of time of its own: while one rank gates, the others wait for longer than
    the training's own collectives may (`ddp_timeout`).
    """
    if "torch" not in sys.modules:
        return Ranks()
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return Ranks()
    group = (
        dist.new_group(backend="gloo", timeout=_PATIENCE)
        if dist.is_gloo_available()
        else dist.group.WORLD
    )
    return Ranks(dist.get_rank(), group)
