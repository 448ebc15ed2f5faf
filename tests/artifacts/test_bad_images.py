"""Files that are no usable image: each is refused in a sentence that says why."""

from __future__ import annotations

import threading
import time
import tracemalloc
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from pytest_cepbench.artifacts import Failure, ImageArtifact, decode_image, encode_image, read_image
from pytest_cepbench.artifacts import image as image_module
from pytest_cepbench.artifacts.image import MAX_PIXELS
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.chains import CallCounts
from pytest_cepbench.errors import ImageError, UnreadError
from tests.artifacts.files import encoded, noise, png_chunk, png_header

PICTURE = Image.fromarray(noise(24, 32))
SOUND = {kind: encoded(PICTURE, kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP")}


@pytest.mark.parametrize("kind", sorted(SOUND))
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data:UserWarning")  # Pillow's own, from a cut TIFF
def test_a_file_that_was_cut_off_is_refused(
    kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted download is never taken for a picture with a grey lower half.

    Also where training code has Pillow take it for one, which stays as it is for that code.
    """
    data = SOUND[kind]
    for fills_up in (False, True):
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", fills_up)
        with pytest.raises(ImageError, match=r"damaged|not an image"):
            decode_image(data[: int(len(data) * share)])
        assert ImageFile.LOAD_TRUNCATED_IMAGES is fills_up


def test_decoding_on_threads_leaves_filters_of_warnings_alone() -> None:
    """They belong to the process: a library's warning within a call of a model stays one."""
    calls, data = CallCounts(), encoded(Image.fromarray(noise(200, 200)), "PNG")
    done = threading.Event()

    def decode() -> None:
        while not done.is_set():
            decode_image(data)

    with ThreadPoolExecutor(2) as readers:
        reading = [readers.submit(decode) for _ in range(2)]
        outside = warnings.filters
        try:
            for _ in range(50):
                with calls.timed():
                    inside = warnings.filters
                    time.sleep(0.001)
                    assert warnings.filters is inside
                assert warnings.filters is outside
        finally:
            done.set()
        assert [own.result() for own in reading] == [None, None]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"a photo of a cat\n",
        b"\x89PNG",
        b"\xff\xd8\xff",
        b"%PDF-1.7\n",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        *(encoded(PICTURE, kind) for kind in ("PPM", "TGA", "PCX", "ICO")),
    ],
    ids=lambda data: str(data[:9]),
)
def test_what_is_no_image_is_refused(tmp_path: Path, data: bytes) -> None:
    """A text file named .jpg, an empty file, another kind of file: the formats are named.

    Others are refused though Pillow reads them: each decoder is a risk. A missing file and a folder
    in its place are errors of the image, not of Python.
    """
    with pytest.raises(ImageError, match="cannot be read: No such file"):
        read_image(tmp_path / "gone.png")
    with pytest.raises(ImageError, match="cannot be read: Is a directory"):
        read_image(tmp_path)
    path = tmp_path / "photo.jpg"
    path.write_bytes(data)
    with pytest.raises(ImageError, match=r"not an image of a known format \(PNG, JPEG, WEBP"):
        read_image(path)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_several_frames_are_refused(kind: str) -> None:
    """Animations and multi-page files have no single picture: the number of frames is said. MPO is
    a JPEG with a camera's preview behind it: the first picture is the one that was taken.
    """
    frames = [Image.fromarray(noise(seed=seed)) for seed in range(3)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    with pytest.raises(ImageError, match=r"animated or multi-page \(3 frames\): save the frame"):
        decode_image(data)
    previewed = [PICTURE.resize((8, 6))]
    data = encoded(PICTURE, "MPO", save_all=True, append_images=previewed, quality=95)
    assert decode_image(data).size == PICTURE.size


@pytest.mark.parametrize("size", [(50_000, 50_000), (10_000, 10_000), (2**31 - 1, 2**31 - 1)])
def test_a_decompression_bomb_is_refused_before_it_takes_memory(size: tuple[int, int]) -> None:
    """A file of 65 bytes can ask for gigabytes; the answer is an error, not an allocation."""
    data = png_header(*size)
    tracemalloc.start()
    try:
        with pytest.raises(
            ImageError, match=f"too large to decode.*limit is {MAX_PIXELS:,} pixels"
        ):
            decode_image(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_the_limit_counts_pixels_and_is_itself_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is Pillow's, above which that warns of an attack by decompression.

    Programs that set Pillow's limit to None do not open this door.
    """
    assert MAX_PIXELS == Image.MAX_IMAGE_PIXELS
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(ImageError, match="50000 x 50000"):
        decode_image(png_header(50_000, 50_000))
    monkeypatch.setattr(image_module, "MAX_PIXELS", 24 * 32)
    assert decode_image(SOUND["PNG"]).size == (32, 24)
    monkeypatch.setattr(image_module, "MAX_PIXELS", 24 * 32 - 1)
    with pytest.raises(ImageError, match="32 x 24; the limit is 767 pixels"):
        decode_image(SOUND["PNG"])
    assert check_image(PICTURE) == Failure(
        "bad-image", "32 x 24 pixels; the limit is 767 pixels"
    )  # drawn: once stored it would seem damaged whenever it is read


@pytest.mark.slow
@settings(max_examples=300)
@given(st.sampled_from(sorted(SOUND)), st.data())
def test_a_flipped_bit_gives_an_image_or_an_image_error(kind: str, data: st.DataObject) -> None:
    """Whatever a damaged file makes a decoder do, no other kind of error comes out."""
    spoilt = bytearray(SOUND[kind])
    bit = data.draw(st.integers(0, len(spoilt) * 8 - 1))
    spoilt[bit // 8] ^= 1 << bit % 8
    said = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, about tags that make no sense
        try:
            decode_image(bytes(spoilt))
        except ImageError as error:
            said = str(error)
    assert said != ""


def test_a_damaged_pixel_of_a_png_is_noticed() -> None:
    """PNG data is checksummed: a flipped bit in it never becomes a slightly different picture."""
    data = bytearray(encode_image(ImageArtifact(noise(2, 16_384))))
    data[len(data) // 2] ^= 1
    with pytest.raises(ImageError, match="damaged"):
        decode_image(bytes(data))


LONG = zlib.compress(bytes(2 * 2**20))

REMARKS = {
    "text": png_chunk(b"zTXt", b"workflow\0\0" + LONG),
    "international text": png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + LONG),
    "color profile": png_chunk(b"iCCP", b"icc\0\0" + LONG),
    "many texts": b"".join(png_chunk(b"tEXt", b"a\0" + bytes(2**20 - 9)) for _ in range(65)),
    "EXIF": png_chunk(b"eXIf", bytes(2 * 2**20)),
}


@pytest.mark.parametrize("before", [b"IDAT", b"IEND"])
@pytest.mark.parametrize("remark", sorted(REMARKS))
def test_remarks_of_any_size_leave_a_sound_picture(remark: str, before: bytes) -> None:
    """Texts, profiles and EXIF that Pillow will not read say nothing of the pixels beside them."""
    sound = SOUND["PNG"]
    at = sound.index(before) - 4
    image = decode_image(sound[:at] + REMARKS[remark] + sound[at:])
    assert image.digest == decode_image(sound).digest
    if before == b"IDAT":  # cut pixels are damaged whatever stands before them
        with pytest.raises(ImageError, match="damaged"):
            decode_image(sound[:at] + REMARKS[remark] + sound[at : len(sound) // 2])


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (encode_image(ImageArtifact(noise(24, 300)))[:-40], [24 * 300 * 24]),
        (encode_image(ImageArtifact(noise(300, 24)))[:-40], [300 * 24 * 24]),
        (SOUND["WEBP"][:-40], [1000 * 24]),  # lossy: its size stands elsewhere
        (SOUND["JPEG"][:-40], []),
        (SOUND["PNG"][:-40], []),
    ],
    ids=["wide", "high", "lossy", "JPEG", "PNG"],
)
def test_a_damaged_webp_is_told_from_want_of_memory(
    data: bytes, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What decoding it takes is asked for, in bytes: where it is not there, nothing is said of the
    file.
    """
    sizes: list[int] = []
    room = [True]

    def empty(size: int, _: object) -> None:
        sizes.append(size)
        if not room[0]:
            raise MemoryError

    monkeypatch.setattr("pytest_cepbench.artifacts.image.np.empty", empty)
    if asked == [24_000]:
        monkeypatch.setattr(image_module, "MAX_PIXELS", 1000)
    for room[0], error in ((True, ImageError), (False, UnreadError if asked else ImageError)):
        with pytest.raises(error):
            decode_image(data)
    assert sizes == asked * 2


@pytest.mark.parametrize("error", [MemoryError(), ImportError("no handle is left")])
def test_a_decoder_without_memory_says_nothing_of_the_file(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be whole."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(UnreadError, match="no memory is left to decode it"):
        decode_image(SOUND["PNG"])
