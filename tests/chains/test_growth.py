"""Chains as they should be: who is asked what, with which seed, and which steps are left.

Then what is done to a description before it is drawn, what a baseline remembers of a model, which
is the keys of its steps, and progress over steps.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from base64 import b64encode
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.chains import Chain, ChainModels, ChainPlan, RoleRunner
from pytest_cepbench.chains import steps as steps_module
from pytest_cepbench.chains.chain import CaptionRules, derive_seed
from pytest_cepbench.chains.growth import ChainGroup, look_ahead, start_chains
from pytest_cepbench.chains.steps import Progress, recall, remember
from pytest_cepbench.datasets.sample import (
    DrawnImage,
    EmbeddedImage,
    FileImage,
    Sample,
    load_seed_image,
)
from pytest_cepbench.errors import (
    BaselineError,
    DamagedChainsError,
    DatasetError,
    NotInStoreError,
    StoreError,
)
from pytest_cepbench.metrics.gc import cosine_to_start
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from tests.artifacts.files import encoded, noise
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    RunnerSet,
    SmallDescriber,
    SmallGenerator,
    bound,
    describe_image,
    draw_text,
    grow_and_trace,
    inputs_of,
    make_runners,
    outcomes,
    samples,
    vector_of,
)


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])
def test_a_chain(plan: ChainPlan, store: Store) -> None:
    """Each step gets the artifact before, its prompt and seed; those like the start are compared.

    I0 T1 I2 T3 I4, or T0 I1 T2 I3 T4.
    """
    (trace,) = grow_and_trace(plan, samples(1), make_runners(store))
    made: list[Any] = [load_seed_image(samples(1)[0]) if plan is PLAN else "text 0"]
    for generation in range(1, 5):
        before, seed = made[-1], derive_seed(0, "s00", generation)
        made.append(
            ImageArtifact(draw_text(f"draw: {before}", seed))
            if isinstance(before, str)
            else describe_image(before.to_pil(), "describe", None)
        )
    digests = [digest_text(own) if isinstance(own, str) else own.digest for own in made]
    assert [link.digest for link in trace.chain.links] == digests
    vectors = [vector_of(own if isinstance(own, str) else own.to_pil()) for own in made[::2]]
    similarities = cosine_to_start(vectors[0][None], np.stack(vectors[1:])[None])[0]
    assert trace.similarities == tuple(similarities.tolist())
    assert (trace.failure, trace.failed_at) == (None, None)


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])
def test_order_batches_and_shards_do_not_matter(plan: ChainPlan, tmp_path: Path) -> None:
    """A sample's chain is the same alone, in any batch, in any order and in any part of a run."""
    whole = samples(7)
    ways = {
        "whole": ([whole], 8),
        "one by one from the end": ([whole[::-1]], 1),
        "in shards of at most three": ([whole[4:], whole[:2], whole[2:4]], 3),
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


def test_unusable_seeds_are_all_named_before_any_model_is_asked(
    store: Store, tmp_path: Path
) -> None:
    """One error lists every bad sample, so that a folder is cleaned in one go. In a text-first
    suite these are samples without a text.
    """
    (tmp_path / "text.jpg").write_text("no image")
    bad = [
        Sample("bad/text.jpg", ("c",), image=FileImage(tmp_path / "text.jpg")),
        Sample("bad/gone.png", ("c",), image=FileImage(tmp_path / "gone.png")),
        Sample("bad/none", ("c",), text="only a text"),
    ]
    runners = make_runners(store)
    with pytest.raises(DatasetError, match="3 of 5 samples cannot be used") as caught:
        grow_and_trace(PLAN, [*samples(2), *bad], runners)
    assert all(sample.id in str(caught.value) for sample in bad)
    bad = [
        Sample("none", ("c",), image=DrawnImage(lambda: ImageArtifact(noise()))),
        Sample("blank", ("c",), text=" \n"),
        Sample("nan", ("c",), text=float("nan")),  # type: ignore[arg-type] # as pandas has it
    ]
    with pytest.raises(
        DatasetError, match=r"(?s)3 of 4 samples.*none: has no text.*blank: has.*nan: has no text"
    ):
        grow_and_trace(TEXT_PLAN, [*samples(1), *bad], runners)
    assert runners.asked == [0, 0, 0]


def test_images_inside_a_file_have_digests_of_their_own(store: Store, tmp_path: Path) -> None:
    """Several lie in one file: each is remembered by its place there, until the file changes."""
    path = tmp_path / "table"
    parts = [b64encode(encoded(Image.fromarray(noise(seed=seed)), "PNG")) for seed in (1, 2)]
    path.write_bytes(b"".join(parts))
    os.utime(path, (1, 1))  # so that its digests are remembered
    places = ((0, len(parts[0])), (len(parts[0]), len(parts[1])))
    seeds = [
        Sample(f"row {row}", ("c",), image=EmbeddedImage(path, offset, length, 0, f"row {row}"))
        for row, (offset, length) in enumerate(places)
    ]
    for _ in range(2):
        chains = start_chains(PLAN, seeds, store)
        assert [chain.links[0].digest for chain in chains] == [
            ImageArtifact(noise(seed=seed)).digest for seed in (1, 2)
        ]


def test_chains_are_grown_once_when_they_are_needed_and_damage_is_mended(store: Store) -> None:
    """However often they are read. Only a lost drawing is made again, and the reader sees whole
    chains; a dying disk is named as such instead of being tried for ever.
    """
    describer, generator = SmallDescriber(), SmallGenerator()
    group = ChainGroup(PLAN, samples(3), make_runners(store, describer, generator).models())
    assert inputs_of(describer, generator) == 0
    assert [chain.sample.id for chain in group.chains] == ["s00", "s01", "s02"]
    assert group.read(len) == 3
    assert group.chains[0] is group.chains[0]
    assert inputs_of(describer, generator) == 3 * PLAN.generations

    before = [link for chain in group.chains for link in chain.links]
    lost = group.chains[2].links[4]
    store.artifact_path(lost.digest).unlink()
    tries = 0

    def use(chains: object) -> int:
        nonlocal tries
        tries += 1
        if store.get_artifact(lost.digest) is None:
            raise DamagedChainsError([str(lost.key)])
        return tries

    drawn = inputs_of(generator)
    assert group.read(use) == 2
    assert inputs_of(generator) == drawn + 1
    assert [link for chain in group.chains for link in chain.links] == before

    def lose(chains: list[Chain]) -> None:
        nonlocal tries
        tries += 1
        shutil.rmtree(store.root / "images")
        (store.root / "images").mkdir()
        raise DamagedChainsError([str(chains[0].links[2].key)])

    tries = 0
    with pytest.raises(StoreError, match=r"keep getting lost: is the disk failing\?"):
        group.read(lose)  # type: ignore[arg-type] # a list is what it gets
    assert tries <= PLAN.generations + 4


COUNT = 3


def _describer_named(name: str) -> SmallDescriber:
    """A describer whose texts name it."""
    return SmallDescriber(lambda image, prompt, seed: f"{name} {prompt} {image.getpixel((0, 0))}")


def _runners(store: Store, name: str) -> tuple[RunnerSet, SmallDescriber]:
    describer = _describer_named(name)
    return make_runners(store, describer, only={"describer": {"fingerprint": name}}), describer


def _grow(runners: RunnerSet, stand_ins: dict[int, RoleRunner]) -> list[Chain]:
    places = {(PLAN.start, generation): runner for generation, runner in stand_ins.items()}
    return ChainGroup(PLAN, samples(COUNT), runners.models(places)).chains


def _link_names(
    chains: list[Chain], last: int = PLAN.generations
) -> list[list[tuple[str, str | None]]]:
    """Digest and key of every link up to a generation."""
    return [[(link.digest, link.key) for link in chain.links[: last + 1]] for chain in chains]


def test_a_remembered_model_begins_chains_without_being_there(store: Store) -> None:
    """Its steps are found by what was written down of it. One that never played here raises, and
    nothing is stored in its name. With all hops put back, every link and key is the other's own.
    """
    (old, old_teller), (new, new_teller) = _runners(store, "old"), _runners(store, "new")
    (absent,) = recall(remember(old.describer.bound))
    words = "a step of the baseline's describer is not in the .* measure its model once with this"
    with pytest.raises(NotInStoreError, match=words):
        _grow(new, {1: RoleRunner(absent, store)})
    assert len(store) == 0
    own = _grow(old, {})
    assert _link_names(_grow(new, {1: old.describer, 3: old.describer})) == _link_names(own)
    assert inputs_of(new_teller) == 0
    asked = inputs_of(old_teller)
    begun = _grow(new, {1: RoleRunner(absent, store)})
    assert _link_names(begun, 2) == _link_names(own, 2)
    assert _link_names(begun, 3) != _link_names(own, 3)
    assert inputs_of(old_teller) == asked


def test_a_lost_image_of_a_remembered_model_is_missed(store: Store) -> None:
    """It cannot be made again, so its step counts as not stored; a fixed role's image can."""
    generator, fresh = SmallGenerator(), SmallGenerator()
    old = make_runners(store, None, generator, every={"fingerprint": "old"})
    new = make_runners(store, _describer_named("new"), fresh, every={"fingerprint": "new"})
    described = {1: old.describer}
    lost = _grow(old, {})[0].links[2]
    store.artifact_path(lost.digest).unlink()
    (absent,) = recall(remember(old.generator.bound))
    with pytest.raises(NotInStoreError):
        _grow(new, described | {2: RoleRunner(absent, store)})
    assert (inputs_of(generator), inputs_of(fresh)) == (2 * COUNT, 0)


def _models(store: Store, **changes: Any) -> ChainModels:
    return make_runners(store, SmallDescriber(seeded=True), every=changes).models()


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])
@pytest.mark.parametrize("grown", range(5))
def test_steps_in_the_store_are_found_to_the_last_generation(
    plan: ChainPlan, grown: int, store: Store
) -> None:
    """Neither more nor fewer, wherever the run before stopped; their runners are their roles'."""
    ChainGroup(plan, samples(COUNT), _models(store)).read(len, grown)
    models = _models(store, load=partial(pytest.fail, "a model is loaded"))

    pending = look_ahead(plan, samples(COUNT), models, None)

    actual = [(link.digest, link.key) for p in pending for link in p.chain.links]
    for chain in pending:
        assert (len(chain.stored), len(chain.missing)) == (grown, plan.generations - grown)
        assert [key for _, key in chain.stored] == [link.key for link in chain.chain.links[1:]]
        assert len(chain.digests) == plan.generations + 1
        assert list(chain.digests[: grown + 1]) == [link.digest for link in chain.chain.links]
        roles = [runner for runner, _ in (*chain.stored, *chain.missing)]
        assert roles == [models.runner(plan, g) for g in range(1, plan.generations + 1)]
    assert len(actual) == COUNT * (grown + 1)
    whole = ChainGroup(plan, samples(COUNT), _models(store)).chains
    kept = [(link.digest, link.key) for chain in whole for link in chain.links[: grown + 1]]
    assert actual == kept
    if grown < plan.generations:  # the next step starts from what is there: its key is known
        nexts = [chain.missing[0][1] for chain in pending]
        assert nexts == [chain.links[grown + 1].key for chain in whole]


