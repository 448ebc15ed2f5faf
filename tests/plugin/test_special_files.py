"""Files not regular, endless, or written to break a parser, in every place that a run reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.project import PHOTOS, Project, contents
from tests.special_files import (
    a_folder,
    a_link_to_an_endless_device,
    a_pipe,
    a_pointer,
    a_sparse_file,
    too_deep,
    too_many_digits,
)

RED, BLUE = (200, 10, 10), (10, 10, 200)

Make = Callable[[Path], None]


KINDS: dict[Make, str] = {
    a_pipe: "it is a named pipe, and a regular file is expected",
    a_link_to_an_endless_device: "it is a device, and a regular file is expected",
    a_sparse_file: "it has 32,212,254,720 bytes, and at most",
    a_folder: "Is a directory",
    a_pointer: "it is a pointer of Git LFS to a file that was not fetched: run git lfs pull",
    too_deep: "it is nested too deeply",
    too_many_digits: "a number has thousands of digits",
}


def test_photos_that_are_no_files(project: Project) -> None:
    """Each is named with what it is; the run ends, and none of its cases passes."""
    project.suite(PHOTOS)
    project.photos({"red.png": RED, "new\nline.png": BLUE})
    folder = project.path / "photos"
    for make in (a_pipe, a_link_to_an_endless_device, a_pointer, a_sparse_file):
        make(folder / f"{make.__name__}.png")
    (folder / "circle.png").symlink_to("circle.png")
    result = project.run_here("-vv", "--snapshot-update")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert set(project.verdicts().values()) == {"error"}
    result.stdout.fnmatch_lines(
        [
            "  5 of 7 samples cannot be used:",
            (
                "  a_link_to_an_endless_device.png: cannot be read: "
                f"{KINDS[a_link_to_an_endless_device]}"
            ),
            f"  a_pipe.png: cannot be read: {KINDS[a_pipe]}",
            f"  a_pointer.png: cannot be read: {KINDS[a_pointer]}",
            f"  a_sparse_file.png: cannot be read: {KINDS[a_sparse_file]} *",
            "  circle.png: cannot be read: Too many levels of symbolic links",
        ]
    )
    assert not list(project.baselines.rglob("*.toml"))


def test_strange_names_of_photos(project: Project) -> None:
    """A line end in a name is part of it, and comes back from the baseline; bytes are refused."""
    project.suite(PHOTOS)
    project.photos({"red.png": RED, "new\nline.png": BLUE})
    assert project.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    assert project.run_here().ret == pytest.ExitCode.OK
    with open(os.fsencode(project.path / "photos") + b"/\xff.png", "wb"):  # noqa: PTH123 - no text
        pass
    result = project.run_here()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["the file name * is not UTF-8: rename it"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_baseline_that_is_none(accepted: Project, make: Make) -> None:
    """Its case is an error with file, reason and remedy in one line; the others are judged."""
    (path,) = (accepted.baselines / "toy").glob("color-gc-*")
    path.unlink()
    make(path)
    result = accepted.run_here("-vv", "-k", "color or count")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.verdicts() == {"color-gc": "error", "count-gc": "held"}
    line = f"  baseline {path.name} cannot be read: {KINDS[make]}*restore it from version control*"
    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    "make", [a_pipe, too_deep, too_many_digits], ids=lambda make: make.__name__
)
def test_a_baseline_that_is_none_is_replaced(accepted: Project, make: Make) -> None:
    """Accepting is the remedy that its error names."""
    before = contents(accepted.baselines)
    (path,) = (accepted.baselines / "toy").glob("color-gc-*")
    path.unlink()
    make(path)
    assert accepted.run_here("-k", "color", "--snapshot-update").ret == pytest.ExitCode.OK
    assert contents(accepted.baselines) == before


@pytest.mark.parametrize(
    "make", [a_pipe, a_sparse_file, too_deep, too_many_digits], ids=lambda make: make.__name__
)
def test_a_suite_file_that_is_none(toy: Project, make: Make) -> None:
    """Collection ends with file and reason."""
    path = toy.path / "suite.toml"
    path.unlink()
    make(path)
    result = toy.run_here()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([f"*suite file *{KINDS[make]}*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("place", "message", "code"),
    [
        ("circle", "data folder *circle' does not exist*", pytest.ExitCode.INTERRUPTED),
        ("a\\u0000b", "*it holds a NUL byte", pytest.ExitCode.USAGE_ERROR),
    ],
    ids=["circle", "nul"],
)
def test_a_place_of_data_that_is_none(
    project: Project, place: str, message: str, code: pytest.ExitCode
) -> None:
    """A circle of links, and a name that no file can have."""
    project.suite(PHOTOS.replace('path = "photos"', f'path = "{place}"'))
    (project.path / "circle").symlink_to("circle")
    result = project.run_here()
    assert result.ret == code
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")
