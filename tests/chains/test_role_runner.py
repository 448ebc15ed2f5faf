"""A role at work on what is not a chain's own step, and files that change at its first answers.

Then results that come with something to be told: what they took, where they are from, what to say.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure
from pytest_cepbench.chains import RoleRunner, Step
from pytest_cepbench.chains.growth import ChainGroup, grow_generation, start_chains
from pytest_cepbench.chains.steps import Progress, key_of
from pytest_cepbench.datasets.sample import FileImage, Sample
from pytest_cepbench.errors import IdentityError, ImageError, ModelError
from pytest_cepbench.models.binding import CoveredFiles
from pytest_cepbench.models.protocols import CODE, CUT, Battle, Reply, Usage
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.maintenance import entries
from pytest_cepbench.store.rows import WITH_PROVENANCE
from tests.artifacts.files import encoded, noise
from tests.chains.answers.roles import SmallJudge
from tests.chains.roles import (
    PLAN,
    RunnerSet,
    SmallDescriber,
    SmallDetector,
    SmallEncoder,
    SmallGenerator,
    SmallRole,
    TruncatingEncoder,
    bound,
    describe_image,
    draw_text,
    find_all,
    inputs_of,
    make_runners,
    samples,
    verdicts_of,
)

TEXTS = ["one two three four", "one two", "one two three four five", "three words here"]


def _detector(store: Store, detector: SmallRole, **changes: Any) -> RoleRunner:
    return RoleRunner(bound("detector", detector, **changes), store)


def _encoder(store: Store, encoder: SmallRole, **changes: Any) -> RoleRunner:
    return RoleRunner(bound("encoder", encoder, **changes), store)


def _looks(runner: RoleRunner, count: int, queries: Sequence[str] = ("a cup",)) -> list[Step]:
    """Steps over so many pictures."""

    def step(number: int) -> Step:
        key = runner.key(" ".join(queries), 0, "image", f"image {number}")
        return Step(key, 0, lambda: (_picture(number), queries))

    return [step(number) for number in range(count)]


def _picture(number: int) -> Image.Image:
    return Image.fromarray(noise(6, 8, seed=number))


def _reads(runner: RoleRunner, texts: Sequence[str]) -> list[Step]:
    """Steps over these texts."""
    return [Step(runner.key("", 0, "text", text), 0, partial(str, text)) for text in texts]


def test_detections_are_found_in_batches_and_kept(tmp_path: Path) -> None:
    """The answers of the model for each image; a second run on the store loads no model."""
    detector = SmallDetector()
    with Store(tmp_path) as store:
        runner = _detector(store, detector, batch_size=2)
        actual = runner.ask("detect", _looks(runner, 5))
    assert detector.batches == [2, 2, 1]
    assert actual == [find_all(_picture(i), ["a cup"]) for i in range(5)]
    with Store(tmp_path) as store:
        again = _detector(store, SmallDetector())
        assert again.ask("detect", _looks(again, 5)) == actual
        assert (again.tally.loads, again.tally.inputs, again.tally.hits) == (0, 0, 5)


def test_numpy_numbers_of_a_detector_are_stored_as_plain_ones(tmp_path: Path) -> None:
    """float32 boxes and scores come back as floats of the same value, most confident first."""

    def answer(_: object, queries: Sequence[str]) -> Detections:
        numbers = np.array([[0, 0, 4, 4], [1, 1, 2, 2]], np.float32)
        scores = np.array([0.25, 0.75], np.float32)
        return Detections(
            tuple(Detection(queries[0], scores[i], tuple(numbers[i])) for i in range(2))
        )

    expected = [Detection("a cup", 0.75, (1, 1, 2, 2)), Detection("a cup", 0.25, (0, 0, 4, 4))]
    for _ in range(2):
        with Store(tmp_path) as store:
            runner = _detector(store, SmallDetector(answer))
            (actual,) = runner.ask("detect", _looks(runner, 1))
            assert isinstance(actual, Detections)
            assert list(actual.found) == expected
            assert {
                type(number) for item in actual.found for number in (item.score, *item.box)
            } == {float}


def test_texts_longer_than_the_encoder_reads_are_known(tmp_path: Path) -> None:
    """Each with its length and the most that is read; in the next run without loading."""
    cut = {TEXTS[0]: "4 of 3", TEXTS[2]: "5 of 3"}
    for asked in (len(TEXTS), 0):
        with Store(tmp_path) as store:
            encoder = TruncatingEncoder(most=3)
            runner = _encoder(store, encoder, batch_size=2)
            runner.ask("encode_texts", _reads(runner, TEXTS))
            assert runner.cut_texts(TEXTS) == cut
            assert {entry.model for entry in entries(store.index.read)} == {
                runner.bound.short_fingerprint
            }
            assert runner.cut_texts(TEXTS[1:2]) == runner.cut_texts([]) == {}
            assert (runner.tally.loads, inputs_of(encoder)) == (asked > 0, asked)


def test_they_are_known_of_what_was_stored_before_a_run_broke_off(store: Store) -> None:
    """The vectors of a whole batch are kept when the next one stops the run; so are its cuts. An
    encoder that cannot count is not asked, and images are not counted either.
    """

    def stop_at_the_second(texts: Sequence[str]) -> None:
        if TEXTS[3] in texts:
            raise ModelError("the device is gone")

    runner = _encoder(store, TruncatingEncoder(most=3, batch=stop_at_the_second), batch_size=2)
    with pytest.raises(ModelError, match="the device is gone"):
        runner.ask("encode_texts", _reads(runner, TEXTS))
    again = _encoder(store, TruncatingEncoder(most=3), batch_size=2)
    again.ask("encode_texts", _reads(again, TEXTS))
    assert again.tally.hits == 2
    assert set(again.cut_texts(TEXTS)) == {TEXTS[0], TEXTS[2]}

    plain = _encoder(store, SmallEncoder(), fingerprint="plain")
    plain.ask("encode_texts", _reads(plain, TEXTS))
    assert plain.cut_texts(TEXTS) == {}
    short = _encoder(store, TruncatingEncoder(most=0), fingerprint="short")
    short.ask("encode_images", [Step("key", 0, lambda: _picture(0))])
    assert short.cut_texts(TEXTS) == {}


@pytest.mark.parametrize(("seeded", "judged"), [(False, 2), (True, 3)])
def test_equal_battles_are_judged_once(store: Store, *, seeded: bool, judged: int) -> None:
    """Unless the seed decides; an answer that changes sides is another battle. Every judge is held
    to the four verdicts.
    """
    judge = SmallJudge(lambda own, _: "A" if len(own.first) > len(own.second) else "B")
    runner = RoleRunner(bound("judge", judge, seeded=seeded), store)
    battle = Battle(["question", _picture(0)], ["short"], ["a longer", _picture(1)])
    swapped = Battle(battle.question, battle.second, battle.first)

    for _ in range(2):
        assert verdicts_of(runner, [battle, swapped, battle], [1, 1, 2]) == ["B", "A", "B"]
    assert judge.batches == [judged]
    assert (runner.tally.inputs, runner.tally.hits) == (judged, 6 - judged)
    # A word that no policy of ties knows would be counted as a win of neither.
    other = RoleRunner(bound("judge", SmallJudge(lambda *_: "draw"), fingerprint="other"), store)
    with pytest.raises(ModelError, match=r"one of .*Tie\(A\).* 'draw'"):
        verdicts_of(other, [battle], [0])


def test_answers_of_other_code_are_named(tmp_path: Path) -> None:
    """The user's code changed under one fingerprint: each other version is said once."""
    for code in ("code v1", "code v2", "code v3"):
        with Store(tmp_path) as store:
            runner = _detector(store, SmallDetector(), provenance={CODE: code})
            runner.ask("detect", _looks(runner, int(code[-1])))
            warnings = runner.warnings
    assert [warning.partition(" and come")[0] for warning in warnings] == [
        "the detector's answers were made by code v1",
        "the detector's answers were made by code v2",
    ]
    assert all("it is code v3 now" in warning for warning in warnings)


