"""A helper process: grows and reads chains that the run's cases need and no process has taken.

Its task comes over standard input, whose end says that the run is over, however it ended.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from contextlib import suppress

import msgspec

from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.helpers import HelperReport, HelperTask
from pytest_cepbench.evaluation.model_identity import IdentityAgreement
from pytest_cepbench.evaluation.work_stealing import interrupted


def main() -> None:
    """Work until the run is over, then write a report to standard output."""
    report_file = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no report
    task: HelperTask = pickle.load(sys.stdin.buffer)  # noqa: S301 # from the process that started this one
    over = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=wait, name="cepbench-over", daemon=True).start()
    evaluator = Evaluator(task.context, IdentityAgreement(task.context, task.models).check)
    try:
        # The process that judges the case meets the same error and reports it.
        with suppress(Exception), interrupted(over.is_set):
            for needed in task.needed:
                evaluator.shards.add(*needed)
            evaluator.shards.compute_others()
    except KeyboardInterrupt:
        pass  # by the run, or by its engineer, who ends both
    report = HelperReport(evaluator.usage.total, evaluator.drain_messages(), list(evaluator.damage))
    with os.fdopen(report_file, "wb") as stream:
        stream.write(msgspec.json.encode(report))
    evaluator.close()
    sys.stdout.flush()
    os._exit(0)  # the thread that waits holds standard input


if __name__ == "__main__":
    main()