# -- descriptions before they are drawn ------------------------------------------------------------

CLEAN = CaptionRules(clean=True)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a red bus", "a red bus"),
        ('"a red bus"', "a red bus"),
        ("  a red bus \n\n", "a red bus"),
        ('""a red bus""</s>', "a red bus"),
        ("a red bus<|im_end|>", "a red bus"),
        ("<|im_end|>a red <|im_end|>bus<|im_end|>", "a red bus"),
        ("a red bus<|im_end|></s>", "a red bus"),
        # Each once and in its order: what comes to light is not taken off again.
        ("a red bus</s><|im_end|>", "a red bus</s>"),
        ("a red bus</s></s>", "a red bus</s>"),
        ('"a red bus"\n', 'a red bus"'),
        ('  "a red bus"', '"a red bus'),
        ('a red bus "</s>', "a red bus"),
        ("\ta red bus\n\t", "\ta red bus\n\t"),
        ("\n a red bus \n", "\n a red bus"),
        # A quotation at the end loses its last quote.
        ('a sign reading "OPEN"', 'a sign reading "OPEN'),
        ("a sign reading 'OPEN'", "a sign reading 'OPEN'"),
        ("'a red bus'", "'a red bus'"),
        ("\u201ca red bus\u201d", "\u201ca red bus\u201d"),
        ("`a red bus`", "`a red bus`"),
        ('a bus that says "stop" here', 'a bus that says "stop" here'),
        ("a red bus<|eot_id|>", "a red bus<|eot_id|>"),
        ("</s> a bus <eos> at night", "</s> a bus <eos> at night"),
        ('"</s>', ""),
    ],
)
def test_cleaning_is_that_of_the_released_code(text: str, left: str) -> None:
    """What `pre_caption` of MMGenBench's `generate/tools.py` gives for each, to the letter."""
    assert CLEAN.apply(text) == left


