"""Suite files: read as written, refused by name, changed in place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains.chain import CaptionRules
from pytest_cepbench.errors import SuiteError, did_you_mean, nearest_name, unknown_name
from pytest_cepbench.measures.chain_similarity import SimilarityTable
from pytest_cepbench.suites.definition import (
    CaseTable,
    GateTable,
    load_suite,
)
from tests.plugin.project import SHAPES
from tests.suites.world import read_suite

GATE = 'gate = "threshold"'


def test_a_suite_is_read_as_written(tmp_path: Path) -> None:
    """Names, plan and policies are the file's; what is left out has the documented default. Both
    chains have one length and one wording: generations count single steps, odd numbers too, and the
    text-first chain is named first. A chain of one drawing needs no describer.
    """
    suite = read_suite(tmp_path, SHAPES)
    assert (suite.name, suite.folder) == ("toy", tmp_path)
    (plan,) = suite.plans.values()
    assert list(suite.plans) == ["image"]
    assert (plan.start, plan.iterations, plan.seed) == ("image", 2, 0)
    assert (plan.describe, plan.generate) == ("describe", "{description}")
    assert suite.table.gate == GateTable("threshold", 0.01, alpha=0.05)
    assert suite.table.chain.seeds == 1
    text = SHAPES.replace("iterations = 2", 'start = "both"\ngenerations = 5\nseed = 3')
    text = text.replace('"describe"', '"describe"\nclean = true\nmax_words = 70')
    suite = read_suite(tmp_path, text)
    assert list(suite.plans) == ["text", "image"]
    for start, plan in suite.plans.items():
        assert (plan.start, plan.generations, plan.iterations, plan.seed) == (start, 5, 2, 3)
        assert plan.caption_rules == CaptionRules(clean=True, max_words=70)
    text = SHAPES.replace("iterations = 2", 'start = "text"\ngenerations = 1')
    text = text.replace('describe = "describe"', "").replace("[metrics.gc]\n", "")
    (plan,) = read_suite(tmp_path, text).plans.values()
    assert (plan.describes(1), plan.describe) == (False, "")


def test_a_metric_is_read_by_its_kind(tmp_path: Path) -> None:
    """Its table's name, or `kind` under a name of its own; encoders and presets stand beside it."""
    more = """\
[metrics.late]
kind = "gc"
at = 1
pool = "samples"
[encoders]
other = "shapes:"
[presets.sketch]
model = "shapes:"
parameters = { miss = 0.1, fast = true, steps = 4, note = "x" }
"""
    suite = read_suite(tmp_path, SHAPES + more)
    late = suite.metrics["late"]
    assert (late.kind, late.pool, late.tolerance) == ("gc", "samples", None)
    assert isinstance(late, SimilarityTable)
    assert (late.at, late.encoder) == (1, "encoder")
    assert suite.table.encoders == {"other": "shapes:"}
    assert suite.table.presets["sketch"].parameters["fast"] is True


def test_every_word_of_the_gate_is_read(tmp_path: Path) -> None:
    """Of the suite, of a metric, of a single case; what they are worth is `claim_of`'s business."""
    text = SHAPES.replace("[chain]", "[chain]\nseeds = 3").replace(
        "[metrics.gc]", '[metrics.gc]\nweight = 2\ngate = "regression"'
    )
    gate = """\
gate = "noninferiority"
tolerance = 0.5
anchor_tolerance = 0.75
alpha = 0.1
primary = ["gc", "color/*"]
pooled = true"""
    case = """\
[cases."color/gc"]
tolerance = 0.0
anchor_tolerance = 0.0
alpha = 0.5
gate = "regression"
weight = 0.5
"""
    suite = read_suite(tmp_path, text.replace(GATE, gate) + case)
    assert suite.table.gate == GateTable(
        "noninferiority", 0.5, 0.75, 0.1, ["gc", "color/*"], pooled=True
    )
    assert suite.table.cases == {"color/gc": CaseTable(0.0, 0.0, 0.5, "regression", 0.5)}
    metric = suite.metrics["gc"]
    assert (metric.weight, metric.gate) == (2.0, "regression")
    assert suite.table.chain.seeds == 3


NUMBERS = [
    ("tolerance", ["-0.1", "-1e-9", "nan", "inf"], "a number of at least 0"),
    ("anchor_tolerance", ["-0.1", "nan", "inf"], "a number of at least 0"),
    ("alpha", ["0.0", "1.0", "0.51", "-1.0", "nan", "inf"], "a number over 0 and at most 0.5"),
    ("weight", ["0.0", "-1.0", "nan", "inf"], "a number over 0"),
]

