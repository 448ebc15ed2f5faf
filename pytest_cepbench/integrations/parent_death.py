"""A plugin of the gate's own pytest: the process ends when the training that started it is gone.

Loaded with `-p`. A training that is killed cannot end its gate, which would go on to use a device
and to write into the folder in which the restarted training gates. The kernel counts the thread
that started the process: a training in a thread takes its gate along when that thread ends.
"""

from __future__ import annotations

import ctypes
import os
import signal

PARENT = "PYTEST_CEPBENCH_PARENT"
"""Environment variable with the process id of the training."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def pytest_load_initial_conftests() -> None:
    """Have the kernel kill this process when its parent ends, as early as pytest can be told to."""
    parent = os.environ.pop(PARENT, None)
    if parent is None:  # an xdist worker: it ends with its controller
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # gone before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
