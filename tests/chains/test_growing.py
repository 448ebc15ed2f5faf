"""Chains as they should be: who is asked what, with which seed, and what is compared."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.chains import ChainPlan, start_chains
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.datasets.sample import (
    DrawnImage,
    EmbeddedImage,
    FileImage,
    Sample,
    load_seed_image,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics import cosine_to_start
from pytest_cepbench.store import Store
from tests.artifacts.files import encoded, noise
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    SmallDescriber,
    SmallEncoder,
    SmallGenerator,
    describe_image,
    draw_text,
    grow_and_trace,
    make_runners,
    outcomes,
    samples,
    vector_of,
)


def test_an_image_first_chain(store: Store) -> None:
    """I0 T1 I2 T3 I4: a step gets the one before, its prompt and seed; images are compared."""
    (trace,) = grow_and_trace(PLAN, samples(1), make_runners(store))
    image: Any = load_seed_image(samples(1)[0])
    expected, vectors = [image.digest], [vector_of(image.to_pil())]
    for generation in (1, 3):
        text = describe_image(image.to_pil(), "describe", None)
        image = ImageArtifact(draw_text(f"draw: {text}", derive_seed(0, "s00", generation + 1)))
        expected += [digest_text(text), image.digest]
        vectors.append(vector_of(image.to_pil()))
    assert [link.digest for link in trace.chain.links] == expected
    assert [link.kind for link in trace.chain.links] == ["image", "text", "image", "text", "image"]
    similarities = cosine_to_start(vectors[0][None], np.stack(vectors[1:])[None])[0]
    assert trace.similarities == tuple(similarities.tolist())
    assert (trace.failure, trace.failed_at) == (None, None)


def test_a_text_first_chain(store: Store) -> None:
    """T0 I1 T2 I3 T4: the same with the roles exchanged; texts are compared."""
    (trace,) = grow_and_trace(TEXT_PLAN, samples(1), make_runners(store))
    text, vectors = "text 0", [vector_of("text 0")]
    expected = [digest_text(text)]
    for generation in (1, 3):
        image = ImageArtifact(draw_text(f"draw: {text}", derive_seed(0, "s00", generation)))
        text = describe_image(image.to_pil(), "describe", None)
        expected += [image.digest, digest_text(text)]
        vectors.append(vector_of(text))
    assert [link.digest for link in trace.chain.links] == expected
    similarities = cosine_to_start(vectors[0][None], np.stack(vectors[1:])[None])[0]
    assert trace.similarities == tuple(similarities.tolist())


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])
def test_order_batches_and_shards_do_not_matter(plan: ChainPlan, tmp_path: Path) -> None:
    """A sample's chain is the same alone, in any batch, in any order and in any part of a run."""
    whole = samples(7)
    ways = {
        "whole": ([whole], 8),
        "reversed": ([whole[::-1]], 8),
        "one by one": ([whole], 1),
        "in threes": ([whole], 3),
        "in shards": ([whole[4:], whole[:2], whole[2:4]], 8),
    }
    runs = []
    for name, (shards, batch_size) in ways.items():
        with Store(tmp_path / name) as store:
            runners = make_runners(
                store, SmallDescriber(seeded=True), every={"batch_size": batch_size}
            )
            traces = [trace for shard in shards for trace in grow_and_trace(plan, shard, runners)]
            runs.append(outcomes(traces))
    assert all(actual == runs[0] for actual in runs)
    assert len({digests for digests, *_ in runs[0].values()}) == 7


def test_batches_are_as_large_as_allowed(store: Store) -> None:
    """All samples of a step are asked together, in batches of the role's size."""
    describer, generator, encoder = SmallDescriber(), SmallGenerator(), SmallEncoder()
    grow_and_trace(
        PLAN,
        samples(10),
        make_runners(store, describer, generator, encoder, every={"batch_size": 4}),
    )
    assert [len(call) for call in describer.calls] == [4, 4, 2] * 2
    assert [len(call) for call in generator.calls] == [4, 4, 2] * 2
    assert [len(call) for call in encoder.calls] == [4, 4, 2] * 3


def test_a_text_goes_into_the_prompt_as_it_is(store: Store) -> None:
    """Braces, placeholders and surrogates in a description are not formatted or lost."""
    words = "{description} {0} %s \\1 \udcff"
    generator = SmallGenerator()
    plan = ChainPlan("image", 2, "describe", "<{description}|{description}>")
    grow_and_trace(
        plan, samples(1), make_runners(store, SmallDescriber(lambda *_: words), generator)
    )
    assert generator.calls == [[f"<{words}|{words}>"]]


