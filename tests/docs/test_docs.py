"""Names in the documentation exist, and the reference has all of them, as the package has them."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import tomllib
from importlib import util
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from PIL import Image

import pytest_cepbench
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS
from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.datasets.shapes.arena import (
    CRITERIA,
    TASKS,
    TRUTH_VERSION,
    VOCABULARY,
    WEIGHTS,
)
from pytest_cepbench.datasets.shapes.arena import solver as arena_solver
from pytest_cepbench.datasets.sources.hub import PARAMETERS as LOCATION_PARAMETERS
from pytest_cepbench.evaluation.settings import OPTIONS
from pytest_cepbench.gate import PRESENTATIONS, Verdict
from pytest_cepbench.gate.measurement import Measurement
from pytest_cepbench.measures.base import SuiteContext
from pytest_cepbench.measures.measure_registry import KINDS, make_measures, read_table
from pytest_cepbench.models.serving.engines import ENGINES
from pytest_cepbench.models.spec import SCHEMES
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.plugin.collection import CepMark
from pytest_cepbench.ratings.records import Vote
from pytest_cepbench.store import Store
from tests.docs.markdown import DOCS, EXAMPLES, PAGES, ROOT, anchors, blocks, column, tables

REFERENCE = DOCS / "reference.md"
SUITES = DOCS / "suites.md"
JUDGES = DOCS / "judges.md"
PEOPLE = DOCS / "people.md"

# Of the examples' own models and of the placeholders that stand for a parameter.
_EXAMPLE_PARAMETERS = {"color_blind", "name", "path", "beams", "side"}

# Of preset: and replay:, which are no models by themselves.
_SCHEME_PARAMETERS = {"model", "layout"}

# Of pytest, syrupy, xdist and pip, which the pages mention beside the project's own.
_FOREIGN_OPTIONS = {
    "--snapshot-update", "--snapshot-update-new-only", "--junitxml", "--maxfail", "--dist", "--tx",
    "--setup-only", "--setup-plan", "--collect-only", "--fixtures", "--markers", "--lf",
    "--no-summary", "--hypothesis-profile", "--forked", "--deselect", "--ignore", "--pyargs",
    "--group", "--strict", "--version", "--help", "--pilot",
    "--cep", "--against", "--repeats", "--quick", "--part", "--page", "--power",  # of benchmarks
    "--seconds", "--rank",
    "--speed", "--size", "--minutes", "--write", "--checkpoints", "--read", "--jobs", "--rows",
    "--of", "--list", "--amount", "--gate", "--from", "--steps", "--save", "--spoil-at", "--device",
    "--batch", "--verdict", "--contrast", "--features", "--ranking", "--helpers", "--resume",
    "--order", "--people", "--until",  # of the scripts in reference/
    "--job-name", "--dependency", "--gres", "--time", "--output", "--nodes", "--exclude",  # SLURM
    "--ntasks-per-node", "--gpus-per-node", "--cpus-per-task", "--address", "--min-nodes",
    "--message", "--fill", "--invert-paths", "--path", "--create", "--force",  # of git and gh
    "--file", "--tag", "--rm", "--volume", "--build-arg",  # of docker
    "--served-model-name", "--port", "--silent", "--fail", "--omni", "--model-path", "--dtype",
}  # fmt: skip

_DECLARED = [
    *sorted(path for path in EXAMPLES.rglob("*") if path.suffix in (".yml", ".toml")),
    ROOT / "reference" / "training-gate.yml",
]


def _script(path: Path) -> ModuleType:
    spec = util.spec_from_file_location(f"{path.stem}_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GENERATE = _script(DOCS / "generate.py")


@pytest.mark.parametrize("name", GENERATE.PAGES)
def test_tables_are_those_of_the_package(name: str) -> None:
    """Writing them again changes nothing: `python docs/generate.py` writes what differs. No row of
    a table lacks its meaning.
    """
    page = (DOCS / name).read_text(encoding="utf-8")
    assert GENERATE.filled(page) == page
    for table in re.findall(r"<!-- generated: .*?<!-- end -->", page, re.DOTALL):
        assert re.findall(r"^\|.*\|\s*\|$", table, re.MULTILINE) == []


@pytest.mark.parametrize("page", [*PAGES, *_DECLARED], ids=lambda page: page.name)
def test_every_name_exists(page: Path) -> None:
    """Options, their ini keys and variables, commands, parameters of specs; and every relative link
    leads to a file, for the site has no folders, and a heading.
    """
    text = page.read_text(encoding="utf-8")
    commands = (DOCS / "commands.md").read_text(encoding="utf-8")
    options = {option.flag for option in OPTIONS} | {f"--{o.name}" for o in OPTIONS if o.short}
    options |= {flag for engine in ENGINES.values() for flag in engine.flags.values()}
    options |= set(re.findall(r"`(--[a-z][a-z-]*)", commands)) | _FOREIGN_OPTIONS
    fields = (dataclasses.fields(kind) for kind in GENERATE.parameter_classes())
    parameters = {field.name for own in fields for field in own} | set(LOCATION_PARAMETERS)
    parameters |= _EXAMPLE_PARAMETERS | _SCHEME_PARAMETERS
    known = set(re.findall(r"^### `cepbench ([a-z-]+)", commands, re.MULTILINE))

    assert set(re.findall(r"(?<![\w-])--(?!-)[a-z][a-z-]*[a-z]", text)) <= options
    assert set(re.findall(r"\bcepbench_[a-z_]+", text)) <= {option.ini for option in OPTIONS}
    assert set(re.findall(r"\bCEPBENCH_[A-Z_]+", text)) <= {option.env for option in OPTIONS}
    assert set(re.findall(r"[?&]([a-z_]+)=", text)) <= parameters
    if page in PAGES:
        called = re.findall(r"(?:`|^ +|\$ )cepbench\s+([a-z][a-z-]+)", text, re.MULTILINE)
        assert set(called) <= known
        links = re.findall(r"\]\(([^)\s]+)\)", text)
        assert [li for li in links if "://" not in li and not _leads_somewhere(page, li)] == []


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.is_file() and (not anchor or anchor in anchors(target))


def test_schemes_prompts_and_votes_are_documented() -> None:
    """The page on models shows a spec of every scheme, that on judges has every prompt with the
    wording of its ties, that on people names every field of a vote.
    """
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    assert [name for name in SCHEMES if f"`{name}:" not in page and name] == []

    (rows,) = tables(JUDGES, "Prompts")
    phrases = {name: prompt.phrases["Tie(A)"] for name, prompt in JUDGE_PROMPTS.items()}
    assert dict(zip(column(rows), column(rows, 2), strict=True)) == phrases

    page = PEOPLE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page)) | set(re.findall(r'"(\w+)":', page))
    assert {field.name for field in msgspec.structs.fields(Vote)} <= named


def test_names_of_the_plugin_and_the_package_are_documented(tmp_path: Path) -> None:
    """The tables have every fixture, argument of the marker and public name, and no others; that of
    the store all that lies in one, except the database's own companions.
    """
    from pytest_cepbench.plugin import fixtures

    (rows,) = tables(REFERENCE, "Fixtures")
    names = [name for name in vars(fixtures) if name.startswith("cep_")]
    assert sorted(column([row])[0] for row in rows) == sorted(names)

    (rows,) = tables(REFERENCE, "Marker")
    assert column(rows) == [field.name for field in dataclasses.fields(CepMark)]

    (rows,) = tables(REFERENCE, "Public names")
    assert sorted(column([[row[0]] for row in rows])) == sorted(pytest_cepbench.__all__)

    (rows,) = tables(REFERENCE, "The store")
    with Store(tmp_path / "store") as store:
        there = {path.name for path in store.root.iterdir()}
    companions = {name for name in there if name.endswith(("-wal", "-shm"))}
    assert {column([row])[0] for row in rows} == there - companions


def test_verdicts_are_documented() -> None:
    """The verdict table has every verdict with its outcome in pytest and its exit code."""
    rows, _ = tables(REFERENCE, "Verdicts and exit codes")

    assert {row[0].strip("`"): row[3] for row in rows} == {
        str(verdict): str(shown.exit_code) for verdict, shown in PRESENTATIONS.items()
    }
    for row in rows:
        verdict = Verdict(row[0].strip("`"))
        if verdict is not Verdict.INCOMPLETE:  # of the run, not of a test
            assert row[1] == PRESENTATIONS[verdict].outcome


def test_metrics_and_failures_are_documented() -> None:
    """The tables have every metric with its direction, and every kind of failure."""
    metrics, failures = tables(REFERENCE, "Metrics")
    plans: dict[Modality, ChainPlan] = {
        "text": ChainPlan("text", 8, "describe", "{description}"),
        "image": ChainPlan("image", 8, "describe", "{description}"),
    }
    tables_of_all = {name: read_table(name, {}) for name in KINDS}
    measures = make_measures(tables_of_all, SuiteContext("all", plans, {}))

    assert {row[0].strip("`"): row[2] for row in metrics} == {
        name: "higher" if measure.higher_is_better else "lower"
        for name, measure in measures.items()
    }
    assert {row[0].strip("`"): row[1] for row in metrics} == {
        name: re.sub(r"4(?=\)?$)", "T", measure.label.partition(" [")[0])
        for name, measure in measures.items()
    }
    assert set(column(failures)) == FAILURE_KINDS


def test_the_arena_is_documented_as_it_is() -> None:
    """Its categories, its criteria with their weights, its grammar, and the names of both."""
    (categories,) = tables(SUITES, "The arena of shapes")
    (criteria,) = tables(SUITES, "Truth")
    page = SUITES.read_text(encoding="utf-8")
    lines = [line.split() for line in page.splitlines()]
    rules = [
        line.split()
        for line in (arena_solver.__doc__ or "").splitlines()
        if line.startswith("    ")
    ]

    assert column(categories) == list(TASKS)
    assert [(row[0], float(row[1])) for row in criteria] == list(
        zip(CRITERIA, WEIGHTS, strict=True)
    )
    assert rules
    assert [rule for rule in rules if rule not in lines] == []
    assert f"`{TRUTH_VERSION}`" in page
    assert f"{len(VOCABULARY)} words" in page


def test_baseline_fields_are_documented() -> None:
    """The table has every field that a baseline can have, in the order of the shipped files."""
    (rows,) = tables(REFERENCE, "Baseline files")
    known = column([[row[0]] for row in rows])
    shipped = next((ROOT / "baselines" / "instrument").glob("overall-fid-*.toml"))
    there = list(tomllib.loads(shipped.read_text()))

    assert [name for name in known if name in there] == there
    in_reports_alone = {"unscored"}
    assert set(known) == set(Measurement.__struct_fields__) - in_reports_alone


def test_extras_are_documented() -> None:
    """Every extra stands on the page, in the table of versions or below it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    section = REFERENCE.read_text(encoding="utf-8").partition("## Versions")[2].partition("## ")[0]

    table, _, below = section.partition("Further extras:")
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) + re.findall(r"`(\w+)`", below)
    assert set(named) == set(project["optional-dependencies"])


