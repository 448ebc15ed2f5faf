"""The arithmetic behind what a gate costs."""

from __future__ import annotations

import pytest

from benchmarks.gate_cost import (
    TERA,
    Drawing,
    count,
    describing_seconds,
    drawing_table,
    meta,
    visible_table,
)


@pytest.mark.models
def test_matrix_products_are_counted_on_tensors_without_values() -> None:
    """Two operations for each weight and row."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(300, 50, bias=False, device="meta")
    assert count(model, input=meta(7, 300)) == pytest.approx(2 * 7 * 300 * 50 / TERA)


def test_minutes_of_a_gate() -> None:
    """Steps times evaluations, text encoder and decoder once, and as many descriptions."""
    drawing = Drawing("a model", 512, 10, 2, step=1.0, once=5.0)
    assert drawing.total == 25
    describe = describing_seconds(7.1e9, 640, 100.0)
    row = drawing_table([drawing], 100.0).splitlines()[-1]
    assert row.startswith("| a model | 512 | 10 x 2 | 25.0 | 0.25 |")
    assert row.endswith(f"| {192 * 3 * (0.25 + describe) / 60:.1f} min |")


def test_four_times_the_samples_show_half_the_drop() -> None:
    """Nearly: fewer samples also know their spread less well."""
    cells = visible_table().splitlines()[-1].split("|")[2:7]
    visible = [float(cell) for cell in cells]
    assert visible == sorted(visible, reverse=True)
    assert visible[0] / visible[2] == pytest.approx(2, abs=0.1)
