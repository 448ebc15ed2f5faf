"""Chains in lanes: roles on devices of their own work at once, and make what they make in turns."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import (
    Chain,
    ChainGroup,
    ChainModels,
    ChainPlan,
    LaneGroup,
    Reading,
    RoleRunner,
    can_overlap,
    count_lanes,
    grow_in_lanes,
    trace,
    vectors,
)
from pytest_cepbench.chains.model_handle import DeviceSwap, ModelHandle
from pytest_cepbench.chains.progress import Progress
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DamagedChainsError, DatasetError, ModelError
from pytest_cepbench.models.protocols import Model
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    AnyRole,
    RunnerSet,
    SmallDescriber,
    SmallEncoder,
    SmallGenerator,
    bound,
    describe_image,
    draw_text,
    make_runners,
    outcomes,
    samples,
    vector_of,
)

PATIENCE = 20.0

DEVICES = {
    role: {"provenance": {"device": f"cuda:{number}"}}
    for number, role in enumerate(("describer", "generator", "encoder"))
}


def apart(store: Store, *models: Any, **fields: Any) -> RunnerSet:
    """Runners of three roles, each on a device of its own, with batches of four by default."""
    return make_runners(store, *models, every={"batch_size": 4} | fields, only=DEVICES)  # type: ignore[arg-type]


def group_of(plan: ChainPlan, chosen: Sequence[Sample], runners: RunnerSet) -> ChainGroup:
    """The group of some samples."""
    models = ChainModels(runners.describer, runners.generator, runners.store)
    return ChainGroup(plan, chosen, models)


def compared(plan: ChainPlan) -> tuple[int, ...]:
    """The generations at which chains are compared with their starts."""
    return tuple(range(2, plan.generations + 1, 2))


def grow(plan: ChainPlan, parts: Iterable[Sequence[Sample]], runners: RunnerSet) -> dict[str, Any]:
    """Grow groups in lanes, with the encoder at their heels, and give what came of each sample."""

    def read(chains: Sequence[Chain], generation: int) -> None:
        able = [chain for chain in chains if chain.has(generation)]
        vectors(able, generation, runners.encoder, runners.store)

    reading = Reading(runners.encoder, (0, *compared(plan)), read)
    groups = [group_of(plan, part, runners) for part in parts]
    grow_in_lanes([LaneGroup(group, [reading]) for group in groups])
    return traced(plan, groups, runners)


def grow_in_turns(
    plan: ChainPlan, parts: Iterable[Sequence[Sample]], runners: RunnerSet
) -> dict[str, Any]:
    """The same, one role after the other."""
    return traced(plan, [group_of(plan, part, runners) for part in parts], runners)


def traced(plan: ChainPlan, groups: Sequence[ChainGroup], runners: RunnerSet) -> dict[str, Any]:
    """What came of each sample of some groups."""
    use = partial(trace, generations=compared(plan), encoder=runners.encoder, store=runners.store)
    return {
        name: outcome for group in groups for name, outcome in outcomes(group.read(use)).items()
    }


class Concurrency:
    """Counts the answers that are being made at a time, by name, and notes by which threads."""

    def __init__(self) -> None:
        self.now, self.most = Counter[str](), Counter[str]()
        self.threads: dict[str, set[int]] = {}

    def of(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        """The answer, counted under a name; it takes long enough for another thread to come."""

        def counted(*inputs: Any) -> Any:
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])
            self.threads.setdefault(name, set()).add(threading.get_ident())
            time.sleep(0.0005)
            self.now[name] -= 1
            return answer(*inputs)

        return counted


def stored(folder: Path) -> list[tuple[Any, ...]]:
    """Every result of a store, with its key, but without its date."""
    with sqlite3.connect(folder / "index.sqlite") as index:
        return index.execute(
            "SELECT key, kind, payload, provenance FROM results ORDER BY key"
        ).fetchall()


@pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])
@pytest.mark.parametrize("size", [3, 8, 50])
def test_lanes_make_what_turns_make(plan: ChainPlan, size: int, tmp_path: Path) -> None:
    """Outcomes, stored results, and the batches that they were made in are the same."""
    whole = samples(40)
    made, models = [], []
    for name, how in (("lanes", grow), ("turns", grow_in_turns)):
        own = SmallDescriber(seeded=True), SmallGenerator(), SmallEncoder()
        with Store(tmp_path / name) as store:
            runners = apart(store, *own, batch_size=size)
            made.append(how(plan, [whole[:36], whole[36:]], runners))
        models.append([sorted(map(sorted, model.calls)) for model in own])
    assert made[0] == made[1]
    assert models[0] == models[1]
    assert stored(tmp_path / "lanes") == stored(tmp_path / "turns")


@pytest.mark.parametrize("sizes", [(4, 6, 8), (5, 7, 3), (2, 2, 32)])
def test_lanes_end_where_batches_end(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    """Whatever batches each role takes, they are those of roles that work in turns."""
    roles = ("describer", "generator", "encoder")
    only = {r: DEVICES[r] | {"batch_size": n} for r, n in zip(roles, sizes, strict=True)}
    calls = []
    for name, how in (("lanes", grow), ("turns", grow_in_turns)):
        own = SmallDescriber(), SmallGenerator(), SmallEncoder()
        with Store(tmp_path / name) as store:
            how(PLAN, [samples(64)], make_runners(store, *own, only=only))  # type: ignore[arg-type]
        calls.append([sorted(map(sorted, model.calls)) for model in own])
    assert calls[0] == calls[1]


def test_three_roles_work_at_the_same_time(store: Store) -> None:
    """At some moment describer, generator and encoder are in a call, each in its first ones."""
    met = threading.Barrier(3)
    once = {"describer": 2, "generator": 1, "encoder": 2}
    calls = Counter[str]()

    def meet(role: str, _: object) -> None:
        calls[role] += 1
        if calls[role] == once[role]:
            met.wait(PATIENCE)

    runners = apart(
        store,
        SmallDescriber(batch=partial(meet, "describer")),
        SmallGenerator(batch=partial(meet, "generator")),
        SmallEncoder(batch=partial(meet, "encoder")),
    )
    grow(PLAN, [samples(16)], runners)
    assert not met.broken


def test_a_model_is_called_by_one_thread_at_a_time(store: Store) -> None:
    """Each has a thread of its own, and is in one call at most."""
    answers = Concurrency()
    runners = apart(
        store,
        SmallDescriber(answers.of("describer", describe_image)),
        SmallGenerator(answers.of("generator", draw_text)),
        SmallEncoder(answers.of("encoder", vector_of)),
    )
    grow(PLAN, [samples(24)], runners)
    assert answers.most == {"describer": 1, "generator": 1, "encoder": 1}
    assert len(set.union(*answers.threads.values())) == 3


def test_roles_on_one_device_take_turns(store: Store) -> None:
    """Describer and encoder share a device: never both are in a call."""
    answers = Concurrency()
    own = (
        SmallDescriber(answers.of("cuda:0", describe_image)),
        SmallGenerator(),
        SmallEncoder(answers.of("cuda:0", vector_of)),
    )
    only = DEVICES | {"encoder": {"provenance": {"device": "cuda"}}}  # the first, by its other name
    runners = make_runners(store, *own, every={"batch_size": 4}, only=only)  # type: ignore[arg-type]
    grow(PLAN, [samples(24)], runners)
    assert answers.most == {"cuda:0": 1}


def test_results_count_once(tmp_path: Path) -> None:
    """Inputs, stored results and steps of the progress line are those of roles in turns."""
    counts = []
    for name, how in (("lanes", grow), ("turns", grow_in_turns)):
        with Store(tmp_path / name) as store:
            for chosen in (samples(10), samples(20)):  # ten are in the store at the second time
                runners = apart(store)
                progress = Progress()
                roles = (runners.describer, runners.generator, runners.encoder)
                for runner in roles:
                    runner.progress = progress
                how(PLAN, [chosen], runners)
                counts.append(
                    (
                        progress.steps,
                        *[(r.tally.inputs, r.tally.hits, r.tally.loads) for r in roles],
                    )
                )
    assert counts[:2] == counts[2:]
    assert counts[1] == (140, (20, 20, 1), (20, 20, 1), (30, 30, 1))


def test_failures_of_inputs_are_those_of_turns(tmp_path: Path) -> None:
    """A batch is halved down to the input that fails; its chain alone stops."""

    def describe(image: Any, prompt: str, seed: int | None) -> Any:
        text = describe_image(image, prompt, seed)
        return Failure("refused", "no") if text[0] in "01" else text

    def draw(text: str, seed: int | None) -> Any:
        if text[len("draw: ")] in "23":
            msg = "cannot draw"
            raise ValueError(msg)
        return draw_text(text, seed)

    made = []
    for name, how in (("lanes", grow), ("turns", grow_in_turns)):
        with Store(tmp_path / name) as store:
            runners = apart(store, SmallDescriber(describe), SmallGenerator(draw))
            made.append(how(PLAN, [samples(30)], runners))
    assert made[0] == made[1]
    kinds = Counter(failure.kind for _, _, failure, _ in made[0].values() if failure is not None)
    assert kinds["refused"] > 0
    assert kinds["exception"] > 0


def test_memory_that_runs_out_in_one_role_disturbs_no_other(store: Store) -> None:
    """The generator goes on with half its batch; describer and encoder keep theirs."""

    def full(texts: Sequence[Any]) -> None:
        if len(texts) > 2:
            raise MemoryError

    runners = apart(store, None, SmallGenerator(batch=full))
    made = grow(PLAN, [samples(16)], runners)
    assert all(failure is None for _, _, failure, _ in made.values())
    sizes = [r.caller.size for r in (runners.describer, runners.generator, runners.encoder)]
    assert sizes == [4, 2, 4]


def test_an_error_of_a_role_ends_all_and_leaves_what_was_stored(tmp_path: Path) -> None:
    """The error comes as it is; grown again, nothing that was stored is made once more."""
    calls = Counter[str]()

    def refuse(_: object) -> None:
        calls["encoder"] += 1
        if calls["encoder"] == 3:
            msg = "the encoder is gone"
            raise ModelError(msg)

    with Store(tmp_path / "store") as store:
        runners = apart(store, None, None, SmallEncoder(batch=refuse))
        with pytest.raises(ModelError, match="the encoder is gone"):
            grow(PLAN, [samples(40)], runners)
        assert not [t for t in threading.enumerate() if t.name.startswith("cepbench-")]
        kept = {key for key, *_ in stored(tmp_path / "store")}
        assert len(kept) >= 8
        describer, generator = SmallDescriber(), SmallGenerator()
        again = apart(store, describer, generator)
        made = grow_in_turns(PLAN, [samples(40)], again)
        fresh = sum(r.tally.inputs for r in (again.describer, again.generator, again.encoder))
        assert fresh == 40 * 7 - len(kept)
    with Store(tmp_path / "calm") as store:
        assert made == grow_in_turns(PLAN, [samples(40)], apart(store))


def test_damage_is_left_to_who_reads(store: Store) -> None:
    """An image that is lost while the next role needs it; read in turns, it is made again."""
    whole = samples(8)
    first = group_of(PLAN, whole, apart(store))
    before = [[link.digest for link in chain.links] for chain in first.chains]
    lost = first.chains[3].links[2]
    store.image_path(lost.digest).unlink()
    store.forget([str(chain.links[3].key) for chain in first.chains], why="to ask for them again")
    runners = apart(store)
    group = group_of(PLAN, whole, runners)
    with pytest.raises(DamagedChainsError):
        grow_in_lanes([LaneGroup(group, [])])
    assert [[link.digest for link in chain.links] for chain in group.chains] == before


def test_unusable_seeds_are_named_as_always(store: Store) -> None:
    """By the group that has them; groups before it are stored as far as they came."""
    bad = [Sample("bad", ("c",), text="only a text")]
    with pytest.raises(DatasetError, match="1 of 1 samples cannot be used"):
        grow(PLAN, [samples(4), bad], apart(store))


@dataclass
class PreparingDescriber(SmallDescriber):
    """A describer that prepares images apart, which takes it a while; it notes on which threads."""

    prepared_by: list[str] = field(default_factory=list)

    def prepare(self, images: Sequence[Any], prompt: str) -> Any:
        """The images and the prompt."""
        time.sleep(0.004)
        self.prepared_by.append(threading.current_thread().name)
        return images, prompt

    def describe_prepared(self, prepared: Any, seeds: Sequence[int]) -> Any:
        """One text per image."""
        images, prompt = prepared
        return self.describe(images, prompt, seeds)


def test_images_are_prepared_while_the_describer_works(tmp_path: Path) -> None:
    """On a thread, once it is known that it takes long; the results are those of turns."""
    made, describers = [], []
    for name, how in (("lanes", grow), ("turns", grow_in_turns)):
        describers.append(PreparingDescriber())
        with Store(tmp_path / name) as store:
            made.append(how(PLAN, [samples(32)], apart(store, describers[-1])))
    assert made[0] == made[1]
    assert stored(tmp_path / "lanes") == stored(tmp_path / "turns")
    in_lanes, in_turns = (Counter(describer.prepared_by) for describer in describers)
    assert in_lanes["cepbench-inputs of cuda:0"] >= 10  # of 16; a few were on their way before
    assert in_turns == {"MainThread": 9, "prepare_0": 7}  # of the first step, none is ahead


def test_models_are_loaded_while_none_is_called(store: Store) -> None:
    """Loading changes levels of loggers, threads and filters, which belong to the process."""
    answers, called_meanwhile = Concurrency(), []
    residency = DeviceSwap()

    def runner(role: Any, model: AnyRole) -> RoleRunner:
        def load() -> Model:
            time.sleep(0.005)
            called_meanwhile.append(answers.now["any"])
            return model

        role_bound = bound(role, model, load=load, batch_size=4, **DEVICES[role])
        return RoleRunner(role_bound, store, ModelHandle(role_bound, residency))

    runners = RunnerSet(
        runner("describer", SmallDescriber(answers.of("any", describe_image))),
        runner("generator", SmallGenerator(answers.of("any", draw_text))),
        runner("encoder", SmallEncoder(answers.of("any", vector_of))),
        store,
    )
    grow(PLAN, [samples(24)], runners)
    assert called_meanwhile == [0, 0, 0]
    assert answers.most["any"] > 1


def test_models_that_share_random_generators_take_turns(store: Store) -> None:
    """Two that seed the process's own generators never draw at the same time."""
    answers = Concurrency()
    own = (
        SmallDescriber(answers.of("global", describe_image)),
        SmallGenerator(answers.of("global", draw_text)),
    )
    grow(PLAN, [samples(24)], apart(store, *own, global_random=True))
    assert answers.most == {"global": 1}
    assert len(answers.threads["global"]) == 2


