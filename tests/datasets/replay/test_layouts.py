"""Chains and answers in the layouts of other tools: what is read of each, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.replay import LAYOUTS
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError, SpecError
from tests.datasets.files import coded, held, open_chains, put, put_table, recorded


def test_a_geneval_folder_is_read(tmp_path: Path) -> None:
    """Four or five digits, PNG, JPEG or WebP; grids, metadata and leftovers are passed over."""
    put(tmp_path, "00000/samples/0000.png", "00012/samples/00000.jpg", "00012/samples/00003.webp")
    put(tmp_path, "00012/grid.png", "00012/samples/grid.png", "00012/samples/0001.png.tmp")
    (tmp_path / "00012" / "metadata.jsonl").write_text("{}")
    (tmp_path / "00013").mkdir()
    replay = open_chains(tmp_path)
    assert recorded(replay) == {"text": [1], "image": []}
    names = ("00000", "00012", "00012-0", "00012-3", "00012-1", "00013", "bench")
    assert [held(replay, name, "text", 1) for name in names] == [0, 1, 1, 2, None, None, None]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("00001/samples/0000.png", "00001/samples/00000.png"),
         "holds both '0000.png' and '00000.png'|holds both '00000.png' and '0000.png'"),
        (("00001/samples/0000.png", "00001/samples/0000.jpg"), "both '0000.jpg' and '0000.png'"),
        (("00001/samples/0000.png", "0001/samples/0001.png"), "holds both '00001' and '0001'"),
        (("00001/samples/grid.png",), "holds no image in folders like 00000/samples/"),
        (("image-first/gen-1/a.png",),
         r"generation 1 of a image-first .* captions in gen-1\.csv"),
        (("text-first/gen-1/a.png", "text-first/gen-01/a.png"),
         "holds both 'gen-01' and 'gen-1'"),
        (("image-first/gen-0/a.png",), "holds no generation after gen-0"),
        (("a_0.jpg", "a_0.png"), r"holds 'a_0\.jpg' and 'a_0\.png': keep one"),
        (("a_0.jpg", "a_00.jpg"),
         "holds 'a' in more than one folder"),
        (("c/results_x/a_0.jpg", "results_x/c/a_0.jpg"),
         "holds 'c/a' in more than one folder"),
    ],
)  # fmt: skip
def test_files_that_are_no_chains_are_refused(
    tmp_path: Path, names: tuple[str, ...], words: str
) -> None:
    """Two files for one image, none at all, or images where a layout has none."""
    with pytest.raises(DatasetError, match=words):
        open_chains(put(tmp_path, *names))


def test_links_out_of_generations_are_not_followed(tmp_path: Path) -> None:
    """Downloaded chains cannot read other files of the machine; links that stay inside can."""
    secret = put_table(tmp_path / "secret.csv", [["filename", "caption"], ["a", "password"]])
    for link in ("gen-1", "gen-1/b.png", "gen-2.csv"):
        root = put(tmp_path / link / "root", "text-first/gen-3/a.png")
        chain = root / "text-first"
        (chain / "gen-3" / "linked.png").symlink_to(chain / "gen-3" / "a.png")
        assert held(open_chains(root), "linked", "text", 3) == 0
        place = chain / link
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(tmp_path if link == "gen-1" else secret)
        words = rf"{place}' is a link out of '.*root': put the file"
        with pytest.raises(DatasetError, match=words):
            open_chains(root)


TRAP = b"cbuiltins\nexit\n(I3\ntR."  # ends the process when it is unpickled


def test_images_are_those_of_the_iterations(tmp_path: Path) -> None:
    """Iteration i + 1 is generation 2(i + 1) of an image-first chain; texts are not recorded."""
    put(tmp_path, *(f"{stem}_{i}.jpg" for stem in ("cat", "my.dog_1") for i in range(3)))
    (tmp_path / "cat_result.pkl").write_bytes(TRAP)
    (tmp_path / "GC@3.json").write_text("{}")
    replay = open_chains(tmp_path)
    assert recorded(replay) == {"image": [2, 4, 6], "text": []}
    shown = [held(replay, "cat.png", "image", g) for g in range(1, 8)]
    assert shown == [None, 0, None, 1, None, 2, None]
    assert [held(replay, "my.dog_1.jpg", "image", g) for g in (2, 4, 6)] == [3, 4, 5]
    assert held(replay, "pets/cat.jpg", "image", 2) == 0
    assert held(replay, "my", "image", 2) is None  # fmt: skip


@pytest.mark.parametrize(
    "place", ["{}/", "{}/results_gpt-4o/", "results_gpt-4o/{}/", "{}/images/results_gpt-4o/"]
)
def test_each_category_has_its_own_images(tmp_path: Path, place: str) -> None:
    """MME repeats its file names: folders of categories, with results below or above them."""
    names = [place.format(category) + "0001_0.jpg" for category in ("count", "OCR")]
    replay = open_chains(put(tmp_path, *names))
    samples = [Sample("count/0001.jpg", ("count",)), Sample("OCR/0001.png", ("OCR",))]
    replay.check(samples)
    assert [held(replay, sample.id, "image", 2) for sample in samples] == [0, 1]
    assert held(replay, "posters/0001.jpg", "image", 2) is None  # fmt: skip


def test_several_models_must_be_told_apart(tmp_path: Path) -> None:
    """The results of two describers in one data folder: one of theirs can be given. Pickles are not
    opened even to look: this one would end the process.
    """
    put(tmp_path, "results_a/x_0.jpg", "results_b/x_0.jpg")
    with pytest.raises(DatasetError, match="several models: 'results_a', 'results_b'; put"):
        open_chains(tmp_path)
    assert held(open_chains(tmp_path / "results_a"), "x.png", "image", 2) == 0
    (tmp_path / "pickles").mkdir()
    (tmp_path / "pickles" / "cat_result.pkl").write_bytes(TRAP)
    with pytest.raises(DatasetError, match="but pickles, which are never opened"):
        open_chains(tmp_path / "pickles")


# -- MMGenBench -----------------------------------------------------------------------------------


def test_the_benchmarks_own_table_is_no_output(tmp_path: Path) -> None:
    """Its images are the seeds: they must not be taken for drawn ones. Nor may those of two
    generators of one describer.
    """
    predicted = [["index", "question", "prediction"], ["7", "?", "seven"], ["12", "?", "twelve"]]
    drawn = [["index", "image"], ["12", coded(12)], ["7", coded(7)]]
    seeds = [["index", "question", "image"], ["7", "Describe.", coded(0)]]
    put_table(tmp_path / "Qwen2-VL_MMGenBench-Test.tsv", predicted)
    put_table(tmp_path / "flux-1-dev.tsv", drawn)
    put_table(tmp_path / "MMGenBench-Test.tsv", seeds)
    assert held(open_chains(tmp_path), "7", "image", 2) == 7
    (tmp_path / "flux-1-dev.tsv").unlink()
    assert recorded(open_chains(tmp_path))["image"] == [1]
    for name in ("flux-1-dev.tsv", "kolors.tsv"):
        put_table(tmp_path / name, drawn)
    with pytest.raises(
        DatasetError, match=r"several tables of images: 'flux-1-dev\.tsv', 'kolors\.tsv'; put those"
    ):
        open_chains(tmp_path)


# -- which layout a path has -----------------------------------------------------------------------


def test_what_is_no_layout_is_described(tmp_path: Path) -> None:
    """What was found there, and every layout that would be read. A folder that is not what it is
    called is refused: nothing recorded is no measurement. So is an unknown layout.
    """
    with pytest.raises(DatasetError, match="the folder is empty, which is no known layout"):
        open_chains(tmp_path)
    put(tmp_path, "holiday.jpg", "more/x.txt")
    with pytest.raises(DatasetError, match=r"found 'holiday\.jpg', 'more/', which") as caught:
        open_chains(tmp_path)
    with pytest.raises(SpecError, match=r"unknown layout 'sdq'\. Did you mean 'sdp'\?"):
        open_chains(tmp_path, "sdq")
    for name in LAYOUTS:
        assert f"\n  {name}: " in str(caught.value)
        with pytest.raises(DatasetError, match="holds no"):
            open_chains(tmp_path, name)
    with pytest.raises(DatasetError, match="this is a single file, which is no known"):
        open_chains(tmp_path / "holiday.jpg")
    with pytest.raises(DatasetError, match=r"gone: there is no such file or folder"):
        open_chains(tmp_path / "gone")
    put(tmp_path, "text-first/gen-1/a_0.png")  # a name as GenCeption writes them, too
    assert open_chains(tmp_path).name == "sdp"


def test_one_artifact_never_stands_for_two_samples(tmp_path: Path) -> None:
    """Stems that two samples share are refused, and so are chains of other samples altogether."""
    replay = open_chains(put(tmp_path, "a_0.png", "b_0.png"))
    replay.check([Sample("a.jpg", ("c",)), Sample("x.jpg", ("c",))])
    for first, other in [("a.jpg", "a.png"), ("cats/a.jpg", "dogs/a.jpg")]:
        with pytest.raises(DatasetError, match=f"'a' would be the artifact of both '{first}' and"):
            replay.check([Sample(first, ("c",)), Sample(other, ("c",))])
    with pytest.raises(
        DatasetError, match=r"holds nothing of these samples; it has 'a', 'b', the samples are 'x'"
    ):
        replay.check([Sample("x", ("c",))])
