"""The data set of a suite: found by loader, name and path, limited, and users' own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.errors import CepError, DataAbsentError, DatasetError, SuiteError
from pytest_cepbench.store import Store
from pytest_cepbench.suites import load_data
from tests.plugin.project import PHOTOS, SHAPES, Project
from tests.suites.world import read_suite, stage

LOADER = """\
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import Dataset, DrawnImage, Sample
import numpy

number = 3

def two(brightness=100):
    pixels = numpy.full((4, 4, 3), brightness, numpy.uint8)
    image = DrawnImage(lambda: ImageArtifact(pixels))
    return Dataset("mine", {}, (Sample("a", ("x",), image), Sample("b", ("x", "y"), image)))

def nothing():
    return None

def one(id="a", categories=("x",), image=None, cluster=None, identity={}):
    sample = Sample(id, categories, image, cluster=cluster)
    return Dataset("mine", identity, (sample if id else id,))
"""


def _with_loader(loader: str, options: str = "") -> str:
    table = f'[data]\nloader = "{loader}"\noptions = {{ {options} }}\n[chain]'
    head, _, rest = SHAPES.partition("[data]")
    return head + table + rest.partition("[chain]")[2]


@pytest.mark.parametrize(
    ("loader", "options", "error", "message"),
    [
        ("shape", "", SuiteError, "unknown loader 'shape'. Did you mean 'shapes'?"),
        ("python:x", "", SuiteError, "unknown loader 'python:x'"),
        ("python:nowhere:f", "", SuiteError, "'python:nowhere:f' cannot be imported: No module"),
        ("python:my_loader:f", "", SuiteError, "cannot be imported: .* no attribute 'f'"),
        (
            "python:my_broken:f",
            "",
            SuiteError,
            "cannot be imported: module 'os' has no attribute 'x'",
        ),
        ("python:my_loader:number", "", SuiteError, "'python:my_loader:number' is not a function"),
        ("python:my_loader:nothing", "", SuiteError, "returned NoneType, a Dataset is expected"),
        ("python::f", "", SuiteError, "unknown loader 'python::f'"),
        ("python:.x:f", "", SuiteError, "unknown loader 'python:.x:f'"),
        ("python:my_loader:one", "id = 1", DatasetError, "'mine': sample 1: id is 1, a text is"),
        ("python:my_loader:one", "id = ''", DatasetError, "'mine': '' is no Sample"),
        ("python:my_loader:one", "categories = 'fog'", DatasetError, r"'fog', .*such as \(\"fog"),
        ("python:my_loader:one", "categories = []", DatasetError, r"categories is \[\], a tuple"),
        (
            "python:my_loader:one",
            "image = 'a.png'",
            DatasetError,
            "image is 'a.png', FileImage",
        ),
        ("python:my_loader:one", "cluster = 1", DatasetError, "'a': cluster is 1, a text is expec"),
        ("python:my_loader:one", "identity = { s = nan }", DatasetError, "'s': nan}, a dict of"),
        ("shapes", "samples = 3", SuiteError, "unknown option of shapes 'samples'"),
        ("shapes", "path = 'x'", SuiteError, "unknown option of shapes 'path'"),
        ("shapes", "samples_per_category = 'two'", SuiteError, "loader shapes refuses its options"),
        ("shapes", "samples_per_category = 0", DatasetError, "must be in 1..10,000, got 0"),
    ],
)
def test_a_mistake_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loader: str,
    options: str,
    error: type[CepError],
    message: str,
) -> None:
    """Loaders and options that do not exist, and what loaders refuse, are errors by name."""
    (tmp_path / "my_loader.py").write_text(LOADER)
    (tmp_path / "my_broken.py").write_text("import os\nos.x")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=message):
        load_data(read_suite(tmp_path, _with_loader(loader, options)), {})


@pytest.mark.parametrize(
    "leave",
    ["raise SystemExit", "pytest.skip('no data')", "raise unittest.SkipTest('no data')"],
    ids=["exit", "skip", "SkipTest"],
)
@pytest.mark.parametrize("module", [True, False], ids=["module", "function"])
def test_a_loader_neither_ends_nor_skips_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: str, module: bool
) -> None:
    """Its suite would vanish, and a run of others would pass: it is an error by name."""
    text = "import pytest, unittest\n{}\ndef f():\n    {}\n"
    (tmp_path / "leaver.py").write_text(text.format(*((leave, "pass") if module else ("", leave))))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "leaver", None)  # so that it is forgotten after the test
    del sys.modules["leaver"]
    with pytest.raises(DatasetError, match=r"'toy': .*leaver.* raised S.*--cep-data"):
        load_data(read_suite(tmp_path, _with_loader("python:leaver:f")), {})


def test_a_loader_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python:module:function` gives any samples, in one category or several; options reach it by
    name, as they do the package's.
    """
    suite = read_suite(tmp_path, _with_loader("shapes", "samples_per_category = 3"))
    assert len(load_data(suite, {}).in_category("color")) == 3
    (tmp_path / "my_loader.py").write_text(LOADER)
    monkeypatch.syspath_prepend(tmp_path)
    dataset = load_data(
        read_suite(tmp_path, _with_loader("python:my_loader:two", "brightness = 7")), {}
    )
    assert dataset.categories == ("x", "y")
    assert dataset.samples[0].image is not None
    assert dataset.samples[0].image.load().pixels.max() == 7