@pytest.mark.parametrize(
    ("devices", "overlap"),
    [
        (("cuda:0", "cuda:1", "cuda:1"), True),
        (("cuda:0", "cuda", "cuda:0"), False),
        (("cpu", "cpu", "cpu"), False),
        (("cuda:0", "cuda:0", "cpu"), True),
        (("server", "server", "cpu"), True),
        (("server", "cuda:0", "cuda:0"), True),
        (("cuda:0", "cuda:0, cuda:1", "cuda:1"), False),
    ],
)
def test_which_roles_can_work_at_the_same_time(
    devices: tuple[str, str, str], overlap: bool, store: Store
) -> None:
    """Those on different devices; two behind servers; none where a model may lie on several."""
    roles = ("describer", "generator", "encoder")
    only = {r: {"provenance": {"device": d}} for r, d in zip(roles, devices, strict=True)}
    runners = make_runners(store, only=only)  # type: ignore[arg-type]
    assert can_overlap([runners.describer, runners.generator, runners.encoder]) is overlap


@pytest.mark.parametrize(
    ("describer", "generator", "grows", "expected"),
    [(8, 8, False, 6), (8, 8, True, 2), (6, 4, False, 5), (5, 7, False, 2), (32, 4, False, 2)],
)
def test_lanes_are_as_small_as_full_batches_allow(
    describer: int, generator: int, grows: bool, expected: int, store: Store
) -> None:
    """A lane of 48 samples fills batches of all its roles, also where these may grow."""
    only = {
        "describer": {"batch_size": describer, "grows": grows},
        "generator": {"batch_size": generator},
    }
    runners = make_runners(store, only=only)  # type: ignore[arg-type]
    models = ChainModels(runners.describer, runners.generator, store)
    assert count_lanes(PLAN, models, 48) == expected
