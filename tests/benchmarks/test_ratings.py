"""The scripts behind the figures on ratings: they run, and the documentation has theirs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import rating_sizes

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_server_is_measured() -> None:
    """At a small size: votes of all people, near the end too, and the operator's page."""
    pytest.importorskip("starlette")
    command = [sys.executable, "-m", "benchmarks.rating_server", "--dry-run", "--items=200"]
    ended = subprocess.run(
        [*command, "--annotators=2", "--votes=2"],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    figures = json.loads(ended.stdout)
    assert figures["votes given before"] == 2 * 194
    assert figures["at the start"]["all at once"]["replies"] == 4


@pytest.mark.parametrize("rate", rating_sizes.WIN_RATES)
def test_drawn_verdicts_have_the_win_rate(rate: float) -> None:
    """Ties are as frequent as people's, and count one half."""
    win, tie, loss = rating_sizes.probabilities(rate)
    assert win + tie / 2 == pytest.approx(rate)
    assert tie == pytest.approx((709 + 605) / 4302)
    assert min(win, tie, loss) > 0


def test_the_documentation_shows_the_measured_sizes() -> None:
    """Each cell of the table is one of the figures, and a figure is what the script makes today."""
    document = json.loads((rating_sizes.RESULTS / "rating_sizes.json").read_text(encoding="utf-8"))
    rows = {(row["win rate"], row["items"]): row for row in document["rows"]}
    page = (ROOT / "docs" / "people.md").read_text(encoding="utf-8")
    for size in rating_sizes.SIZES:
        shown = re.search(rf"^\| {size} \| (.*) \|$", page, re.MULTILINE)
        assert shown is not None
        even, small, large = (rows[rate, size] for rate in (0.5, 0.55, 0.6))
        assert shown[1].split(" | ") == [
            f"{even['half width']:.3f}".lstrip("0"),
            f"{100 * even['bets decided']:.1f} %",
            f"{100 * small['not 1/2']:.1f} %",
            f"{100 * large['not 1/2']:.1f} %",
        ]
    assert rating_sizes.figures(0.6, 50) == rows[0.6, 50]
