"""Finding out which layout a path has, and what is said where it has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.replay import ANSWER_LAYOUTS, LAYOUTS, open_answers, open_replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError, SpecError
from tests.datasets.opening.files import png, put_answer
from tests.datasets.replay.files import coded, put, put_table

WRITERS = {
    "sdp": lambda root: put(root, "text-first/gen-1/a_0.png"),
    "mgg": lambda root: put(root, "gen-1/0.png"),
    "geneval": lambda root: put(root, "00000/samples/0000.png"),
    "mmgenbench": lambda root: put_table(root / "flux.tsv", [["index", "image"], ["0", coded(0)]]),
    "genception": lambda root: put(root, "a_0.png"),
}


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_a_layout_is_recognised(tmp_path: Path, name: str) -> None:
    """By looking, and the same when it is named; its identity says how it was read."""
    WRITERS[name](tmp_path)
    for layout in (None, name):
        replay = open_replay(str(tmp_path), layout, {})
        assert replay.name == name
        assert replay.path == tmp_path
        assert replay.identity == {"layout": name, "version": "1"}


def test_what_is_no_layout_is_described(tmp_path: Path) -> None:
    """What was found there, and every layout that would be read."""
    with pytest.raises(DatasetError, match="the folder is empty, which is no known layout"):
        open_replay(str(tmp_path), None, {})
    put(tmp_path, "holiday.jpg", "more/x.txt")
    with pytest.raises(DatasetError, match=r"found 'holiday\.jpg', 'more/', which") as caught:
        open_replay(str(tmp_path), None, {})
    for name in LAYOUTS:
        assert f"\n  {name}: " in str(caught.value)
    with pytest.raises(DatasetError, match="this is a single file, which is no known"):
        open_replay(str(tmp_path / "holiday.jpg"), None, {})
    with pytest.raises(DatasetError, match=r"gone: there is no such file or folder"):
        open_replay(str(tmp_path / "gone"), None, {})


def test_two_layouts_at_once_must_be_told_apart(tmp_path: Path) -> None:
    """No silent choice; naming one of them is enough."""
    WRITERS["sdp"](tmp_path)
    WRITERS["mgg"](tmp_path)
    with pytest.raises(DatasetError, match="looks like sdp and mgg: say which with the parameter"):
        open_replay(str(tmp_path), None, {})
    assert open_replay(str(tmp_path), "mgg", {}).name == "mgg"


def test_unknown_layouts_and_parameters_are_refused(tmp_path: Path) -> None:
    """With what there is instead."""
    WRITERS["sdp"](tmp_path)
    with pytest.raises(SpecError, match=r"unknown layout 'sdq'\. Did you mean 'sdp'\?"):
        open_replay(str(tmp_path), "sdq", {})
    with pytest.raises(
        SpecError, match=r"unknown parameter of layout 'sdp' 'encodin'\. Did you mean 'encoding'"
    ):
        open_replay(str(tmp_path), None, {"encodin": "latin-1"})


def test_a_named_layout_must_be_there(tmp_path: Path) -> None:
    """A folder that is not what it is called is refused: nothing recorded is no measurement."""
    put(tmp_path, "holiday.jpg")
    for name in LAYOUTS:
        with pytest.raises(DatasetError, match="holds no"):
            open_replay(str(tmp_path), name, {})


def test_one_artifact_never_stands_for_two_samples(tmp_path: Path) -> None:
    """Stems that two samples share are refused, and so are chains of other samples altogether."""
    replay = open_replay(str(put(tmp_path, "a_0.png", "b_0.png")), None, {})
    replay.check([Sample("a.jpg", ("c",)), Sample("x.jpg", ("c",))])
    for first, other in [("a.jpg", "a.png"), ("cats/a.jpg", "dogs/a.jpg")]:
        with pytest.raises(DatasetError, match=f"'a' would be the artifact of both '{first}' and"):
            replay.check([Sample(first, ("c",)), Sample(other, ("c",))])
    with pytest.raises(
        DatasetError, match=r"holds nothing of these samples; it has 'a', 'b', the samples are 'x'"
    ):
        replay.check([Sample("x", ("c",))])


STEPS = [{"text": "It ran.", "image": "0101001-o-0.jpg"}]


def answers_of(folder: Path) -> Path:
    """A model's folder with one answer."""
    put_answer(folder, "0101001", STEPS)
    (folder / "0101001-o-0.jpg").write_bytes(png(3))
    return folder


