"""Chains in the layouts of other tools: what is read of each, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.datasets.replay.layouts import prompt_and_image
from pytest_cepbench.datasets.sample import FileImage, Sample
from pytest_cepbench.errors import DatasetError, ImageError
from tests.datasets.replay.files import held, put, put_table, recorded


@given(st.integers(0, 99_999), st.none() | st.integers(0, 99))
def test_ids_name_prompt_and_image(prompt: int, image: int | None) -> None:
    """With and without the number of the image, which is 0 then."""
    name = f"{prompt:05}" if image is None else f"{prompt:05}-{image}"
    assert prompt_and_image(Sample(name, ("c",))) == (prompt, image or 0)


@pytest.mark.parametrize("name", ["bench", "00012-", "-3", "1-2-3", "٣", "cats/00012.png"])
def test_other_ids_are_not_prompts(name: str) -> None:
    """Samples of other data sets have no place in these layouts."""
    assert prompt_and_image(Sample(name, ("c",))) is None


def test_a_geneval_folder_is_read(tmp_path: Path) -> None:
    """Four or five digits, PNG, JPEG or WebP; grids, metadata and leftovers are passed over."""
    put(tmp_path, "00000/samples/0000.png", "00012/samples/00000.jpg", "00012/samples/00003.webp")
    put(tmp_path, "00012/grid.png", "00012/samples/grid.png", "00012/samples/0001.png.tmp")
    (tmp_path / "00012" / "metadata.jsonl").write_text("{}")
    (tmp_path / "00013").mkdir()
    replay = open_replay(str(tmp_path), None, {})
    assert recorded(replay) == {"text": [1], "image": []}
    names = ("00000", "00012", "00012-0", "00012-3", "00012-1", "00013", "bench")
    assert [held(replay, name, "text", 1) for name in names] == [0, 1, 1, 2, None, None, None]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("00001/samples/0000.png", "00001/samples/00000.png"),
         "holds both '0000.png' and '00000.png'|holds both '00000.png' and '0000.png'"),
        (("00001/samples/0000.png", "00001/samples/0000.jpg"), "holds '0000.jpg' and '0000.png'"),
        (("00001/samples/0000.png", "0001/samples/0001.png"), "holds both '00001' and '0001'"),
        (("00001/samples/grid.png",), "holds no image in folders like 00000/samples/"),
        (("gen-2/0.png",), r"gen-2': generations of images are odd"),
        (("image-first/gen-1/a.png",),
         r"generation 1 of a image-first .* captions in gen-1\.csv"),
        (("text-first/gen-1/a.png", "text-first/gen-01/a.png"),
         "holds generation 1 twice: 'gen-01' and 'gen-1'"),
        (("image-first/gen-0/a.png",), "holds no generation after gen-0"),
        (("a_0.jpg", "a_0.png"), r"holds 'a_0\.jpg' and 'a_0\.png': keep one"),
        (("a_0.jpg", "a_00.jpg"),
         "holds 'a_00' of '.' in more than one|holds 'a_0' of '.' in more"),
        (("c/results_x/a_0.jpg", "results_x/c/a_0.jpg"),
         "holds 'a_0' of 'c' in more than one folder"),
    ],
)  # fmt: skip
def test_files_that_are_no_chains_are_refused(
    tmp_path: Path, names: tuple[str, ...], words: str
) -> None:
    """Two files for one image, none at all, or images where a layout has none."""
    with pytest.raises(DatasetError, match=words):
        open_replay(str(put(tmp_path, *names)), None, {})


def test_mgg_folders_are_read(tmp_path: Path) -> None:
    """Images by the line of their prompt, of the odd generations; one image per prompt."""
    put(tmp_path, "gen-1/0.png", "gen-1/10.png", "gen-3/10.png", "gen-3/x.png", "gen-19/552.jpg")
    (tmp_path / "gen-0").mkdir()
    replay = open_replay(str(tmp_path), None, {})
    assert recorded(replay) == {"text": [1, 3, 19], "image": []}
    assert [held(replay, "00010", "text", g) for g in (1, 2, 3, 19)] == [1, None, 2, None]
    assert [held(replay, name, "text", 1) for name in ("00000", "00010-0", "00010-1")] == [
        0,
        1,
        None,
    ]
    assert held(replay, "00552", "text", 19) == 4


def test_one_chain_of_sdp_is_not_mgg(tmp_path: Path) -> None:
    """Its names are not lines of GenEval: the list of layouts asks for the folder above it."""
    put(tmp_path, "gen-1/0001.png")
    (tmp_path / "gen-2.csv").write_text("filename,caption\n0001.png,x\n")
    with pytest.raises(DatasetError, match=r"found 'gen-1/', 'gen-2\.csv', which is no known"):
        open_replay(str(tmp_path), None, {})


@pytest.mark.parametrize("place", ["00001/samples", "gen-1"])
def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, place: str) -> None:
    """Neither a linked image nor a linked folder."""
    put(tmp_path / "other", "0000.png")
    folder = put(tmp_path / "root", f"{place}/0000.png") / place
    (folder / "0001.png").symlink_to(tmp_path / "other" / "0000.png")
    with pytest.raises(DatasetError, match=r"0001\.png' is a link out of"):
        open_replay(str(tmp_path / "root"), None, {})
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(DatasetError, match=rf"{place}' is a link out of"):
        open_replay(str(tmp_path / "root"), None, {})


def build(root: Path) -> Path:
    """Two pairs over four generations of both chains, the rows in different orders."""
    put(root, "image-first/gen-0/a.png", "image-first/gen-0/b.png")
    put_table(
        root / "text-first/gen-0.csv", [["filename", "caption"], ["a.png", "A"], ["b.png", "B"]]
    )
    for start, first in (("text-first", 2), ("image-first", 1)):
        for generation in (first, first + 2):
            rows = [["b.png", f"b{generation}"], ["a.jpg", f'"a",\n{generation} ']]
            put_table(root / start / f"gen-{generation}.csv", [["filename", "caption"], *rows])
        for generation in (3 - first, 5 - first):
            put(root, f"{start}/gen-{generation}/b.jpg", f"{start}/gen-{generation}/a.webp")
    (root / "m_image-first_image_to_image_with_dino.pkl").write_bytes(b"never opened")
    (root / "text-first" / "final.png").write_bytes(b"")
    return root


def opened(root: Path) -> Replay:
    """The replay of a folder, its layout found by looking."""
    return open_replay(str(root), None, {})


def test_both_chains_are_read_by_name(tmp_path: Path) -> None:
    """Texts as they were written, images by their stem, whatever the order or the suffix."""
    replay = opened(build(tmp_path))
    assert recorded(replay) == {"text": [1, 2, 3, 4], "image": [1, 2, 3, 4]}
    assert [held(replay, "a", "text", g) for g in range(1, 5)] == [1, '"a",\n2 ', 1, '"a",\n4 ']
    assert [held(replay, "b", "text", g) for g in range(1, 5)] == [0, "b2", 0, "b4"]
    assert [held(replay, "b", "image", g) for g in range(1, 5)] == ["b1", 0, "b3", 0]
    assert held(replay, "nocaps/a.jpg", "image", 2) == 1
    assert held(replay, "c", "image", 2) is None
    assert held(replay, "a", "image", 5) is None


def test_a_missing_row_shifts_nothing(tmp_path: Path) -> None:
    """The authors' code would give b's text to the next; here b's is missing, a's is empty."""
    rows = [["filename", "caption"], ["a.png", ""], ["c.png", "C"]]
    put_table(tmp_path / "image-first" / "gen-1.csv", rows)
    replay = opened(tmp_path)
    assert [held(replay, name, "image", 1) for name in "abc"] == ["", None, "C"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["../../x.png", "X"], "leads out of the folder"),
        (["/x.png", "X"], "is an absolute path"),
        (["a.jpg", "again"], "'a.jpg' is there twice"),
        (["b.png"], "1 fields, the header has 2"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, row: list[str], words: str) -> None:
    """With file, row and column."""
    rows = [["filename", "caption"], ["a.png", "A"], row]
    path = put_table(tmp_path / "image-first" / "gen-1.csv", rows)
    with pytest.raises(DatasetError, match=rf"{path}, row 2 \(line 3\).*{words}"):
        opened(tmp_path)


def test_captions_in_place_of_images_are_refused(tmp_path: Path) -> None:
    """They mean another start, not a gap."""
    put_table(tmp_path / "text-first" / "gen-1.csv", [["filename", "caption"]])
    with pytest.raises(DatasetError, match="generation 1 of a text-first chain is images in gen-1"):
        opened(tmp_path)


def test_latin_1_is_read_when_asked_for(tmp_path: Path) -> None:
    """Never guessed."""
    path = put_table(tmp_path / "image-first" / "gen-1.csv", [["filename", "caption"]])
    path.write_bytes(b"filename,caption\na.png,caf\xe9\n")
    with pytest.raises(DatasetError, match=r"column 'caption': not UTF-8 at byte 26"):
        opened(tmp_path)
    replay = open_replay(str(tmp_path), None, {"encoding": "latin-1"})
    assert held(replay, "a", "image", 1) == "café"


def test_a_damaged_image_is_there_and_does_not_load(tmp_path: Path) -> None:
    """It becomes a failure of its own chain, not of the run."""
    put(tmp_path, "text-first/gen-1/a.png", "text-first/gen-1/b.png")
    (tmp_path / "text-first" / "gen-1" / "b.png").write_bytes(b"\x89PNG")
    replay = opened(tmp_path)
    result = replay.artifact(Sample("b", ("c",)), "text", 1)
    assert isinstance(result, FileImage)
    with pytest.raises(ImageError, match="not an image"):
        result.load()


@pytest.mark.parametrize("link", ["gen-1", "gen-1/b.png", "gen-2.csv"])
def test_links_out_of_generations_are_not_followed(tmp_path: Path, link: str) -> None:
    """Downloaded chains cannot read other files of the machine; links that stay inside can."""
    secret = put_table(tmp_path / "secret.csv", [["filename", "caption"], ["a", "password"]])
    chain = put(tmp_path / "root", "text-first/gen-3/a.png") / "text-first"
    (chain / "gen-3" / "linked.png").symlink_to(chain / "gen-3" / "a.png")
    assert held(opened(tmp_path / "root"), "linked", "text", 3) == 0
    place = chain / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path if link == "gen-1" else secret)
    with pytest.raises(DatasetError, match=rf"{place}' is a link out of '.*root': put the file"):
        opened(tmp_path / "root")


TRAP = b"cbuiltins\nexit\n(I3\ntR."  # ends the process when it is unpickled


def opened_results(root: Path, **params: str) -> Replay:
    """The replay of a folder, its layout found by looking."""
    return open_replay(str(root), None, params)


def test_images_are_those_of_the_iterations(tmp_path: Path) -> None:
    """Iteration i + 1 is generation 2(i + 1) of an image-first chain; texts are not recorded."""
    put(tmp_path, *(f"{stem}_{i}.jpg" for stem in ("cat", "my.dog_1") for i in range(3)))
    (tmp_path / "cat_result.pkl").write_bytes(TRAP)
    (tmp_path / "GC@3.json").write_text("{}")
    replay = opened_results(tmp_path)
    assert recorded(replay) == {"image": [2, 4, 6], "text": []}
    assert [held(replay, "cat.png", "image", g) for g in range(1, 8)] == [
        None,
        0,
        None,
        1,
        None,
        2,
        None,
    ]
    assert [held(replay, "my.dog_1.jpg", "image", g) for g in (2, 4, 6)] == [3, 4, 5]
    assert held(replay, "pets/cat.jpg", "image", 2) == 0
    assert held(replay, "my", "image", 2) is None  # fmt: skip


def test_an_iteration_that_is_missing_is_missing(tmp_path: Path) -> None:
    """A chain that stopped is not mixed in with shorter ones."""
    replay = opened_results(put(tmp_path, "a_0.jpg", "a_1.jpg", "b_0.jpg"))
    assert [held(replay, "b.jpg", "image", g) for g in (2, 4)] == [2, None]


@pytest.mark.parametrize(
    "place", ["{}/", "{}/results_gpt-4o/", "results_gpt-4o/{}/", "{}/images/results_gpt-4o/"]
)
def test_each_category_has_its_own_images(tmp_path: Path, place: str) -> None:
    """MME repeats its file names: folders of categories, with results below or above them."""
    names = [place.format(category) + "0001_0.jpg" for category in ("count", "OCR")]
    replay = opened_results(put(tmp_path, *names))
    samples = [Sample("count/0001.jpg", ("count",)), Sample("OCR/0001.png", ("OCR",))]
    replay.check(samples)
    assert [held(replay, sample.id, "image", 2) for sample in samples] == [0, 1]
    assert held(replay, "posters/0001.jpg", "image", 2) is None  # fmt: skip


def test_seeds_beside_the_results_are_not_results(tmp_path: Path) -> None:
    """A photo called img_0 in the data folder is no drawing."""
    replay = opened_results(put(tmp_path, "img_0.jpg", "results_llava7b/img_0_0.jpg"))
    assert held(replay, "img_0.jpg", "image", 2) == 1
    assert held(replay, "img.jpg", "image", 2) is None


def test_several_models_must_be_told_apart(tmp_path: Path) -> None:
    """The results of two describers in one data folder: a parameter says whose are meant."""
    put(tmp_path, "results_a/x_0.jpg", "results_b/x_0.jpg")
    with pytest.raises(DatasetError, match="several models: 'results_a', 'results_b'; name one"):
        opened_results(tmp_path)
    assert held(opened_results(tmp_path, results="results_b"), "x.png", "image", 2) == 1
    with pytest.raises(DatasetError, match="has no folder 'results_c'; it has 'results_a'"):
        opened_results(tmp_path, results="results_c")
    assert held(opened_results(tmp_path / "results_a"), "x.png", "image", 2) == 0


def test_pickles_alone_are_refused_with_the_reason(tmp_path: Path) -> None:
    """They are not opened_results even to look: this one would end the process."""
    (tmp_path / "cat_result.pkl").write_bytes(TRAP)
    with pytest.raises(
        DatasetError,
        match=r"only pickles of GenCeption \('cat_result\.pkl'\): .* unpickling runs whatever code",
    ):
        opened_results(tmp_path)


def test_links_out_of_the_images_are_not_followed(tmp_path: Path) -> None:
    """Neither linked images nor linked folders, and a loop ends."""
    put(tmp_path / "other", "b_0.jpg")
    root = put(tmp_path / "root", "a_0.jpg")
    (root / "loop").symlink_to(root)
    assert held(opened_results(root), "a", "image", 2) == 0
    (root / "c").symlink_to(tmp_path / "other")
    with pytest.raises(DatasetError, match=r"root/c' is a link out of"):
        opened_results(root)
    (root / "c").unlink()
    (root / "b_0.jpg").symlink_to(tmp_path / "other" / "b_0.jpg")
    with pytest.raises(DatasetError, match=r"b_0\.jpg' is a link out of"):
        opened_results(root)