def test_an_adapter_warns_of_what_stored_results_say(tmp_path: Path) -> None:
    """Of results that this run made and that it actual in the store, each provenance once."""

    def warn(provenances: Sequence[Mapping[str, str]]) -> list[str]:
        return [f"{fields['device']} {fields['batch']}" for fields in provenances]

    for count, device in ((2, "cpu"), (3, "cuda")):
        with Store(tmp_path) as store:
            runner = _detector(store, SmallDetector(), provenance={"device": device}, warn=warn)
            runner.ask("detect", _looks(runner, count))
    assert runner.warnings == ["cpu 2", "cuda 1"]


def test_what_is_written_during_the_first_answers_is_refused(tmp_path: Path, store: Store) -> None:
    """Either of the two may have been read, so nothing is stored; an exception of half a file would
    be counted as a failure of the model otherwise. After them a trainer may go on.
    """
    weights = tmp_path / "weights"
    steps = [Step(f"{i:064x}", 0, partial(_picture, i)) for i in range(4)]

    def write() -> None:
        weights.write_text("B")

    def fail() -> None:
        weights.write_text("")
        raise OSError("unexpected end of file")

    def runner(*does: Callable[[], object]) -> RoleRunner:
        """A describer of batches of two that does something at each of them."""
        weights.write_text("A")
        files = CoveredFiles(
            weights, lambda path: sha256(path.read_bytes()).hexdigest(), lambda own: own(weights)
        )
        assert files.fingerprint
        doing = iter(does)
        describer = SmallDescriber(batch=lambda _: next(doing)())
        return RoleRunner(bound("describer", describer, files=files, batch_size=2), store)

    for does in (write, fail):
        role = runner(does, does, does)
        for when in ("while", "before"):
            with pytest.raises(IdentityError, match=f"{when} the first answers were made"):
                role.ask("describe", steps, "describe")
    assert len(store) == 0
    runner(lambda: None, write).ask("describe", steps, "describe")
    assert len(store) == 4


