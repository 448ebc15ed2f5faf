"""A local checkpoint as the judge of a user's own test, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import Project
from tests.tiny.common import JUDGE_WORDS

pytest.importorskip("torch", reason="local judges need the [models] extra")
pytest.importorskip("transformers", reason="local judges need the [models] extra")

pytestmark = [pytest.mark.models, pytest.mark.slow]

JUDGING = """\
from PIL import Image
from pytest_cepbench import Battle

def test_the_judge_has_an_opinion(cep_judge):
    image = Image.new("RGB", (40, 40), "red")
    (reply,) = cep_judge.judge([Battle(["a", image], ["red", image], ["blue"])], [0])
    assert reply.value in ("A", "Tie(A)", "Tie(B)", "B")
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A judge, and a model without words for a verdict.

    Built before a project is: what is imported later is forgotten after a test, and torch can be
    imported only once.
    """
    from tests.tiny.describers import build_llava

    folder = tmp_path_factory.mktemp("checkpoints")
    judge = build_llava(folder / "judge", words=JUDGE_WORDS)
    return judge, build_llava(folder / "speechless")


def test_a_checkpoint_judges_where_it_is_named_as_the_judge(
    checkpoints: tuple[Path, Path], project: Project
) -> None:
    """`--judge=FOLDER` is enough; what has no words for a verdict is one line."""
    judge, speechless = checkpoints
    project.write("test_own.py", JUDGING)

    assert project.run(f"--judge={judge}?device=cpu&max_pixels=900").ret == pytest.ExitCode.OK
    result = project.run(f"--judge={speechless}?device=cpu")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*has the same tokens for several of the verdicts*"])