@pytest.mark.parametrize("layout", [None, "opening"])
def test_answers_are_recognised(tmp_path: Path, layout: str | None) -> None:
    """By looking, and the same when the layout is named."""
    folder = answers_of(tmp_path / "SEED-X_output")
    answers = open_answers(str(folder), layout, {})

    assert (answers.name, answers.model, answers.path) == ("opening", "SEED-X", folder)
    assert not answers.partial


def test_a_part_of_the_answers_is_asked_for(tmp_path: Path) -> None:
    """With the layout's only parameter."""
    folder = answers_of(tmp_path / "SEED-X_output")
    questions = [Sample(uid, ("c",), question=("?",)) for uid in ("0101001", "0101002")]
    open_answers(str(folder), None, {"partial": "true"}).check(questions)
    with pytest.raises(DatasetError, match="1 of 2 answers are missing"):
        open_answers(str(folder), None, {"partial": "false"}).check(questions)
    with pytest.raises(SpecError, match="the parameter partial is true or false, got 'yes'"):
        open_answers(str(folder), None, {"partial": "yes"})
    with pytest.raises(SpecError, match="unknown parameter of layout 'opening' 'part'"):
        open_answers(str(folder), None, {"part": "true"})


@pytest.mark.parametrize("layout", [None, "opening"])
def test_chain_suites_refuse_answers(tmp_path: Path, layout: str | None) -> None:
    """In one line, whether the layout was named or found."""
    folder = answers_of(tmp_path / "SEED-X_output")
    with pytest.raises(SpecError, match=r"layout opening is of answers.*suites that have \[answer"):
        open_replay(str(folder), layout, {})


@pytest.mark.parametrize("layout", [None, *LAYOUTS])
def test_answer_suites_refuse_chains(tmp_path: Path, layout: str | None) -> None:
    """Likewise, for every layout of chains."""
    put(tmp_path, "gen-1/0.png")
    with pytest.raises(SpecError, match=r"is of chains.*suites that have \[chain\]"):
        open_answers(str(tmp_path), layout, {})


def test_what_is_neither(tmp_path: Path) -> None:
    """Both kinds of layouts are named, whatever was expected."""
    put(tmp_path, "holiday.jpg")
    for opened in (open_replay, open_answers):
        with pytest.raises(DatasetError, match="which is no known layout") as raised:
            opened(str(tmp_path), None, {})
        for name in (*LAYOUTS, *ANSWER_LAYOUTS):
            assert f"\n  {name}: " in str(raised.value)
    with pytest.raises(DatasetError, match=r"gone: there is no such file or folder"):
        open_answers(str(tmp_path / "gone"), "opening", {})
    with pytest.raises(SpecError, match=r"unknown layout 'openign'\. Did you mean 'opening'\?"):
        open_answers(str(tmp_path), "openign", {})


def test_answers_between_chains_must_be_told_apart(tmp_path: Path) -> None:
    """No silent choice."""
    answers_of(tmp_path)
    put(tmp_path, "gen-1/0.png")
    for opened in (open_replay, open_answers):
        with pytest.raises(DatasetError, match="looks like mgg and opening: say which with"):
            opened(str(tmp_path), None, {})
    assert open_answers(str(tmp_path), "opening", {}).name == "opening"
    assert open_replay(str(tmp_path), "mgg", {}).name == "mgg"