@given(st.lists(st.text(alphabet="ab\n,"), max_size=90), st.integers(1, 80))
def test_words_are_counted_between_spaces(words: list[str], most: int) -> None:
    """The first words as they are, line ends within them; a short text is left alone."""
    text = " ".join(words)
    assert CaptionRules(max_words=most).apply(text) == " ".join(text.split(" ")[:most])
    if len(words) <= most:
        assert CaptionRules(max_words=most).apply(text) == text


def test_the_chain_keeps_the_whole_text_and_draws_the_cut_one(store: Store) -> None:
    """What is compared and shown is what the describer said; the generator gets less. Baselines say
    so, since another treatment makes numbers incomparable.
    """
    assert str(CaptionRules()) == "as they are"
    rules = CaptionRules(clean=True, max_words=70)
    assert str(rules) == "cleaned as by MMGenBench's code, at most 70 words"
    plan = replace(PLAN, generations=2, caption_rules=CaptionRules(clean=True, max_words=2))
    generator = SmallGenerator()
    runners = make_runners(store, SmallDescriber(lambda *_: '"one two three"'), generator)
    (trace,) = grow_and_trace(plan, samples(1), runners)
    assert trace.chain.links[1].text == '"one two three"'
    assert generator.calls == [["draw: one two"]]