def test_a_photo_that_is_overwritten_after_it_was_digested_is_refused(
    store: Store, tmp_path: Path
) -> None:
    """Its answers would be stored as those to the photo before."""
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(Image.fromarray(noise(seed=1)), "PNG"))
    runners = make_runners(store)
    chains = start_chains(PLAN, [Sample("a", ("c",), image=FileImage(path))], store)
    store.artifact_cache.clear()
    path.write_bytes(encoded(Image.fromarray(noise(seed=2)), "PNG"))
    with pytest.raises(ImageError, match="a, generation 0: the image changed after the run had"):
        grow_generation(PLAN, 1, chains, runners.models())
    assert len(store) == 0


# -- replies ---------------------------------------------------------------------------------------

REMARK = "temperature=0 was not honoured"


def _digests(runners: RunnerSet) -> list[list[str]]:
    """Of all links of three chains."""
    chains = ChainGroup(PLAN, samples(3), runners.models()).chains
    return [[link.digest for link in chain.links] for chain in chains]


def test_replies_count_as_the_results_in_them(tmp_path: Path) -> None:
    """The chains are those of bare results; usage and remarks are summed, provenance is stored."""
    cost = Usage(requests=1, input_tokens=30, output_tokens=4, cost=0.5)
    describer = SmallDescriber(
        lambda *asked: Reply(describe_image(*asked), cost, {"server": "m-1"}, remarks=(REMARK,))
    )
    generator = SmallGenerator(
        lambda *asked: Reply(draw_text(*asked), Usage(requests=2, retries=1, images=1))
    )
    with Store(tmp_path / "plain") as store:
        expected = _digests(make_runners(store))
    with Store(tmp_path / "replies") as store:
        runners = make_runners(store, describer, generator)
        runners.describer.progress = progress = Progress()
        assert _digests(runners) == expected
    assert progress.cost == 3.0
    assert runners.describer.tally.usage == Usage(6, 0, 180, 24, 0, 3.0)
    assert runners.generator.tally.usage == Usage(12, 6, 0, 0, 6)
    assert list(runners.describer.tally.remarks) == [REMARK]
    database = sqlite3.connect(tmp_path / "replies" / "index.sqlite")
    rows = database.execute(f"SELECT text FROM {WITH_PROVENANCE}").fetchall()
    database.close()
    servers = [json.loads(text).get("server") for (text,) in rows]
    assert servers.count("m-1") == 6
    assert servers.count(None) == 6


