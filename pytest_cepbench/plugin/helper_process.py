"""A helper: grows and reads what the run's cases need and nobody has, until the run lets go of it.

Its order comes over standard input, whose end says that the run is over, however it ended.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from contextlib import suppress

import msgspec

from pytest_cepbench.plugin.evaluator import Evaluator
from pytest_cepbench.plugin.helpers import HelperReport, HelperTask
from pytest_cepbench.plugin.workers.model_identity import IdentityAgreement
from pytest_cepbench.plugin.workers.run_dir import run_folder
from pytest_cepbench.plugin.workers.work_stealing import interrupted


def main() -> None:
    """Work, and tell what was done."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    order: HelperTask = pickle.load(sys.stdin.buffer)  # noqa: S301 # from the process that started this one
    over = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=wait, name="cepbench-over", daemon=True).start()
    settings, folder = order.settings, run_folder(order.settings.home, order.run_id)
    agreement = IdentityAgreement(settings.home, folder, order.name, order.models)
    process = Evaluator(
        settings,
        order.run_id,
        order.started,
        workers=order.processes,
        name=order.name,
        agree=agreement.check,
    )
    try:
        # Whoever judges the case meets the same error and tells it there.
        with suppress(Exception), interrupted(over.is_set):
            for needed in order.needed:
                process.work.enlist(*needed)
            process.work.help()
    except KeyboardInterrupt:
        pass  # by the run, or by its user, who ends both
    told = HelperReport(process.effort, process.told(), list(process.damage))
    with os.fdopen(answer, "wb") as stream:
        stream.write(msgspec.json.encode(told))
    process.close()
    sys.stdout.flush()
    os._exit(0)  # the thread that waits holds standard input


if __name__ == "__main__":
    main()
