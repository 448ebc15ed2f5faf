"""Folders of images, and those of MME: what is found, how it is named, and what is refused."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

import pytest

from pytest_cepbench.datasets.folder import CATEGORIES, load_folder, load_mme, load_sounds
from pytest_cepbench.datasets.sample import FileImage, FileSound
from pytest_cepbench.errors import DatasetError
from tests.datasets.files import png, put


def ids(root: Path) -> list[str]:
    """The ids of a folder's samples."""
    return [sample.id for sample in load_folder(root).samples]


def test_what_is_passed_over(tmp_path: Path) -> None:
    """What the system or an editor left, what is no image by its suffix, thumbnails and what was
    deleted, wherever the system keeps them, is no sample.
    """
    put(tmp_path, "a.PNG", "b.Jpeg", "c.webp", "d.bmp", "e.gif", "f.tif", "g.tiff", "h.jpg")
    put(tmp_path, ".hidden.png", "._resource.png", ".git/x.png", "cats/.thumbs/y.png")
    put(tmp_path, "notes.txt", "movie.mp4", "png", "archive.png.zip")
    assert load_folder(tmp_path).notes == ()
    for folder in ("@eaDir/photo.jpg", "#recycle", "__MACOSX", "lost+found"):
        put(tmp_path, "cats/a.png", f"{folder}/thumb.png", f"cats/{folder}/thumb.png")
    read = "a.PNG b.Jpeg c.webp cats/a.png d.bmp e.gif f.tif g.tiff h.jpg"
    assert ids(tmp_path) == read.split()


def test_ids_agree_over_systems(tmp_path: Path) -> None:
    """Names are normalized (NFC): a Mac's decomposed accents name the same sample."""
    decomposed = unicodedata.normalize("NFD", "café/é.png")
    assert ids(put(tmp_path, decomposed)) == ["café/é.png"]
    (sample,) = load_folder(tmp_path).samples
    assert isinstance(sample.image, FileImage)
    assert sample.image.load().size == (3, 2)
    put(tmp_path, "café/é.png")  # neither of the two may stand for the other silently
    with pytest.raises(DatasetError, match=r"sample id 'café/é\.png' is there twice"):
        load_folder(tmp_path)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """It could not be written into a baseline: the name is shown, with what to do."""
    for name in (b"1/caf\xe9.png", b"2/caf\xe9/x.png"):
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        path.parent.mkdir(parents=True)
        path.write_bytes(png(0))
        with pytest.raises(DatasetError, match=r"'caf\\udce9.*is not UTF-8: rename it") as caught:
            load_folder(tmp_path / name[:1].decode())
        str(caught.value).encode()


def test_links_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    """Linked folders count; a link back to the top, or two to the same folder, end the walk."""
    put(tmp_path / "elsewhere", "x.png")
    put(tmp_path / "data", "cats/a.png")
    data = tmp_path / "data"
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    (data / "again").symlink_to(tmp_path / "elsewhere")
    (data / "cats" / "loop").symlink_to(data)
    (data / "self").symlink_to(data / "self")
    (data / "file.png").symlink_to(tmp_path / "elsewhere" / "x.png")
    assert ids(data) == ["again/x.png", "cats/a.png", "file.png"]


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path: Path) -> None:
    """Its images would be missing without a message; here the path is too long for the system."""
    put(tmp_path, "a.png")
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(DatasetError, match=r"cannot be read: File name too long"):
        load_folder(tmp_path)


