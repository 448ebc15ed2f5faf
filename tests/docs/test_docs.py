"""Names in the documentation exist, and docs/reference.md and docs/models.md have all of them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import pytest_cepbench
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS
from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.datasets.replay import ANSWER_LAYOUTS, LAYOUTS
from pytest_cepbench.datasets.shapes import Degradation
from pytest_cepbench.datasets.shapes.arena import (
    CRITERIA,
    TASKS,
    TRUTH_VERSION,
    VOCABULARY,
    WEIGHTS,
    AnswerDegradation,
    WriterDegradation,
)
from pytest_cepbench.datasets.shapes.arena import solver as arena_solver
from pytest_cepbench.datasets.sources.hub import PARAMETERS as LOCATION_PARAMETERS
from pytest_cepbench.gate import PRESENTATIONS, Verdict
from pytest_cepbench.gate.baseline import Baseline
from pytest_cepbench.measures import (
    KINDS,
    MetricTable,
    SuiteContext,
    make_measures,
    read_table,
)
from pytest_cepbench.models.api.endpoint import ServerParams
from pytest_cepbench.models.api.parameters import (
    ChatParams,
    ImageParams,
    InterleaverParams,
    JudgeParams,
    VqaParams,
)
from pytest_cepbench.models.detectors.transformers_detector import ClassesParams, OwlParams
from pytest_cepbench.models.encoders.inception_encoder import InceptionParams
from pytest_cepbench.models.encoders.library_encoders import TimmEncoderParams
from pytest_cepbench.models.encoders.transformers_encoder import TransformersEncoderParams
from pytest_cepbench.models.encoders.unicom_encoder import UnicomParams
from pytest_cepbench.models.encoders.vectors import EncoderParams
from pytest_cepbench.models.people import PeopleParams
from pytest_cepbench.models.pipelines.roles import EditorParams, GeneratorParams
from pytest_cepbench.models.rule_based import DescriberKnobs, VqaKnobs
from pytest_cepbench.models.rule_based.arena_models import JudgeKnobs
from pytest_cepbench.models.serving.engines import ENGINES
from pytest_cepbench.models.serving.parameters import EngineParams, ServeParams
from pytest_cepbench.models.spec import SCHEMES
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.models.text_model.parameters import (
    ConversationParams,
    GenerationParams,
    LocalJudgeParams,
    UnifiedParams,
)
from pytest_cepbench.plugin.collection import CepMark
from pytest_cepbench.plugin.options import OPTIONS
from pytest_cepbench.store import Store
from pytest_cepbench.suites.data import named_loader
from pytest_cepbench.suites.definition import CaseTable, PresetTable, SuiteTable
from tests.docs.markdown import DOCS, EXAMPLES, PAGES, ROOT, anchors, blocks, column, tables

REFERENCE = DOCS / "reference.md"
MODELS = DOCS / "models.md"
SUITES = DOCS / "suites.md"
API_MODELS = DOCS / "api-models.md"
JUDGES = DOCS / "judges.md"

_PARAMETERS = (
    PeopleParams,
    GenerationParams,
    GeneratorParams,
    EditorParams,
    UnifiedParams,
    TransformersEncoderParams,
    EncoderParams,
    TimmEncoderParams,
    UnicomParams,
    InceptionParams,
    OwlParams,
    ClassesParams,
    ServerParams,
    ServeParams,
    EngineParams,
    ChatParams,
    ImageParams,
    JudgeParams,
    LocalJudgeParams,
    InterleaverParams,
    Degradation,
    DescriberKnobs,
    AnswerDegradation,
    JudgeKnobs,
)

# Of the examples' own models and of the placeholders that stand for a parameter.
_EXAMPLE_PARAMETERS = {"color_blind", "name", "path", "beams"}

# Of preset: and replay:, which are no models by themselves.
_SCHEME_PARAMETERS = {
    *("model", "layout"),
    *(name for layout in LAYOUTS.values() for name in layout.params),
    *(name for layout in ANSWER_LAYOUTS.values() for name in layout.params),
}

# Of pytest, syrupy, xdist and pip, which the pages mention beside the project's own.
_FOREIGN_OPTIONS = {
    "--snapshot-update", "--snapshot-update-new-only", "--junitxml", "--maxfail", "--dist", "--tx",
    "--images", "--repeats", "--quick", "--played", "--runs", "--json", "--against",
    "--speed", "--size", "--minutes", "--regress",  # of scripts in benchmarks
    "--ratings", "--score",  # of cepbench rate draw
    "--pair-model", "--battles", "--no-answer", "--forfeits",
    "--by", "--unseen", "--rounds", "--plan", "--only", "--reference",  # of cepbench arena
    "--copy", "--patterns",
    "--per-pattern", "--per-source", "--prompts", "--sampling", "--until",
    "--unverified",  # of cepbench dataset
    "--people", "--seen", "--repeat", "--on", "--order", "--partial",
    "--answers", "--family",  # of cepbench agree judges
    "--share", "--practice", "--attention", "--host", "--peek",
    "--only-write", "--kind", "--annotators", "--all-annotators",  # of cepbench rate
    "--annotator", "--draws", "--format", "--report",  # of agreement, alignment and ratings
    "--jobs", "--read", "--write", "--checkpoints",
    "--of", "--amount", "--list",  # of reference/regress.py
    "--page", "--power", "--part", "--rows", "--loads",
    "--dimensions", "--measured", "--seconds",
    "--setup-only", "--setup-plan", "--collect-only", "--fixtures", "--markers", "--lf",
    "--no-summary", "--hypothesis-profile",
    "--group", "--strict",  # of pip and mypy
    "--continue-on-collection-errors", "--forked", "--timeout-method",
    "--gate", "--from", "--device", "--help", "--seed",
    "--steps", "--save", "--batch", "--spoil-at",  # of the scripts in reference/
    "--job-name", "--dependency", "--gres", "--time", "--output",  # of SLURM
    "--nodes", "--ntasks", "--ntasks-per-node", "--gpus-per-node", "--cpus-per-task", "--exclude",
    "--overlap", "--address", "--min-nodes", "--head", "--block",  # of SLURM and ray
    "--create", "--message", "--fill", "--invert-paths", "--path",  # of git and gh
    "--file", "--tag", "--rm", "--volume", "--build-arg",  # of docker
    "--served-model-name", "--port", "--dtype", "--silent", "--tensor-parallel-size",
    "--fail", "--omni", "--model-path",  # of servers and curl
    # of cepbench; tests/cli/test_documentation.py holds them to the real ones
    "--vary", "--series",
    "--seeds", "--seat", "--metrics", "--parts", "--out", "--role", "--data", "--samples",
    "--store", "--reason", "--case", "--move-anchor", "--accept-insensitive", "--dry-run",
    "--delete", "--suite", "--baselines",
    "--alpha", "--tolerance", "--repair", "--unused-for", "--max-size", "--used-within", "--force",
    "--without-baselines",
    "--remeasure", "--to", "--name", "--step", "--dataset",
    "--html", "--last", "--history", "--browser", "--suite-file",
    "--pyargs", "--ignore", "--deselect",  # of pytest
    "--accept", "--no-measure", "--version",  # of cepbench init
    "--prompt",  # of cepbench arena training
    "--verdict", "--contrast", "--features", "--ranking", "--helpers",  # of train_judge.py
    "--resume",
}  # fmt: skip

_TABLES_BY_NAME: dict[str, type[msgspec.Struct]] = {
    "cases": CaseTable,
    "metrics": MetricTable,
    "presets": PresetTable,
}

_DECLARED = [
    *sorted(path for path in EXAMPLES.rglob("*") if path.suffix in (".yml", ".toml")),
    ROOT / "reference" / "training-gate.yml",
]


def test_options_are_documented_with_both_twins() -> None:
    """The option table has every option, its ini key and its environment name, and no others."""
    (rows,) = tables(REFERENCE, "Options")

    documented = zip(column(rows), column(rows, 1), column(rows, 2), strict=True)
    assert sorted(documented) == sorted((o.flag, o.ini, o.env) for o in OPTIONS)


def test_schemes_of_specs_are_documented() -> None:
    """The page on models shows a spec of every scheme."""
    page = MODELS.read_text(encoding="utf-8")
    assert [name for name in SCHEMES if f"`{name}:" not in page and name] == []


def test_short_options_are_documented() -> None:
    """The reference names every short option."""
    (line,) = re.findall(r"^Short names: (.*?)\.", REFERENCE.read_text(), re.MULTILINE | re.DOTALL)

    assert re.findall(r"`--(\w+)`", line) == [option.name for option in OPTIONS if option.short]


@pytest.mark.parametrize("page", [*PAGES, *_DECLARED], ids=lambda page: page.name)
def test_every_name_of_a_setting_exists(page: Path) -> None:
    """No page names an option, ini key or environment name that is not there."""
    text = page.read_text(encoding="utf-8")
    options = {option.flag for option in OPTIONS} | {f"--{o.name}" for o in OPTIONS if o.short}

    named = set(re.findall(r"(?<![\w-])--(?!-)[a-z][a-z-]*[a-z]", text))

    engines = {flag for engine in ENGINES.values() for flag in engine.flags.values()}
    assert named - _FOREIGN_OPTIONS - engines <= options
    assert set(re.findall(r"\bcepbench_[a-z_]+", text)) <= {option.ini for option in OPTIONS}
    assert set(re.findall(r"\bCEPBENCH_[A-Z_]+", text)) <= {option.env for option in OPTIONS}


@pytest.mark.parametrize("page", [*PAGES, *_DECLARED], ids=lambda page: page.name)
def test_every_parameter_in_a_spec_exists(page: Path) -> None:
    """Specs that a page shows have parameters and knobs that an adapter knows."""
    known = {field.name for kind in _PARAMETERS for field in dataclasses.fields(kind)}

    named = set(re.findall(r"[?&]([a-z_]+)=", page.read_text(encoding="utf-8")))

    assert named <= known | _EXAMPLE_PARAMETERS | _SCHEME_PARAMETERS | set(LOCATION_PARAMETERS)


@pytest.mark.parametrize(
    ("heading", "index", "kind"),
    [
        ("Describers", 0, GenerationParams),
        ("Generators", 0, GeneratorParams),
        ("Editors", 1, EditorParams),
        ("Unified models", 0, UnifiedParams),
        ("Encoders", 0, TransformersEncoderParams),
        ("Encoders", 1, EncoderParams),
        ("Encoders", 2, TimmEncoderParams),
        ("Encoders", 3, UnicomParams),
        ("Encoders", 4, InceptionParams),
        ("Detectors", 0, OwlParams),
        ("Detectors", 1, ClassesParams),
        ("VQA models", 0, ConversationParams),
        ("The rule-based models: `shapes:`", 0, Degradation),
        ("The rule-based models: `shapes:`", 2, JudgeKnobs),
        ("The rule-based models: `shapes:`", 3, VqaKnobs),
        ("Parameters", 0, ServerParams),
        ("Parameters", 1, ChatParams),
        ("Parameters", 2, ImageParams),
        ("A server that the run starts", 2, ServeParams),
        ("A server that the run starts", 3, EngineParams),
    ],
)
def test_parameters_are_documented_with_their_defaults(
    heading: str, index: int, kind: type
) -> None:
    """Each role's table has every parameter of its adapters, with its default."""
    served = heading in ("Parameters", "A server that the run starts")
    rows = tables(API_MODELS if served else MODELS, heading)[index]
    fields = [field for field in dataclasses.fields(kind) if field.init]
    defaults = {field.name: _default(field.default) for field in fields}

    assert {column([row])[0]: row[1].strip("`") for row in rows} == defaults