def test_a_drawing_is_known_by_the_cut_text_alone(store: Store) -> None:
    """Texts that differ after the cut share one drawing, and a longer cut asks for another."""
    plan = replace(PLAN, generations=2, caption_rules=CaptionRules(max_words=2))
    unseeded: Any = {"generator": {"seeded": False}}
    other: Any = {"describer": {"fingerprint": "another"}, **unseeded}
    longer = replace(plan, caption_rules=CaptionRules(max_words=3))
    for rules, text, only, calls in (
        (plan, "one two three", unseeded, [["draw: one two"]]),
        (plan, "one two four", other, []),
        (longer, "one two four", other, [["draw: one two four"]]),
    ):
        describer, generator = SmallDescriber(lambda *_, text=text: text), SmallGenerator()
        grow_and_trace(rules, samples(1), make_runners(store, describer, generator, only=only))
        assert generator.calls == calls


@pytest.mark.parametrize("generation", [2, 4])
def test_a_text_of_which_nothing_is_left_fails_where_it_would_be_drawn(
    store: Store, generation: int
) -> None:
    """Quotes alone are a text, and an empty drawing order: the chain stops, its neighbors go on."""
    plan = replace(PLAN, caption_rules=CLEAN)
    silent = derive_seed(plan.seed, "s00", generation - 1)

    def tell(_: Any, __: str, seed: int | None) -> str:
        return '"" </s>' if seed == silent else "a text"

    describer = SmallDescriber(tell, seeded=True)
    first, second = grow_and_trace(plan, samples(2), make_runners(store, describer))
    assert second.failure is None
    assert first.failure is not None
    assert (first.failure.kind, first.failed_at) == ("empty-text", generation)
    assert first.failure.detail == "nothing is left of '\"\" </s>'"
    assert len(first.chain.links) == generation
    assert first.similarities[generation // 2 - 1 :] == (0.0,) * (3 - generation // 2)


# -- what is remembered of a model, and progress ---------------------------------------------------

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)