def test_what_is_no_folder_of_images_says_so(tmp_path: Path) -> None:
    """A mistyped path, an archive or a single image in the folder's place, as what it is. A gate
    over nothing must not pass: without an image the suffixes that were looked for are listed.
    """
    put(tmp_path, "a.png", "text/notes.txt", "text/x/data.csv", "hidden/.hidden.png")
    (tmp_path / "empty").mkdir()
    for name, what in (("gone", "does not exist"), ("a.png", "is a file")):
        for load, words in (
            (load_folder, "data folder '.*/{}' {}: a folder of images is expected"),
            (load_mme, "MME folder '.*/{}' {}: the folder of the category folders is expected"),
        ):
            with pytest.raises(DatasetError, match=words.format(re.escape(name), what)):
                load(tmp_path / name)
    words = r"no images in .*\(looked for .*\.bmp, \.gif, \.jfif"
    for name in ("empty", "text", "hidden"):
        with pytest.raises(DatasetError, match=words):
            load_folder(tmp_path / name)


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        (None, r"'a\.png' has no caption: .* needs 'a\.txt' beside it"),
        (".", r"caption file '.*a\.txt' cannot be read: Is a directory"),
        ("gone", r"caption file '.*a\.txt' cannot be read: No such file"),
        (b"caf\xe9", r"caption file '.*a\.txt' is not UTF-8"),
        ("a cat".encode("utf-16"), r"caption file '.*a\.txt' is not UTF-8"),
        (b"\xed\xa0\x80", r"caption file '.*a\.txt' is not UTF-8"),
        ("é".encode() * 500_001, r"a\.txt' .* at most 1,000,000 are expected"),
    ],
    ids=["missing", "folder", "link to nothing", "Latin-1", "UTF-16", "surrogate", "huge"],
)
def test_a_caption_that_cannot_be_used_is_an_error(
    tmp_path: Path, caption: bytes | str | None, words: str
) -> None:
    """It is named; no encoding is guessed, and nothing is cut."""
    put(tmp_path, "a.png")
    path = tmp_path / "a.txt"
    if isinstance(caption, str):
        path.symlink_to(caption)
    elif caption is not None:
        path.write_bytes(caption)
    with pytest.raises(DatasetError, match=words):
        load_folder(tmp_path, captions=True)


def test_all_missing_categories_are_named(tmp_path: Path) -> None:
    """A mean over 12 of 14 categories is not MME's: each that is absent or empty is said."""
    put(tmp_path, *(f"{name}/0.png" for name in {*CATEGORIES} - {"OCR", "count", "scene"}))
    (tmp_path / "scene" / "images").mkdir(parents=True)
    put(tmp_path, "scene/0.png")  # beside images/, where they would have to be
    with pytest.raises(
        DatasetError, match=r"no images for 3 of the 14 .*: count, scene, OCR \(each is"
    ):
        load_mme(tmp_path)


def test_sounds_are_found_as_images_are(tmp_path: Path) -> None:
    """By suffix in any case, folders being categories, with texts beside them. Of a folder that has
    both the note counts the others, and names the loader that has them.
    """
    sounds, mixed = tmp_path / "sounds", tmp_path / "mixed"
    put(sounds, "loose.wav", "rain/b.FLAC", "rain/a.ogg", ".hidden.wav")
    for name in ("loose", "rain/a", "rain/b"):
        (sounds / f"{name}.txt").write_text(f"the sound of {name}\n")
    dataset = load_sounds(sounds, captions=True)
    assert [(own.id, own.categories, own.text) for own in dataset.samples] == [
        ("loose.wav", ("sounds",), "the sound of loose"),
        ("rain/a.ogg", ("rain",), "the sound of rain/a"),
        ("rain/b.FLAC", ("rain",), "the sound of rain/b"),
    ]
    assert dataset.samples[0].sound == FileSound(sounds / "loose.wav")
    assert dataset.samples[0].image is None
    assert (dataset.identity["loader"], dataset.notes) == ("sounds", ())
    put(mixed, "a.png", "b.wav", "c.wav", "d.mp3", "e.heic", "f.parquet")
    for load, names, note in (
        (load_folder, ["a.png"], "1 .heic, 1 .mp3, 1 .parquet, 2 .wav passed over: folder reads"),
        (
            load_sounds,
            ["b.wav", "c.wav"],
            "1 .heic, 1 .mp3, 1 .parquet, 1 .png passed over: sounds reads",
        ),
    ):
        dataset = load(mixed)
        assert [own.id for own in dataset.samples] == names
        assert note in dataset.notes[0]
    assert ", and tables are read from a folder without images" in load_folder(mixed).notes[0]