def test_where_the_data_lies(tmp_path: Path) -> None:
    """`--cep-data` by the data set's name, or the path beside the suite, or absent with the way."""
    for name in ("photos", "other"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / f"{name}.png")
    suite = read_suite(tmp_path, PHOTOS)
    assert [s.id for s in load_data(suite, {}).samples] == ["photos.png"]
    assert [s.id for s in load_data(suite, {"folder": tmp_path / "other"}).samples] == ["other.png"]
    named = read_suite(tmp_path, PHOTOS.replace('path = "photos"', 'name = "album"'))
    assert [s.id for s in load_data(named, {"album": tmp_path / "other"}).samples] == ["other.png"]
    with pytest.raises(DataAbsentError, match=r"'album' is not here: .* --cep-data album=PATH\.$"):
        load_data(named, {"folder": tmp_path / "other"})


RED, BLUE = (200, 10, 10), (10, 10, 200)


def test_a_loader_beside_the_suite(project: Project) -> None:
    """A `python:` loader beside the suite is found; a sample of two categories counts in both.

    Data that cannot be used ends the run before anything is measured.
    """
    project.write("mine/my_loader.py", LOADER)
    text = PHOTOS.replace('loader = "folder"\npath = "photos"', 'loader = "python:my_loader:two"')
    project.photos({})
    none = 'loader = "shapes"\noptions = { samples_per_category = 0 }'
    project.suite(text.replace('loader = "python:my_loader:two"', none), "mine")
    refused = project.run_here("mine")
    assert refused.ret == pytest.ExitCode.INTERRUPTED
    refused.stdout.fnmatch_lines(["*must be in 1..10,000, got 0"])
    project.suite(text, "mine")
    assert project.run_here("mine", "--snapshot-update").ret == pytest.ExitCode.OK
    assert {(c["part"], c["metric"]): c["n"] for c in project.report()["cases"]} == {
        ("x", "gc"): 2, ("y", "gc"): 1, ("overall", "gc"): 3, ("overall", "failures"): 3,
    }  # fmt: skip


def test_text_first_on_captions_of_a_folder(tmp_path: Path) -> None:
    """`photo.txt` beside `photo.jpg` is where the chain starts; a missing or blank one is named."""
    text = PHOTOS.replace('path = "photos"', 'path = "photos"\noptions = { captions = true }')
    text = text.replace("[chain]", '[chain]\nstart = "text"')
    text = text.replace("user_models", "tests.plugin.user_models")
    (tmp_path / "photos").mkdir()
    for name, color in (("red", RED), ("blue", BLUE)):
        Image.new("RGB", (16, 16), color).save(tmp_path / "photos" / f"{name}.png")
    (tmp_path / "photos" / "red.txt").write_text("200 10 10\n")
    with Store(tmp_path / "store") as store:
        with pytest.raises(DatasetError, match=r"'blue.png' has no caption: .*'blue.txt' beside"):
            stage(tmp_path, text, store)
        (tmp_path / "photos" / "blue.txt").write_text("10 10 200")
        measured = stage(tmp_path, text, store).measure("overall-gc")
        assert measured.value == pytest.approx(1.0, abs=1e-6)
        (tmp_path / "photos" / "blue.txt").write_text(" \n")
        with pytest.raises(DatasetError, match=r"^1 of 2 samples cannot be used:\s+blue\.png: "):
            stage(tmp_path, text, store).measure("overall-gc")


@pytest.mark.slow
def test_a_run_over_few_samples(project: Project) -> None:
    """So many per category, with the same numbers on two workers, and a baseline of their own."""
    project.suite(SHAPES.replace("category = 2", "category = 6"))
    few = ("--cep-samples=2", "--model=shapes:?miss=0.3")
    project.run(*few)
    alone = project.numbers()
    assert {c["n"] for c in alone if c["part"] != "overall"} == {2}
    project.run("-n", "2", "--cep-store=another", *few)
    assert project.numbers() == alone
    assert project.run_here("--cep-samples=2", "--snapshot-update", "-k", "color").ret == 0
    assert project.run_here("--cep-samples=2", "-k", "color").ret == 0
    result = project.run_here("--cep-samples=3", "-k", "color")
    assert project.verdicts() == {"color-gc": "incomparable"}
    result.stdout.fnmatch_lines(["not comparable: *samples: baseline 2 *, now 3 *: 1 case *"])