def test_flags_of_engines_are_documented() -> None:
    """The table has the flag of each engine for each parameter that it knows."""
    rows = tables(API_MODELS, "A server that the run starts")[3]

    for number, engine in enumerate(ENGINES.values(), 2):
        named = {row[0].strip("`"): row[number].strip("`") for row in rows}
        flags = {name: flag for name, flag in named.items() if flag.startswith("-")}
        assert flags == engine.flags


def test_parameters_of_judges_are_documented() -> None:
    """All of a local judge on the page on judges; of served ones what others do not have."""
    (local,) = tables(JUDGES, "Local checkpoints")
    (served,) = tables(API_MODELS, "Judges")
    (asked,) = tables(API_MODELS, "VQA models")
    shared = {field.name for field in dataclasses.fields(ChatParams)}

    for rows, kind, elsewhere in (
        (local, LocalJudgeParams, set()),
        (served, JudgeParams, shared),
        (asked, VqaParams, shared),
    ):
        fields = [field for field in dataclasses.fields(kind) if field.name not in elsewhere]
        defaults = {field.name: _default(field.default) for field in fields}
        assert {column([row])[0]: row[1].strip("`") for row in rows} == defaults


def test_prompts_of_judges_are_documented() -> None:
    """The table has every prompt, with the wording of its ties."""
    (rows,) = tables(JUDGES, "Prompts")
    phrases = {name: prompt.phrases["Tie(A)"] for name, prompt in JUDGE_PROMPTS.items()}

    assert dict(zip(column(rows), column(rows, 2), strict=True)) == phrases