def _thinking(image: Any, prompt: str, seed: int | None) -> str:
    return f"<think>\nblue?\n</think>\n\n{describe_image(image, prompt, seed)}"


def test_reasoning_is_stored_and_neither_drawn_nor_compared(tmp_path: Path) -> None:
    """The chains are those of the answers alone, in the first run and out of the store."""
    with Store(tmp_path / "plain") as store:
        expected = _digests(make_runners(store))
    with Store(tmp_path / "thinking") as store:
        for describer in (SmallDescriber(_thinking), SmallDescriber(pytest.fail)):
            generator = SmallGenerator()
            runners = make_runners(store, describer, generator)
            assert _digests(runners) == expected
            assert not [text for text in generator.asked if "think" in text]
            chains = ChainGroup(PLAN, samples(3), runners.models()).chains
            keys = [str(link.key) for chain in chains for link in chain.links if link.text]
            assert all("blue?" in str(text) for text in store.get(keys).values())
            (note,), _ = runners.describer.text_notes(keys, "texts")
            assert note.startswith("6 of 6 texts came with")


def test_stored_texts_of_any_age_are_read_without_reasoning(store: Store) -> None:
    """What an earlier version has stored under the same key is no other answer."""
    runner = RoleRunner(bound("describer", SmallDescriber()), store)
    steps = [Step(f"{i:064}", 0, lambda: None) for i in range(3)]
    texts = ("<think>a</think>one", "two", "<think>a")
    store.put([StoredResult(step.key, text) for step, text in zip(steps, texts, strict=True)])

    one, two, failed = runner.ask("describe", steps, "a word")

    assert (one, two) == ("one", "two")
    assert isinstance(failed, Failure)
    assert failed.kind == "only-reasoning"
    assert runner.stored(steps) == [one, two, failed]


@pytest.mark.parametrize(
    "changes", [{"params": {"reasoning": "keep"}}, {"adapter": "human/1"}], ids=str
)
def test_reasoning_can_be_a_part_of_the_text(store: Store, changes: dict[str, Any]) -> None:
    """Where the parameter says so, under another key; and what people write is their answer."""
    plain = bound("describer", SmallDescriber(_thinking))
    runner = RoleRunner(bound("describer", SmallDescriber(_thinking), **changes), store)
    image = Image.new("RGB", (4, 4))
    step = Step(runner.key("p", 0, "image", "d"), 0, lambda: image)

    (text,) = runner.ask("describe", [step], "p")

    assert str(text).startswith("<think>")
    assert step.key != key_of(plain, "p", 0, [["image", "d"]])
    assert runner.text_notes([step.key], "texts") == ([], [])


def test_cut_and_very_long_texts_are_counted_out_of_the_store(store: Store) -> None:
    """By what is kept beside them, so in later runs too. A text of megabytes is kept whole, and
    drawn and compared by its beginning; a shorter one stays as it is.
    """
    short = "word " * 20_000
    texts = iter([short * 50, short, Reply("a red circle that", provenance=CUT), "a circle"])
    runner = RoleRunner(bound("describer", SmallDescriber(lambda *_: next(texts))), store)
    steps = [Step(f"{i:064}", 0, lambda: _picture(0)) for i in range(4)]

    assert runner.ask("describe", steps, "a word")[:2] == [short, short]

    assert len(str(store.get([steps[0].key])[steps[0].key])) == 5_000_000
    later = RoleRunner(bound("describer", SmallDescriber()), store)
    (note,), (warning,) = later.text_notes([step.key for step in steps], "texts")
    assert note.startswith("1 of 4 texts were longer than 100,000 characters")
    assert warning.startswith("1 of 4 texts were cut at the limit of their length")
