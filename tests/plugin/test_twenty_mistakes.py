"""Twenty mistakes of a first hour: one line each, with what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import Project

MODEL = "--model=shapes:"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["empty", MODEL],
            "nothing was gated: no test below empty takes cep_case. *cepbench init*",
        ),
        (["test_tyo.py", MODEL], "nothing was gated: there is no test_tyo.py.*test_toy.py*"),
        ([MODEL, "-k", "typo"], "nothing was gated: -k, -m or --deselect left out all 10 tests"),
        (["--model=shape:"], "*unknown scheme 'shape'. Did you mean 'shapes'?*"),
        (["--model=/none/checkpoint"], "ERROR: /none/checkpoint: no such folder *"),
        (["--model=shapes:?mis=1"], "*unknown parameter *'mis'. Did you mean 'miss'?*"),
        (["--modell=shapes:"], "*--modell: did you mean --model?*"),
        ([MODEL, "--cep-role=drawer"], "*--cep-role 'drawer': one of describer, generator*"),
        ([MODEL, "--cep-tolerance=much"], "*--cep-tolerance*much*"),
        ([MODEL, "--cep-tolerance=2"], "*tolerance = 2 from --cep-tolerance: *give one below 2"),
        ([MODEL, "--cep-gate=regress"], "*--cep-gate 'regress'*Did you mean 'regression'?*"),
        ([MODEL, "--cep-alpha=2"], "*--cep-alpha*2*"),
        ([MODEL, "--cep-samples=none"], "*--cep-samples*none*"),
        ([MODEL, "--cep-baselines=/none"], "*no such folder. *--snapshot-update*"),
        ([MODEL, "--cep-store=/proc/none"], "*the store /proc/none cannot be used*--cep-store*"),
        ([MODEL, "--cep-data=photos"], "*--cep-data*photos*"),
        ([MODEL, "--cep-data=typo=."], "*typo*"),
        ([MODEL, "--cep-shared=/none"], "*--cep-shared /none: no such folder*"),
        (["--describer=python:none:load"], "ERROR: *none*"),
        ([MODEL, "--cep-inconclusive=ask"], "*--cep-inconclusive 'ask': one of *"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_that_says_what_mends_it(
    accepted: Project, arguments: list[str], line: str
) -> None:
    """No traceback, no case judged, and an exit code that is no pass."""
    Path(accepted.path, "empty").mkdir()
    result = accepted.run_here(*arguments)
    assert result.ret in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
    pytest.LineMatcher([*result.outlines, *result.errlines]).fnmatch_lines([line])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
