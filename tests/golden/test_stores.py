"""Stores, own and shared: a run on a copy of one computes nothing.

They are kept as archives, beside the baselines of the run that filled them, and are never written
anew: a store that users have filled serves every later version. Where an archive is not there,
GOLDEN=write in the environment makes it.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.documents import flat_report
from tests.golden.frozen import FILES, assert_frozen
from tests.plugin.project import INI, TEST_MODULE, run_plainly
from tests.store.buckets import BUCKET, serving

SUITES = Path(__file__).with_name("stored")

STORES = FILES / "stores"

KEPT = ("store2", "shared", "baselines")
"""Of the project: its own store, the shared one that it published to, and what it accepted."""

FIELDS = ("verdict", "value", "baseline", "n", "failures", "identity")


def _write_project(root: Path) -> Path:
    shutil.copytree(SUITES, root, dirs_exist_ok=True)
    (root / "pytest.ini").write_text(INI)
    for suite in SUITES.iterdir():
        (root / suite.name / f"test_{suite.name}.py").write_text(TEST_MODULE)
    return root


def _write_archives(root: Path) -> None:
    """Fill the stores, for those archives that are not there."""
    missing = [name for name in KEPT if not (STORES / f"{name}.zip").exists()]
    if not missing or os.environ.get("GOLDEN") != "write":
        return
    arguments = ("--cep-store=store2", "--cep-publish=shared", "--snapshot-update")
    assert run_plainly(_write_project(root), *arguments) == 0
    STORES.mkdir(parents=True, exist_ok=True)
    for name in missing:
        with zipfile.ZipFile(STORES / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(path for path in (root / name).rglob("*") if path.is_file()):
                archive.write(path, path.relative_to(root))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The suites with the baselines, and copies of the own stores and of the shared one."""
    _write_archives(tmp_path / "first")
    root = _write_project(tmp_path / "project")
    for name in KEPT:
        with zipfile.ZipFile(STORES / f"{name}.zip") as archive:
            archive.extractall(root)
    return root


WAYS: dict[str, Sequence[str]] = {
    "own store": ("--cep-store=store2",),
    "shared store": ("--cep-store=new", "--cep-shared=shared"),
    "shared store to publish to": ("--cep-store=new", "--cep-publish=shared"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_on_a_kept_store_computes_nothing(project: Path, way: str) -> None:
    """All results are found; the numbers and verdicts are those that were accepted."""
    assert_nothing_is_computed(project, *WAYS[way])


@pytest.mark.slow
def test_a_run_on_a_kept_bucket_computes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same objects behind a server that speaks S3."""
    with serving() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        bucket = server.client("s3")
        for path in (project / "shared").rglob("*"):
            if path.is_file():
                name = path.relative_to(project).as_posix()
                bucket.put_object(Bucket=BUCKET, Key=name, Body=path.read_bytes())
        assert_nothing_is_computed(project, "--cep-store=new", f"--cep-shared=s3://{BUCKET}/shared")


def assert_nothing_is_computed(root: Path, *arguments: str) -> None:
    """Run both suites: everything holds, no model gets an input, nothing is remarked."""
    assert run_plainly(root, *arguments) == 0
    document = flat_report(json.loads((root / ".cepbench" / "report.json").read_text("utf-8")))
    assert document["infrastructure"] == []
    spent = [(case["effort"]["loads"], case["effort"]["inputs"]) for case in document["cases"]]
    assert spent == [(0, 0)] * len(document["cases"])
    assert_frozen("stores/numbers.json", _numbers(document))


def _numbers(document: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{case['suite']}/{case['part']}/{case['metric']}": {
            name: _rounded(case[name]) for name in FIELDS
        }
        for case in document["cases"]
    }


def _rounded(value: Any) -> Any:
    """Ten digits: the last ones are a library's."""
    return float(f"{value:.10g}") if isinstance(value, float) else value
