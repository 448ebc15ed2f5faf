"""Pages as text: nothing is wider than the terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_cepbench.cli.output import (
    LONGEST_NAME,
    Section,
    Table,
    short,
    to_text,
)

CELLS = st.text(max_size=60)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Any table of at least two columns."""
    columns = draw(st.integers(2, 8))
    row = st.tuples(*[CELLS] * columns)
    return Table(draw(row), tuple(draw(st.lists(row, max_size=4))))


@given(tables(), st.integers(2 * LONGEST_NAME + 2, 200))
def test_no_line_is_wider_than_the_terminal(table: Table, width: int) -> None:
    """Columns that find no room go below; every line stays printable."""
    text = to_text([Section("title", ("a line " * 40, table))], width)
    lines = text.split("\n")
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30), st.integers(40, 120))
def test_every_cell_of_a_folded_table_is_shown_once(numbers: list[int], width: int) -> None:
    """However many columns there are, each number stands in its own row, in order."""
    table = Table(
        ("model", *(f"v{i}" for i in range(len(numbers)))), (("row", *map(str, numbers)),)
    )
    lines = to_text([Section("t", (table,))], width).splitlines()
    shown = [cell for line in lines if line.startswith("row") for cell in line.split()[1:]]
    heads = [cell for line in lines if line.startswith("model") for cell in line.split()[1:]]
    assert shown == [str(number) for number in numbers]
    assert heads == [f"v{i}" for i in range(len(numbers))]


def test_a_table_in_full() -> None:
    """Names to the left, numbers to the right, as wide as they need."""
    table = Table(
        ("model", "seed 0", "1"), (("small", "0.5", "0.25"), ("a larger one", "1.0", "-"))
    )
    assert to_text([Section("GC@3", ("n = 3", table))], 80) == (
        "GC@3\n\nn = 3\nmodel         seed 0     1\nsmall            0.5  0.25\n"
        "a larger one     1.0     -\n\n"
    )


def test_long_names_lose_their_beginning() -> None:
    """Checkpoints of one run differ at their end."""
    names = [f"checkpoints/a-run-with-a-long-name/step-{step}" for step in (400, 8000)]
    shortened = [short(name) for name in names]
    assert [len(name) for name in shortened] == [LONGEST_NAME] * 2
    assert shortened[0].endswith("/step-400")
    assert shortened[1].endswith("/step-8000")
