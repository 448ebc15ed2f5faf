"""Which device and how many cores each worker gets, how many workers there are, and who is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.errors import SpecError
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.models.devices import THREADS, usable_cores
from pytest_cepbench.plugin.options import settings_of
from pytest_cepbench.plugin.workers.device_leases import Leases, count_workers, plan_leases
from tests.models.files import LLAVA, write_checkpoint
from tests.models.smi import install_smi
from tests.plugin.project import Project
from tests.plugin.test_plain_runs import WATCH
from tests.plugin.workers.test_dying_workers import DYING

CUDA = "CUDA_VISIBLE_DEVICES"

MODEL = "--model=shapes:?miss=0.2"

H200 = "NVIDIA H200"

LEASED = """\
def pytest_configure(config):
    name = os.environ.get("PYTEST_XDIST_WORKER")
    if name is not None:
        words = [os.environ.get(one, "-") for one in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")]
        pathlib.Path(__file__).with_name(f"{name}.lease").write_text(" ".join(words))
"""


@pytest.fixture
def machine(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on a machine with two devices, of which the second is the freer one."""
    install_smi(tmp_path, monkeypatch, [("GPU-aaaa", H200, 20), ("GPU-bbbb", H200, 70)])
    monkeypatch.delenv(THREADS, raising=False)
    return project


def _settings(project: Project, *args: str) -> tuple[pytest.Config, RunSettings]:
    config = project.pytester.parseconfig(*args)
    return config, settings_of(config)


def _planned(project: Project, *args: str) -> Leases:
    return plan_leases(*_settings(project, "--dist", "load", *args))


def _on(leases: Leases) -> list[str | None]:
    return [variables.get(CUDA) for variables in leases.variables]


@pytest.mark.slow
def test_a_replacement_inherits_the_lease(
    machine: Project, toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-n auto` on two devices: two workers, one device each, and the clone has the dead one's.

    The controller, which counted and leased, knows nothing of torch.
    """
    dies = 'mark.write_text(os.environ["PYTEST_XDIST_WORKER"]); os._exit(1)'
    toy.write("conftest.py", f"{DYING.format(dies)}\n{LEASED}")
    toy.write("watch.py", WATCH)
    monkeypatch.setenv("WATCH", str(toy.path))
    result = toy.run("-n", "auto", "-p", "watch", MODEL)
    result.stdout.fnmatch_lines(
        [
            "cepbench: -n auto: 2, 2 of 2 devices visible",
            f"cepbench: gw0 on {H200} (GPU-bbbb), gw1 on {H200} (GPU-aaaa)",
            "created: 2/2 workers",
        ]
    )
    leases = {path.stem: path.read_text() for path in toy.path.glob("*.lease")}
    share = max(1, usable_cores() // 2)
    dead = (toy.path / "died").read_text()
    assert (leases["gw0"], leases["gw1"]) == (f"GPU-bbbb {share}", f"GPU-aaaa {share}")
    assert leases["gw2"] == leases[dead]
    modules = set(json.loads((toy.path / "main.json").read_text())["modules"])
    assert "torch" not in modules


def test_devices_and_cores_are_leased_within_what_the_caller_has(
    machine: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turn, the freest first, in the caller's words; what the user set for a worker stands.

    A worker that sees one device has no cuda:1; on the cpu no model needs a device. Workers with as
    many threads as there are cores stand in each other's way.
    """
    on = "--describer=x?device={}"
    for workers, models, expected, line in (
        ("3*popen", [MODEL], ["GPU-bbbb", "GPU-aaaa", "GPU-bbbb"], "gw0 on "),
        ("popen//env:CUDA_VISIBLE_DEVICES=5", [MODEL], [None], ""),
        ("ssh=elsewhere", [MODEL], [], ""),
        ("2*popen", [on.format("cuda:1")], [None] * 2, "since x?device=cuda:1 names its own"),
        ("2*popen", [on.format("cpu")], [None] * 2, "since every model named is on the cpu"),
        ("2*popen", [on.format("cpu"), "--generator=y"], ["GPU-bbbb", "GPU-aaaa"], "gw0 on "),
    ):
        leases = _planned(machine, "--tx", workers, *models)
        assert _on(leases) == expected
        assert not line or line in leases.lines[0]
    share = str(max(1, usable_cores() // 2))
    shared = _planned(machine, "--tx", "2*popen", MODEL).variables
    assert [environment[THREADS] for environment in shared] == [share, share]
    assert THREADS not in _planned(machine, "--tx", "popen", MODEL).variables[0]

    monkeypatch.setenv(THREADS, "7")
    for visible, own in ("0,1", ["1", "0"]), ("GPU-aa", ["GPU-aa"] * 2), ("", [None, None]):
        monkeypatch.setenv(CUDA, visible)
        leases = _planned(machine, "--tx", "2*popen", MODEL)
        assert _on(leases) == own
        assert THREADS not in leases.variables[0]


def test_runs_without_models_are_left_alone(machine: Project) -> None:
    """No model named and no suite near: nothing is leased. A suite two folders down is near."""
    machine.write("tests/unit/test_plain.py", "def test_one(): pass\n")
    assert _planned(machine, "--tx", "2*popen") == Leases()
    machine.write("suites/mine/suite.toml", "")
    assert _planned(machine, "--tx", "2*popen", "tests") == Leases()
    for place in ([], ["suites"], ["suites/mine"]):
        assert _on(_planned(machine, "--tx", "2*popen", *place)) == ["GPU-bbbb", "GPU-aaaa"]


@pytest.fixture
def large_machine(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on a machine with four devices."""
    devices = [
        (f"GPU-{name * 4}", H200, free) for name, free in zip("abcd", (40, 50, 60, 70), strict=True)
    ]
    install_smi(tmp_path, monkeypatch, devices)
    return project


THREE = "GPU-dddd,GPU-cccc,GPU-bbbb"

PAIRS = ["GPU-dddd,GPU-cccc", "GPU-bbbb,GPU-aaaa"]


def test_workers_get_as_many_devices_as_their_models_need(large_machine: Project) -> None:
    """The fewest with room for the weights and a fifth more. A model that is larger than a device
    needs a map; more devices would lie idle beside it.
    """
    more: list[str]
    lines: list[str] | None
    for query, gib, more, expected, lines in (
        ("", 50, [], ["GPU-dddd", "GPU-cccc"], []),
        ("", 40, ["--generator={folder}?batch_size=2"], PAIRS, ["2 devices {}96.0 GiB{}"]),
        ("", 40, ["--generator={folder}", "--cep-residency=swap"], ["GPU-dddd", "GPU-cccc"], []),
        ("", 40, ["--judge={folder}?device=cpu"], ["GPU-dddd", "GPU-cccc"], []),
        ("", 40, ["--generator={folder}?offload=model"], ["GPU-dddd", "GPU-cccc"], []),
        ("?device_map=auto", 120, [], [THREE] * 2, ["3 devices {}144.0 GiB{}"]),
        ("", 120, [], ["GPU-dddd", "GPU-cccc"], []),  # too large for one, and not divided
        ("?device_map=auto", 400, [], [f"{THREE},GPU-aaaa"] * 2, None),  # which fit nowhere
    ):
        folder = _big(large_machine.path / f"big-{gib}", gib)
        args = [argument.format(folder=folder) for argument in more]
        leases = _planned(large_machine, "--tx", "2*popen", f"--describer={folder}{query}", *args)
        assert _on(leases) == expected
        why = ("for each worker: its models need ", ", more than one has")
        assert lines is None or list(leases.lines[1:]) == [line.format(*why) for line in lines]


def test_too_few_devices_are_one_line(
    large_machine: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with fewer than were asked for would fail later, by the memory that it lacks.

    So would a model on one that its worker has not: cuda:1 is the second device of each one's own.
    """

    def assert_refused(count: int, visible: str) -> None:
        args = (MODEL, f"--cep-devices-per-worker={count}")
        expected = f"--cep-devices-per-worker {count}: {visible} visible here"
        with pytest.raises(SpecError, match=expected):
            _planned(large_machine, "--tx", "2*popen", *args)
        with pytest.raises(SpecError, match=expected):
            count_workers(_settings(large_machine, *args)[1])

    assert_refused(5, "4 devices are")
    args = ("--tx", "2*popen", "--cep-devices-per-worker=2")
    assert _on(_planned(large_machine, *args, "--describer=x?device=cuda:1")) == PAIRS
    with pytest.raises(SpecError, match=r"cuda:2 is not among the 2 device\(s\) of a worker"):
        _planned(large_machine, *args, "--describer=x?device=cuda:2")
    monkeypatch.setenv(CUDA, "")
    assert_refused(1, "no device is")


def test_a_worker_has_one_mig_instance(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA shows a process no second one, so that a lease of two would be a lease of one."""
    install_smi(tmp_path, monkeypatch, [("GPU-aaaa", "H100", 80)], {"GPU-aaaa": ["3g.40gb"] * 2})
    with pytest.raises(SpecError, match="a process can use one MIG instance only"):
        _planned(project, "--tx", "popen", MODEL, "--cep-devices-per-worker=2")
    leases = _planned(project, "--tx", "2*popen", "--describer=x?device_map=auto")
    assert _on(leases) == ["MIG-aaaa-0", "MIG-aaaa-1"]


def _big(folder: Path, gib: int) -> Path:
    """A checkpoint whose header says that its weights, in half precision, take so much."""
    shape = [gib, 1 << 29]
    header = {"w": {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    write_checkpoint(folder, {**LLAVA, "dtype": "bfloat16"}, None)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return folder


def test_as_many_workers_as_devices_with_room(
    machine: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of all models that are there at once and a fifth more have to fit.

    Without devices cores and memory count. Weights that do not fit at all still leave one worker,
    which then says so itself.
    """

    def counted(gib: int, *more: str) -> tuple[int, str]:
        folder = _big(machine.path / f"big-{gib}", gib)
        args = [argument.format(folder=folder) for argument in more]
        return count_workers(_settings(machine, f"--describer={folder}", *args)[1])

    for gib, more, expected, why in (
        (10, (), 2, "2 of 2 devices with 12.0 GiB free for the weights"),
        (30, (), 1, "1 of 2 devices with 36.0 GiB free for the weights"),
        (90, (), 1, "0 of 2 devices with 108.0 GiB free for the weights"),
        (10, ("--generator={folder}",), 1, "1 of 2 devices with 24.0 GiB free for the weights"),
        (10, ("--generator={folder}", "--cep-residency=swap"), 2, "2 of 2 devices with 12.0 GiB"),
    ):
        count, reason = counted(gib, *more)
        assert count == expected
        assert reason.startswith(why)
    monkeypatch.setenv(CUDA, "")
    cores = usable_cores()
    assert count_workers(_settings(machine, MODEL)[1]) == (cores, f"{cores} cores")
    count, reason = counted(1 << 14)
    assert count == 1
    assert reason.endswith("39321.6 GiB each for the weights")
