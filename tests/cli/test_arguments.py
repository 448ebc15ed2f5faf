"""Mistakes on the command line of `cepbench`: what argparse says, and the nearest name."""

from __future__ import annotations

import pytest

from pytest_cepbench.cli.arguments import parse
from pytest_cepbench.cli.commands import CEPBENCH


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("acept results.json", "accept"),
        ("study sedes suites/shapes", "seeds"),
        ("store stast", "stats"),
        ("doctor suites/shapes --role=descriver", "describer"),
        ("doctor suites/shapes --modle=x", "--model"),
        ("store stats --jsno", "--json"),
    ],
)
def test_a_typo_answers_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], line: str, meant: str
) -> None:
    """Of commands, of their actions and choices, and of options; exit code 2."""
    with pytest.raises(SystemExit) as ended:
        parse(CEPBENCH, line.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f". Did you mean '{meant}'?\n")


def test_what_is_like_nothing_has_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """Argparse's own message stands alone."""
    with pytest.raises(SystemExit):
        parse(CEPBENCH, ["doctor", "suites/shapes", "--zzz"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --zzz\n")