def test_python_blocks_are_python() -> None:
    """Every Python block is Python with at least one statement; a mistake raises SyntaxError."""
    for page in PAGES:
        for block in blocks(page):
            if block.kind == "python":
                tree = ast.parse(block.text, page)
                compile(tree, page, "exec")  # finds a return outside a function
                assert tree.body


# -- tests that pages name -------------------------------------------------------------------------

THREATS = DOCS / "threat-model.md"

_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)(?:::(?P<name>\w+))?`")


def test_every_test_that_a_page_names_exists() -> None:
    """No defence of the threat model is claimed without a test, nor a figure of a paper."""
    functions: dict[str, set[str]] = {}
    for match in _TEST.finditer(THREATS.read_text(encoding="utf-8")):
        if match["path"] not in functions:
            tree = ast.parse((ROOT / match["path"]).read_text(encoding="utf-8"))
            found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
            functions[match["path"]] = {node.name for node in found}
        assert match["name"] in {None, *functions[match["path"]]}, match[0]
    published = ROOT / "tests" / "metrics" / "published"
    sources = "".join(path.read_text() for path in published.glob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "papers.md").read_text(encoding="utf-8")))
    assert named
    assert named <= set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))
    # No row of a table of defences stands without a test.
    defended = THREATS.read_text(encoding="utf-8").split("## What it does not defend against")[0]
    rows = re.findall(r"^\|(?!\s*-)(.+)\|$", defended, re.MULTILINE)
    rows = [cells for cells in rows if not cells.endswith("| test ")]
    assert rows
    assert [cells for cells in rows if not _TEST.search(cells)] == []


# -- pictures --------------------------------------------------------------------------------------

IMAGES = DOCS / "images"


def test_every_picture_is_drawn_used_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one script, on a page, with a text for those who do not see it. All are small: at most
    250 kB and 1,440 pixels wide each, 1.5 MB together, for a clone has them all.
    """
    monkeypatch.setattr(sys, "path", list(sys.path))  # one of them imports the other
    scripts = (_script(IMAGES / f"{name}.py") for name in ("make", "make_rating"))
    drawn = {IMAGES / name for script in scripts for name in script.PICTURES}
    assert drawn == {path for path in IMAGES.iterdir() if path.suffix in (".png", ".svg")}
    used = {
        (page.parent / path).resolve(): alt
        for page in PAGES
        for alt, path in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", page.read_text("utf-8"))
    }
    assert drawn <= used.keys()
    assert all(len(used[path].split()) > 5 for path in drawn)
    sizes = [path.stat().st_size for path in IMAGES.iterdir()]
    assert max(sizes) < 250_000
    assert sum(sizes) < 1_500_000
    for path in IMAGES.glob("*.png"):
        with Image.open(path) as image:
            assert image.width <= 1440, path.name
