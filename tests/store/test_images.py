"""Images in memory: few enough, and gone when they are to be read from disk again."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.store import Store
from pytest_cepbench.store.images import ImageCache
from tests.artifacts.files import noise


def test_the_oldest_make_room() -> None:
    """No more bytes of pixels are held than allowed; an image over the limit is not held at all."""
    images = [ImageArtifact(noise(4, 5, seed=number)) for number in range(4)]
    recent = ImageCache(most=2 * images[0].pixels.nbytes)
    for image in images[:3]:
        recent.add(image)
    assert [recent.get(image.digest) for image in images] == [None, *images[1:3], None]
    recent.add(images[1])
    recent.add(images[3])
    assert [recent.get(image.digest) for image in images] == [None, None, *images[2:]]
    recent.add(ImageArtifact(noise(40, 50)))
    assert all(recent.get(image.digest) is None for image in images)


def test_what_was_cleared_is_read_from_disk(tmp_path: Path) -> None:
    """So that the next who looks at a damaged file notices."""
    with Store(tmp_path) as store:
        image = ImageArtifact(noise(4, 5))
        store.put_image(image)
        assert store.image_cache.get(image.digest) is image
        store.image_cache.clear()
        assert store.image_cache.get(image.digest) is None
        stored = store.get_image(image.digest)
        assert stored is not None
        assert stored is not image
        assert stored.digest == image.digest
