"""The size of the package: what the page shows is counted, and a run loads few modules."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.house import (
    BEGIN,
    END,
    PACKAGE,
    PAGE,
    WAYS,
    circle_of,
    count_tables,
    import_graph,
    read_module,
    run_way,
)

ROOT = Path(__file__).parents[1]

MOST_MODULES = 178
"""Modules of the package that a run of one case may load; lowered whenever it loads fewer."""

PLUGIN = """\
import sys

def pytest_unconfigure():
    loaded = [name for name in sys.modules if name.partition(".")[0] == "pytest_cepbench"]
    print("\\n".join(sorted(loaded)), file=open("modules.txt", "w"))
"""


def test_the_page_has_the_tables() -> None:
    """The same rows and columns; numbers are written anew now and then (benchmarks.house --write).

    So a room that came or went is seen, and a commit does not have to change a page of numbers.
    """
    shown = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()
    one_of_each = {path.relative_to(PACKAGE).parts[0]: path for path in PACKAGE.glob("*/*.py")}
    counted = count_tables([*one_of_each.values(), PACKAGE / "errors.py"])
    for start in ("| room |", "| | number |", "| way |"):
        assert sum(line.startswith(start) for line in shown) == 1
    first = [line.split("|")[1] for line in shown if line.startswith("|")]
    assert first == [
        *(line.split("|")[1] for line in counted if line.startswith("|")),
        " way ", "---", *(f" {title} " for title, _ in WAYS.values()),
    ]  # fmt: skip


def test_what_is_counted_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code without comments and docstrings, functions in classes too, imports inside functions."""
    monkeypatch.setattr("benchmarks.house.PACKAGE", tmp_path / "pytest_cepbench")
    path = tmp_path / "pytest_cepbench" / "room" / "a.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        '"""Text."""\n\nclass A:\n    def f(self):\n        """Of\n        f."""\n'
        "        # why\n        from pytest_cepbench.room import b\n\n        return b\n"
    )
    module = read_module(path)
    assert (module.name, module.room) == ("pytest_cepbench.room.a", "room")
    assert (module.lines, module.comments, module.functions) == (10, 1, (3,))
    assert module.classes == ("A",)
    assert module.imports == {"pytest_cepbench.room.b"}
    circle = {
        module.name: module.imports,
        "pytest_cepbench.room.b": {"pytest_cepbench.c.C"},
        "pytest_cepbench.c": {"pytest_cepbench.room.a"},
    }
    assert sorted(circle_of(import_graph(circle))) == sorted(circle)
    assert circle_of(import_graph(circle | {"pytest_cepbench.c": {"os"}})) == []


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_watched(way: str) -> None:
    """It ends, and crosses some files and types, all of the package."""
    pytest.importorskip("httpx2" if way == "server" else "transformers")
    crossed = run_way(way)
    assert len(crossed["files"]) > 5
    assert len(crossed["types"]) > 5
    assert all((ROOT / file).is_file() for file in crossed["files"])


def test_a_run_of_one_case_loads_few_modules(tmp_path: Path) -> None:
    """Of the package: what other metrics, models and reports need is not imported."""
    shutil.copytree(ROOT / "suites" / "instrument", tmp_path / "instrument")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "counting.py").write_text(PLUGIN)
    options = ("--model=shapes:", "--cep-role=generator", "--snapshot-update", "-p", "counting")
    command = [sys.executable, "-m", "pytest", "instrument", "-k", "crowded-gc", *options]
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""}
    ended = subprocess.run(
        [*command, "-p", "no:xdist"], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    loaded = (tmp_path / "modules.txt").read_text().splitlines()
    assert len(loaded) <= MOST_MODULES, "\n".join(loaded)