def test_the_describer_sees_upright_rgb(store: Store, tmp_path: Path) -> None:
    """A seed from a file reaches the model as the pixels that its digest names."""
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(Image.fromarray(noise()).convert("P"), "PNG"))
    seen: list[Image.Image] = []
    describer = SmallDescriber(
        # append gives None
        lambda image, *_: seen.append(image) or "a text"  # type: ignore[func-returns-value]
    )
    (trace,) = grow_and_trace(
        PLAN, [Sample("a", ("c",), image=FileImage(path))], make_runners(store, describer)
    )
    assert seen[0].mode == "RGB"
    assert ImageArtifact.from_pil(seen[0]).digest == trace.chain.links[0].digest


def test_no_samples_are_no_traces(store: Store) -> None:
    """An empty shard asks no model."""
    describer = SmallDescriber()
    assert grow_and_trace(PLAN, [], make_runners(store, describer)) == []
    assert describer.calls == []


def test_unusable_seeds_are_all_named_before_any_model_is_asked(
    store: Store, tmp_path: Path
) -> None:
    """One error lists every bad sample, so that a folder is cleaned in one go."""
    (tmp_path / "text.jpg").write_text("no image")
    bad = [
        Sample("bad/text.jpg", ("c",), image=FileImage(tmp_path / "text.jpg")),
        Sample("bad/gone.png", ("c",), image=FileImage(tmp_path / "gone.png")),
        Sample("bad/none", ("c",), text="only a text"),
    ]
    describer, generator, encoder = SmallDescriber(), SmallGenerator(), SmallEncoder()
    with pytest.raises(DatasetError, match="3 of 5 samples cannot be used") as caught:
        grow_and_trace(
            PLAN, [*samples(2), *bad], make_runners(store, describer, generator, encoder)
        )
    assert all(sample.id in str(caught.value) for sample in bad)
    assert describer.calls == generator.calls == encoder.calls == []


def test_texts_that_cannot_start_a_chain_are_named(store: Store) -> None:
    """No text and a blank text, in a text-first suite."""
    bad = [
        Sample("none", ("c",), image=DrawnImage(lambda: ImageArtifact(noise()))),
        Sample("blank", ("c",), text=" \n"),
    ]
    with pytest.raises(
        DatasetError, match=r"(?s)2 of 3 samples.*none: has no text.*blank: has no text"
    ):
        grow_and_trace(TEXT_PLAN, [*samples(1), *bad], make_runners(store))


def test_a_long_list_of_unusable_seeds_is_cut(store: Store) -> None:
    """The number is said, and enough of the names to see the pattern."""
    bad = [Sample(f"bad{i:03}", ("c",), text="x") for i in range(50)]
    with pytest.raises(DatasetError, match=r"(?s)50 of 50 samples.*bad019.*\.\.\.") as caught:
        grow_and_trace(PLAN, bad, make_runners(store))
    assert "bad020" not in str(caught.value)
    with pytest.raises(DatasetError, match="bad019") as caught:
        grow_and_trace(PLAN, bad[:20], make_runners(store))
    assert not str(caught.value).endswith("...")


def test_images_inside_a_file_have_digests_of_their_own(store: Store, tmp_path: Path) -> None:
    """Several lie in one file: each is remembered by its place there, until the file changes."""
    path = tmp_path / "table"
    parts = [b64encode(encoded(Image.fromarray(noise(seed=seed)), "PNG")) for seed in (1, 2)]
    path.write_bytes(b"".join(parts))
    os.utime(path, (1, 1))  # so that its digests are remembered
    places = ((0, len(parts[0])), (len(parts[0]), len(parts[1])))
    seeds = [
        Sample(f"row {row}", ("c",), image=EmbeddedImage(path, offset, length, f"row {row}"))
        for row, (offset, length) in enumerate(places)
    ]
    for _ in range(2):
        chains = start_chains(PLAN, seeds, store)
        assert [chain.links[0].digest for chain in chains] == [
            ImageArtifact(noise(seed=seed)).digest for seed in (1, 2)
        ]


def test_an_error_that_is_not_the_seed_s_passes_as_it_is(store: Store) -> None:
    """A bug of a generator of scenes is not a sample that cannot be used."""

    def draw() -> ImageArtifact:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start_chains(PLAN, [Sample("a", ("c",), image=DrawnImage(draw))], store)
