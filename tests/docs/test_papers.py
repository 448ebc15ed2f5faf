"""docs/papers.md: its figures are those of the tests of published tables, which it names."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_cepbench.metrics.correlation import Method, correlation
from tests.docs.markdown import DOCS, ROOT, tables
from tests.metrics.published import test_genception as genception
from tests.metrics.published import test_geneval as geneval
from tests.metrics.published import test_mmgenbench as mmgenbench
from tests.metrics.published import test_opening as opening
from tests.metrics.published.tables import load

PAGE = DOCS / "papers.md"

METHODS: tuple[Method, ...] = ("pearson", "spearman")

PUBLISHED = ROOT / "tests" / "metrics" / "published"


def _numbers(cells: list[str]) -> list[float]:
    return [float(cell.removesuffix(" %")) for cell in cells]


def test_files_of_the_page_are_there() -> None:
    """Each file of printed figures belongs to a section of the page; paths in commands exist."""
    text = PAGE.read_text(encoding="utf-8")
    for path in PUBLISHED.glob("*.csv"):
        assert path.stem.partition("_")[0] in text.lower()
    named = set(re.findall(r"suites/[\w/.-]+", text))
    assert named
    assert all(Path(ROOT, name.partition("::")[0]).exists() for name in named)


def test_cells_that_are_printed_wrong() -> None:
    """Printed and recomputed, in the order of the page."""
    (rows,) = tables(PAGE, "Cells that are printed wrong")
    shown = {(row[0], row[1], row[2]): tuple(_numbers(row[3:5])) for row in rows}
    table = genception.TABLE_2.rows
    expected: dict[tuple[str, str, str], tuple[float, float]] = {}
    for score, group, model, words in (
        ("MME", "Visual", "LLaVA-13B", "MME, mean of the visual categories"),
        ("MME", "Overall", "Claude3-Opus", "MME, overall mean"),
        ("MME", "Overall", "LLaVA-13B", "MME, overall mean"),
        ("GC_FID@3", "Overall", "LLaVA-7B", "GC_FID@3, overall mean"),
    ):
        column = genception.MODELS.index(model)
        members = {row: table[score, row] for row in genception.GROUPS[group]}
        mean = genception.printed(genception.means(members)[column], 1)
        cell = table[score, f"{group} Mean"][column]
        expected["GenCeption", "2", f"{words}, {model}"] = (cell, mean)
    expected["GenCeption", "2", "MME, visual rank, LLaVA-7B"] = (5, 4)
    rows_of_table_4 = genception.categories_of_table_4("DALL-E 3")
    mean = genception.printed(genception.means(rows_of_table_4)[4], 3)
    cell = genception.TABLE_4.rows["DALL-E 3", "Overall Mean"][4]
    expected["GenCeption", "4", "GC@1, overall mean, mPLUG-Owl2"] = (cell, mean)
    cell = genception.TABLE_5.rows[("Overall Mean",)][8]
    expected["GenCeption", "5", "overall gap of people"] = (cell, 13.5326)
    spread = mmgenbench.TABLE_14.rows[("Eagle-X5-13B",)]
    expected["MMGenBench", "14", "range, Eagle-X5-13B"] = (
        spread[4],
        round(spread[3] - spread[2], 4),
    )
    expected["MMGenBench", "6", '"at most 0.004" from Table 1, for FID'] = (0.004, 0.0181)
    printed = load("opening_3", words=2).rows["gpt4o", "decided"][1:]
    computed = opening.COMPUTED["gpt4o", "decided"][1:]
    for words, cell, mean in zip(
        ("seen models", "unseen models", "harmonic mean"), printed, computed, strict=True
    ):
        expected["OpenING", "3", f"GPT-4o, without ties, {words}"] = (cell, mean)
    assert shown == expected


def test_overall_means_of_genception() -> None:
    """Printed and recomputed, for each model."""
    means, _, correlations = tables(PAGE, "GenCeption")
    shown = {row[0]: _numbers(row[1:]) for row in means}
    for score, decimals in genception.DECIMALS.items():
        rows = {row: genception.TABLE_2.rows[score, row] for row in genception.CATEGORIES}
        result = [genception.printed(mean, decimals) for mean in genception.means(rows)]
        assert shown[f"{score}, recomputed"] == result
        in_table = genception.TABLE_2.rows[score, "Overall Mean"].tolist()
        assert shown[f"{score}, printed"] == in_table
    for benchmark, *coefficients in correlations:
        columns = genception.LEADERBOARDS["GC@3"], genception.LEADERBOARDS[benchmark]
        for method, shown_text in zip(METHODS, coefficients, strict=True):
            result_of = correlation(*columns, method)
            assert result_of is not None
            assert f"{result_of.value:.3f}" == shown_text


def test_what_people_say_of_geneval() -> None:
    """Evaluator and people, for each model."""
    (rows,) = tables(PAGE, "Semantic Drift Protocol")
    assert {row[0]: _numbers(row[1:3]) for row in rows} == {
        model: [geneval.GENEVAL_PRINTS[model], overall]
        for model, (_, overall) in geneval.MAJORITIES.items()
    }


def test_averages_of_mmgenbench() -> None:
    """Of the tables over generators and encoders."""
    (rows,) = tables(PAGE, "MMGenBench")
    shown = {row[1]: row[2] for row in rows}
    for words, averages in (
        ("averages of Tables 9 to 12", mmgenbench.TABLE_13),
        ("averages of Tables 16 to 19", mmgenbench.IN_C_6),
    ):
        assert _numbers(shown[words].split(", ")) == [*averages.values()]


def test_panels_of_opening() -> None:
    """Win rates of people, and agreements as printed and corrected."""
    _, panel, agreements = tables(PAGE, "OpenING")
    table = load("opening_2", words=2).rows
    rows = [row for row in table if row[0] == "human"]
    forced = [float(table[row][0]) for row in rows]
    assert [_numbers(row[1:]) for row in panel] == [forced, forced]
    head = next(line for line in PAGE.read_text().splitlines() if line.startswith("| | Human |"))
    assert [cell.strip() for cell in head.strip("|").split("|")][1:] == [row[1] for row in rows]

    printed = load("opening_3", words=2).rows
    for place, key in enumerate(printed):
        first, second = agreements[2 * place : 2 * place + 2]
        assert _numbers(first[2:]) == printed[key].tolist()
        assert _numbers(second[2:]) == opening.CORRECTED[key[0], key[1]]