def _default(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def test_fixtures_are_documented() -> None:
    """The fixture table has every fixture of the plugin and no others."""
    from pytest_cepbench import plugin

    (rows,) = tables(REFERENCE, "Fixtures")

    assert sorted(column([row])[0] for row in rows) == sorted(plugin.__all__)


def test_marker_arguments_are_documented() -> None:
    """The marker's table has every argument of it, and so has the page on suites."""
    (rows,) = tables(REFERENCE, "Marker")
    known = [field.name for field in dataclasses.fields(CepMark)]
    listed = re.findall(r"^- `(\w+)`: ", (DOCS / "writing-a-suite.md").read_text(), re.MULTILINE)

    assert column(rows) == known
    assert listed == known


@pytest.mark.parametrize(
    ("page", "heading", "outcome", "code"),
    [(REFERENCE, "Verdicts and exit codes", 1, 3), (ROOT / "README.md", "Verdicts", 2, 3)],
)
def test_verdicts_are_documented(page: Path, heading: str, outcome: int, code: int) -> None:
    """Both verdict tables have every verdict with its outcome in pytest and its exit code."""
    (rows,) = tables(page, heading)

    assert {row[0].strip("`"): row[code] for row in rows} == {
        str(verdict): str(shown.exit_code) for verdict, shown in PRESENTATIONS.items()
    }
    for row in rows:
        verdict = Verdict(row[0].strip("`"))
        if verdict is not Verdict.INCOMPLETE:  # of the run, not of a test
            assert row[outcome] == PRESENTATIONS[verdict].outcome


def test_metrics_and_failures_are_documented() -> None:
    """The tables have every metric with its direction, and every kind of failure."""
    metrics, failures = tables(REFERENCE, "Metrics")
    plans: dict[Modality, ChainPlan] = {
        "text": ChainPlan("text", 8, "describe", "{description}"),
        "image": ChainPlan("image", 8, "describe", "{description}"),
    }
    tables_of_all = {name: read_table(name, {}) for name in KINDS}
    measures = make_measures(tables_of_all, SuiteContext("all", plans, {}, ("mirror",)))

    assert {row[0].strip("`"): row[2] for row in metrics} == {
        name: "higher" if measure.higher_is_better else "lower"
        for name, measure in measures.items()
    }
    assert {row[0].strip("`"): row[1] for row in metrics} == {
        name: re.sub(r"4(?=\)?$)", "T", measure.label.partition(" [")[0])
        for name, measure in measures.items()
    }
    assert set(column(failures)) == FAILURE_KINDS


def _structs_in(hint: Any) -> list[type]:
    """The table of an optional one."""
    args = get_args(hint)
    return [arg for arg in args if arg is not type(None)] if type(None) in args else []


def test_suite_keys_are_documented() -> None:
    """The table of suite.toml has every key, and only keys."""
    keys, settings, options = tables(REFERENCE, "suite.toml")
    known = set()
    for field in msgspec.structs.fields(SuiteTable):
        inner = next(iter(_structs_in(field.type)), field.type)
        if inspect.isclass(inner) and issubclass(inner, msgspec.Struct):
            known |= {f"{field.name}.{sub.name}" for sub in msgspec.structs.fields(inner)}
        elif field.name in _TABLES_BY_NAME:
            fields = msgspec.structs.fields(_TABLES_BY_NAME[field.name])
            known |= {f"{field.name}.NAME.{sub.name}" for sub in fields}
        else:
            by_name = field.name in ("groups", "encoders")
            known.add(f"{field.name}.NAME" if by_name else field.name)

    assert {column([row])[0] for row in keys} == known
    assert {
        (kind, column([row], 1)[0]) for row in settings for kind in re.findall(r"`(\w+)`", row[0])
    } == {
        (kind, sub.name)
        for kind, table in KINDS.items()
        for sub in msgspec.structs.fields(table)
        if sub.name not in MetricTable.__struct_fields__
    }
    assert [(column([row], 0)[0], column([row], 1)[0]) for row in options] == [
        (loader, name)
        for loader in (
            "shapes",
            "shapes-tasks",
            "shapes-arena",
            "folder",
            "mme",
            "mmgenbench",
            "sdp",
            "geneval",
            "geneval2",
            "opening",
            "judged-battles",
        )
        for name in inspect.signature(named_loader(loader)).parameters
        if name != "path"
    ]


def test_knobs_of_answers_are_documented_with_their_roles() -> None:
    """Those that interleaver and writer have besides the knobs of every scene."""
    rows = tables(MODELS, "The rule-based models: `shapes:`")[1]
    writers, all_knobs = (
        [field.name for field in dataclasses.fields(kind)]
        for kind in (WriterDegradation, AnswerDegradation)
    )
    own = [name for name in all_knobs if name not in Degradation.__dataclass_fields__]

    assert [(column([row])[0], row[1], row[2]) for row in rows] == [
        (name, "0", "both" if name in writers else "interleaver") for name in own
    ]


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
    assert set(known) == set(Baseline.__struct_fields__)


def test_store_layout_is_documented(tmp_path: Path) -> None:
    """The table of the store has all that lies in one, except the database's own companions."""
    (rows,) = tables(REFERENCE, "The store")

    with Store(tmp_path / "store") as store:
        names = {path.name for path in store.root.iterdir()}

    companions = {name for name in names if name.endswith(("-wal", "-shm"))}
    assert {column([row])[0] for row in rows} == names - companions


def test_public_names_are_documented() -> None:
    """The list of public names is that of the package."""
    (rows,) = tables(REFERENCE, "Public names")

    assert sorted(column([[row[0]] for row in rows])) == sorted(pytest_cepbench.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file, for the site has no folders, and a heading."""
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))

    lost = [link for link in links if "://" not in link and not _leads_somewhere(page, link)]

    assert not lost


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.is_file() and (not anchor or anchor in anchors(target))


def test_pages_name_no_machine() -> None:
    """No page holds a path of the machine that it was written on."""
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        assert not re.search(r"/(tmp|root|home|work)/", page.read_text(encoding="utf-8")), page.name


@pytest.mark.parametrize(
    ("page", "text"),
    [(page.name, block.text) for page in PAGES for block in blocks(page) if block.kind == "python"],
)
def test_python_blocks_are_python(page: str, text: str) -> None:
    """Every Python block is Python with at least one statement; a mistake raises SyntaxError."""
    tree = ast.parse(text, page)
    compile(tree, page, "exec")  # finds what parsing alone does not, as a return outside a function
    assert tree.body