PLACES = {
    "gate": (f"{GATE}\n{{}}", r"\[gate\]: ", {"tolerance", "anchor_tolerance", "alpha"}),
    "case": (f"{GATE}\n[cases.'x/gc']\n{{}}", "case 'x/gc': ", {name for name, *_ in NUMBERS}),
    "metric": (
        f"{GATE}\n[metrics.s]\n{{}}",
        "metric 's': ",
        {"tolerance", "anchor_tolerance", "weight"},
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [(name, value, expected) for name, values, expected in NUMBERS for value in values],
)
def test_a_number_out_of_its_range_is_named(
    tmp_path: Path, place: str, name: str, value: str, expected: str
) -> None:
    """With the table, what was given and what is expected; where a table has none, by the field."""
    table, where, fields = PLACES[place]
    text = SHAPES.replace(GATE, table.format(f"{name} = {value}"))
    shown = float(value)
    message = f"{where}{name} is {expected}, got {shown}" if name in fields else f"field `{name}`"
    with pytest.raises(SuiteError, match=message):
        read_suite(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 1\ncolour = 2", "unknown field `colour`"),
        (GATE, "tolerence = 0.1", "Did you mean 'tolerance'"),
        (GATE, 'gate = "treshold"', "Did you mean 'threshold'"),
        ("[metrics.gc]", "[metrics.gc]\nencodr = 'x'", "Did you mean 'encoder'"),
        ("[metrics.gc]", "[metrics.gc-fid]\n[metrics.gc]", "Did you mean 'gc_fid'"),
        ("[metrics.gc]", "[cases.'color/gc']\nwieght = 2\n[metrics.gc]", "Did you mean 'weight'"),
        ("version = 1\n", "", "missing required field `version`"),
        ('name = "toy"', 'name = "My Suite"', "name = 'My Suite': lower-case letters, digits"),
        ("iterations = 2", "iterations = 0", "chain.iterations = 0: 1 to 10,000 are expected"),
        ("iterations = 2", "iterations = 30000", "chain.iterations = 30000: 1 to 10,000 are"),
        ("iterations = 2", 'start = "smell"', r"Invalid enum value 'smell' - at `\$.chain.start`"),
        ('describe = "describe"', 'describe = ""\ngenerate = "draw"', "'draw' does not hold {desc"),
        ("[metrics.gc]", "[metrics.gcc]", "unknown metric 'gcc'. Did you mean 'gc'?"),
        ("[metrics.gc]\n[metrics.failures]\ntolerance = 0.0", "[metrics]", "no metric under"),
        ("[chain]", "[groups]\noverall = ['color']\n[chain]", "group 'overall' is reserved or"),
        ("[chain]", "[groups]\nnone = []\n[chain]", "group 'none' is reserved or empty"),
        ("[chain]", "[groups]\n' ' = ['color']\n[chain]", "group ' ' is reserved or empty"),
        ("[metrics.gc]", "[metrics.gc]\nalpha = 0.1", "metric 'gc': .* unknown field `alpha`"),
        ("[metrics.gc]", "[metrics.verdict]\nkind = 'gc'", "metric 'verdict': the name belongs to"),
        ("iterations = 2", "seeds = 0", "chain.seeds = 0: 1 to 10,000 are expected"),
        ("[chain]", "[chain", "suite.toml"),
        ("iterations = 2", "iterations = 2\ngenerations = 4", "two names of one length: give one"),
        ("iterations = 2", "generations = 0", "chain.generations = 0: 1 to 10,000"),
        (
            '"describe"',
            '"describe"\nmax_words = 0',
            "prompts.max_words = 0: at least 1 is expected",
        ),
        ('describe = "describe"', "", "prompts.describe is missing: the chains of this suite are"),
        (
            "[metrics.gc]",
            "[encoders]\nencoder = 'x'\n[metrics.gc]",
            "encoder 'encoder' is the name",
        ),
        ("[metrics.gc]", "[encoders]\n'A B' = 'x'\n[metrics.gc]", "encoder 'A B' is the name of a"),
        ("[metrics.gc]", "[metrics.'G C']\nkind='gc'", "metric 'G C': lower-case letters, digits"),
        ("[metrics.gc]", "[metrics.gc]\nat = 'two'", "metric 'gc': Expected `int . null`"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Unknown keys, metrics and values, and texts that are no TOML, raise SuiteError by name."""
    assert old in SHAPES
    with pytest.raises(SuiteError, match=message) as caught:
        read_suite(tmp_path, SHAPES.replace(old, new))
    assert str(tmp_path / "suite.toml") in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing files, folders and bytes that are no UTF-8 are explained as well."""
    with pytest.raises(SuiteError, match="cannot be read: No such file"):
        load_suite(tmp_path / "suite.toml")
    with pytest.raises(SuiteError, match="cannot be read: Is a directory"):
        load_suite(tmp_path)
    (tmp_path / "suite.toml").write_text(SHAPES, encoding="utf-16")
    with pytest.raises(SuiteError, match=r"suite\.toml': not UTF-8 at byte 0: save it as UTF-8"):
        load_suite(tmp_path / "suite.toml")
    (tmp_path / "suite.toml").write_text(SHAPES, encoding="utf-8-sig")  # as Windows' editor does
    assert load_suite(tmp_path / "suite.toml").name == "toy"


@given(st.binary(max_size=200))
def test_no_bytes_escape_as_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """Whatever is in the file, reading it gives a suite or SuiteError."""
    path = tmp_path_factory.getbasetemp() / "suite.toml"
    path.write_bytes(data)
    with pytest.raises(SuiteError):
        load_suite(path)


def test_the_nearest_name() -> None:
    """Upper and lower case are alike; what is like nothing has none."""
    assert nearest_name("GC_fid", ["gc", "gc_fid"]) == "gc_fid"
    assert nearest_name("zebra", ["gc", "gc_fid"]) is None
    assert nearest_name("encoders", ["encoder", "decoder"], cutoff=0.99) is None
    many = [f"train2017/{number:012}.jpg" for number in range(50_000)]  # which took ten seconds
    assert nearest_name(f"{many[49_000]}x", many) == many[49_000]
    assert did_you_mean("zebra", ["gc"]) == did_you_mean("gc", ["gc", "gcc"]) == ""
    assert unknown_name("metric", "gcs", ["s", "gc"]) == (
        "unknown metric 'gcs'. Did you mean 'gc'? Known: gc, s."
    )