STEP = {"role": "describer", "adapter": "a/1", "fingerprint": "f", "params": {}, "seeded": True}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store; nothing is written to it."""
    with Store(tmp_path_factory.mktemp("kept") / "store") as opened:
        yield opened


@pytest.mark.slow
@given(
    role=st.sampled_from(["describer", "generator"]),
    params=st.dictionaries(st.text(), PLAIN, max_size=4),
    fingerprint=st.text(),
    seeded=st.booleans(),
)
def test_keys_survive(
    kept: Store, role: RoleName, params: dict[str, Any], fingerprint: str, seeded: bool
) -> None:
    """Whatever the parameters are, a recalled model has the keys of the one that was remembered."""
    model = bound(role, SmallDescriber(), params=params, fingerprint=fingerprint, seeded=seeded)
    (absent,) = recall(remember(model))
    runners = RoleRunner(model, kept), RoleRunner(absent, kept)
    asked = ("prompt", 7, "image", "digest")
    assert runners[0].key(*asked) == runners[1].key(*asked)
    assert remember(absent) == remember(model)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "names no role"),
        ("3", "Expected `object`"),
        (json.dumps([STEP, STEP]), "names describer, describer"),
        (json.dumps(STEP | {"role": "painter"}), "painter"),
        (json.dumps(STEP | {"more": 1}), "unknown field `more`"),
        (json.dumps({k: v for k, v in STEP.items() if k != "adapter"}), "`adapter`"),
        (json.dumps(STEP | {"seeded": "yes"}), "Expected `bool`"),
        (json.dumps(STEP | {"params": {"top_p": math.inf}}), "Out of range float values"),
    ],
)
def test_what_was_not_remembered_is_refused(text: str, says: str) -> None:
    """With the field that is wrong."""
    with pytest.raises(BaselineError, match=r"model\.step") as caught:
        recall(text)
    assert says in str(caught.value)


def test_the_rate_is_that_of_the_case_and_of_the_last_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From its begin on; the rest at that rate is what is left. A model that is slower than the
    one before, or than the store, shows soon.
    """
    clock = [50.0]
    monkeypatch.setattr(steps_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    progress = Progress()
    unknown = [progress.rate, progress.left]
    progress.begin("case", 1, 20)
    progress.add(0)  # no time has passed, nothing is done
    assert [*unknown, progress.rate] == [None] * 3
    clock[0] += 4
    progress.add(8)

    assert (progress.rate, progress.left) == (2.0, 6.0)
    assert Progress(parts=[progress, Progress(), progress]).rate == 4.0
    assert Progress(parts=[Progress()]).rate is None
    progress.add(22)
    assert progress.left == 0.0

    progress = Progress()
    progress.begin("case", 1, 1000)
    for steps, seconds in ((600, 1), (1, 59), (1, 1)):
        clock[0] += seconds
        progress.add(steps)
    assert progress.rate == pytest.approx(2 / 60)
    clock[0] += 1
    progress.add(1)
    assert progress.rate == pytest.approx(1.0)  # what is more than a minute old is left out
    clock[0] += 600
    progress.add(6)
    assert progress.rate == pytest.approx(6 / 600)
