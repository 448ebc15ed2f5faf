"""Pytest runs in processes of their own in which the model libraries are imported already.

Imports are most of what a run on tiny checkpoints takes, so one server imports them and every run
is forked from it. This project is not among them: each run imports it anew.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

LIBRARIES = (
    "diffusers.pipelines.auto_pipeline",
    "sentence_transformers",
    "timm",
    "torchvision.transforms",
    "transformers.models.clip.modeling_clip",
    "transformers.models.llama.modeling_llama",
    "transformers.models.llava.modeling_llava",
)

QUIET = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
"""Options of a run whose warnings are errors: a plugin of this environment is among the imports."""


def run_pytest(folder: Path, arguments: Sequence[str], printed: Path) -> int:
    """Run pytest in a folder; what it prints goes to a file. Returns the exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LIBRARIES))
    process = context.Process(
        target=_run, args=(str(folder), list(arguments), str(printed), dict(os.environ))
    )
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(folder: str, arguments: list[str], printed: str, environment: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()  # which is that of the first run
    for name, value in environment.items():
        if not name.startswith(("CEPBENCH_", "PYTEST_")):
            os.environ[name] = value
    with Path(printed).open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    gc.freeze()  # pytest collects garbage several times; the libraries' objects are none
    code = pytest.main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))  # taking the libraries apart takes longer than many a run
