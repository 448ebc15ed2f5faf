"""Servers that a run starts, with stand-ins for vLLM and SGLang, and transformers' own: from their
start to their end, what specs stand for, and mistakes that are found before a server is started.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.errors import (
    CheckpointError,
    IdentityError,
    MissingDependencyError,
    ModelError,
    RoleError,
    SpecError,
    WriteError,
)
from pytest_cepbench.models.api.roles import ApiModel
from pytest_cepbench.models.binding import BoundRole, bind, check_installed, detect
from pytest_cepbench.models.devices import DEVICE_VARIABLES
from pytest_cepbench.models.protocols import AnsweredQuestion, Describer, Reply, RoleName
from pytest_cepbench.models.serving.engines import ENGINES, find_program
from pytest_cepbench.models.serving.run_servers import RunServers, listens
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import bind_text, context_with, plain
from tests.models.files import VIT, safetensors_bytes, write_checkpoint
from tests.models.serving.stand_ins import StandIn, is_alive, make_stand_in
from tests.optional import needs
from tests.tiny.common import pictures

needs("httpx2")

RED = Image.new("RGB", (4, 4), (200, 10, 10))


@dataclass(frozen=True)
class RunStandIn(StandIn):
    """A stand-in in a run that is this process alone.

    servers: of the run.
    """

    servers: RunServers

    def bind(self, text: str, role: RoleName = "describer", **options: Any) -> BoundRole:
        """Bind what a user would type, in that run."""
        return bind(parse_spec(text), role, context_with(self.servers), **options)


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[RunStandIn]:
    """A checkpoint, and an interpreter whose engines are stand-ins."""
    made = make_stand_in(tmp_path)
    servers = RunServers(tmp_path / "run", tmp_path / "logs")
    yield RunStandIn(made.python, made.checkpoint, servers)
    servers.close()


def describe(bound: BoundRole) -> Any:
    """Have one image described."""
    model = bound.load()
    assert isinstance(model, ApiModel)
    (reply,) = model.describe([RED], "what is shown?", [0])
    return reply


QUERY = (
    "dtype=bfloat16&quantization=fp8&gpu_memory_utilization=0.5&tensor_parallel_size=2"
    "&max_num_seqs=8&trust_remote_code=true&devices=3,4"
)

FLAGS = {
    "vllm": {
        "--tensor-parallel-size": "2",
        "--gpu-memory-utilization": "0.5",
        "--max-num-seqs": "8",
        "--generation-config": "vllm",
    },
    "sglang": {"--mem-fraction-static": "0.5", "--tp-size": "2", "--max-running-requests": "8"},
}


@pytest.mark.parametrize("engine", FLAGS)
def test_an_engine_is_started_with_the_flags_of_the_spec(
    stand_in: RunStandIn, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """It serves on this machine alone; vLLM with a key that no process list shows."""
    monkeypatch.setenv("PYTHONPATH", "/of/this/interpreter")
    own = "&engine_args=--generation-config vllm" if engine == "vllm" else ""
    reply = describe(stand_in.bind(stand_in.spec(QUERY + own, engine)))

    flags = stand_in.flags()
    (start,) = stand_in.starts
    environment = start["env"]
    if engine == "vllm":
        assert start["argv"][:2] == ["serve", str(stand_in.checkpoint)]
        assert len(environment["VLLM_API_KEY"]) >= 32
    else:
        assert flags.pop("--model-path") == str(stand_in.checkpoint)
        assert len(flags.pop("--api-key")) >= 32
    assert flags.pop("--port").isdecimal()
    served = flags.pop("--served-model-name")
    assert re.fullmatch("cepbench-[0-9a-f]{16}", served)
    assert flags == {
        "--host": "127.0.0.1",
        "--dtype": "bfloat16",
        "--quantization": "fp8",
        "--trust-remote-code": "",
        **FLAGS[engine],
    }
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["HF_HUB_OFFLINE"]) == ("3,4", "1")
    assert "PYTHONPATH" not in environment
    assert reply.value == "200 10 10"
    assert reply.provenance["server served"] == served
    assert reply.provenance["engine"] == ENGINES[engine].title


SECRETS = {
    "OPENAI_API_KEY": "a1b2c3d4e5f6",
    "HF_TOKEN": "hf-9182736455",
    "AWS_SECRET_ACCESS_KEY": "wJalr/XUtn+FEMI",
    "DB_PWD": "correct horse battery",
    "DATABASE_URL": "postgresql://me:tr0ub4dor@db.example/runs",
    "HTTPS_PROXY": "http://me:tr0ub4dor@proxy.example:3128",
}


def test_an_engine_gets_no_key_and_shows_none(
    stand_in: RunStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the environment of the run but for what is named like a key, or is a URL with one.

    A start that fails shows the end of its log, once: the other processes of the run hear the same,
    and do not try again.
    """
    for name, value in {**SECRETS, "VLLM_CACHE_ROOT": "/caches"}.items():
        monkeypatch.setenv(name, value)
    read = "hf_0123456789abcdef01 of http://me:tr0ub4dor@host/x"  # of a file
    fail = f"ValueError: no kernel for this device {read}"
    stand_in.behave(fail=fail, show=[*SECRETS, "VLLM_CACHE_ROOT"])
    with pytest.raises(ModelError, match=r"\|( unset){6} /caches$") as raised:
        stand_in.bind(stand_in.spec()).load()

    (log,) = (tmp_path / "logs").glob("*.log")
    assert not [value for value in SECRETS.values() if value in log.read_text()]
    message = str(raised.value)
    assert "vLLM did not start (exit code 3)" in message
    assert f"The end of its log, {log}: " in message
    assert "loading | ValueError: no kernel for this device [key] of http://host/x key=" in message
    assert stand_in.starts[0]["env"]["VLLM_API_KEY"] not in message
    assert "\n" not in message
    other = bind(parse_spec(stand_in.spec()), "judge", context_with(stand_in.servers))
    with pytest.raises(ModelError, match="did not start"):
        other.load()
    assert len(stand_in.starts) == 1


def test_a_server_that_gives_no_answer_in_time_is_ended(stand_in: RunStandIn) -> None:
    """With the parameter that gives it more time. Files that changed before the start start
    nothing: the spec was bound to other weights.
    """
    bound = stand_in.bind(stand_in.spec())
    (stand_in.checkpoint / "model.safetensors").write_bytes(safetensors_bytes(b"abcd"))
    with pytest.raises(IdentityError, match="written again: model"):
        bound.load()
    assert not stand_in.starts
    stand_in.behave(slow=60)
    with pytest.raises(ModelError, match=r"no answer within 0.5 s \(start_timeout= in its spec\)"):
        stand_in.bind(stand_in.spec("start_timeout=0.5")).load()
    stand_in.wait_for_end()


@pytest.mark.parametrize("query", ["max_retry_wait=60&patience=600", "retries=0&concurrency=1"])
def test_a_server_that_dies_ends_the_work_at_once(stand_in: RunStandIn, query: str) -> None:
    """No retry can help, and no input counts as a failure of the checkpoint, without any retry
    neither.
    """
    stand_in.behave(die_after=7 if "retries" in query else 2)
    model = stand_in.bind(stand_in.spec(query)).load()
    assert isinstance(model, ApiModel)
    for _ in range(2):
        with pytest.raises(ModelError) as raised:
            model.describe([RED] * 8, "what is shown?", [0] * 8)
        assert "its server ended while the run needed it (exit code 9)" in str(raised.value)
        assert "illegal memory access" in str(raised.value)
    assert len(stand_in.starts) == 1


def test_a_server_whose_supervisor_was_killed_dies_with_it(
    stand_in: RunStandIn, tmp_path: Path
) -> None:
    """Nothing is left that nobody would end."""
    model = stand_in.bind(stand_in.spec()).load()
    (lock,) = (tmp_path / "run").glob("*/alive.lock")
    os.kill(int(lock.read_text()), signal.SIGKILL)
    stand_in.wait_for_end()

    assert isinstance(model, ApiModel)
    with pytest.raises(ModelError, match="its supervisor was killed"):
        model.describe([RED], "what is shown?", [0])


@pytest.mark.slow
def test_files_that_change_while_the_server_starts_are_an_error(stand_in: RunStandIn) -> None:
    """It may have read the new weights, and the fingerprint is of the old ones."""
    stand_in.behave(slow=1.5)
    bound = stand_in.bind(stand_in.spec())
    weights = stand_in.checkpoint / "model.safetensors"
    timer = threading.Timer(0.7, weights.write_bytes, [safetensors_bytes(b"abcd")])
    timer.start()
    with pytest.raises(IdentityError, match="changed after it was fingerprinted"):
        bound.load()
    timer.join()
    stand_in.wait_for_end()


def test_a_port_belongs_to_the_process_that_listens_and_to_those_above() -> None:
    """The server may be a process that the engine's first one has started."""
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]);"
    command = [sys.executable, "-u", "-c", f"{listen} input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        assert listens(child.pid, port)
        assert listens(os.getpid(), port)
        with closing(socket.create_server(("127.0.0.1", 0))) as other:
            assert not listens(child.pid, other.getsockname()[1])
        child.kill()


def test_a_server_of_several_roles_ends_with_all_that_it_started(
    stand_in: RunStandIn, tmp_path: Path
) -> None:
    """What differs in the requests alone needs no second server. A process in a session of its own
    ends too; the log stays, with those of nine earlier servers, for its owner alone.
    """
    (tmp_path / "logs").mkdir()
    for day in range(10, 25):
        (tmp_path / "logs" / f"202001{day}-000000-vllm-old-0000.log").write_text("")
    stand_in.behave(child=True)
    judge = stand_in.bind(stand_in.spec("prompt=letters"), "judge").load()
    assert isinstance(judge, ApiModel)
    judge.score_answers([AnsweredQuestion(["a", RED], ["red"])], [0])
    assert describe(stand_in.bind(stand_in.spec("max_tokens=9"))).value == "200 10 10"
    assert len(stand_in.starts) == 1
    assert is_alive(stand_in.starts[0]["pid"])
    stand_in.servers.close()
    stand_in.wait_for_end()
    logs = sorted((tmp_path / "logs").glob("*.log"))
    assert (len(logs), "-vllm-step-1-" in logs[-1].name) == (10, True)
    assert "serving" in logs[-1].read_text()
    assert logs[-1].stat().st_mode & 0o077 == 0


USER = """
import sys, time
from pathlib import Path
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.binding import bind
from pytest_cepbench.models.serving.engines import ENGINES
from pytest_cepbench.models.serving.run_servers import RunServers
from tests.models.binding import context_with

run, logs, spec, controls = sys.argv[1:]
servers = RunServers(Path(run), Path(logs), is_controller=bool(controls))
bound = bind(parse_spec(spec), "describer", context_with(servers))
print("bound", flush=True)
if sys.stdin.readline():
    bound.load()
    print("loaded", flush=True)
time.sleep(60)
"""


class User:
    """Another process of the run."""

    def __init__(self, tmp_path: Path, stand_in: RunStandIn, *, controls: bool = False) -> None:
        places = [tmp_path / "run", tmp_path / "logs"]
        command = [sys.executable, "-c", USER, *places, stand_in.spec(), "yes" if controls else ""]
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        self.wait_for("bound")

    def load(self) -> None:
        """Have it start the server, or find it."""
        self.begin_to_load()
        self.wait_for("loaded")

    def begin_to_load(self) -> None:
        """The same, without waiting."""
        assert self.process.stdin is not None
        self.process.stdin.write("load\n")
        self.process.stdin.flush()

    def wait_for(self, line: str) -> None:
        """Wait for a line of its output."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()


@pytest.mark.slow
def test_processes_share_a_server_as_long_as_their_controller_lives(
    stand_in: RunStandIn, tmp_path: Path
) -> None:
    """The worker that started it may be killed. Where the controller is, nobody reads what others
    make, and the server ends.
    """
    controller = User(tmp_path, stand_in, controls=True)
    workers = User(tmp_path, stand_in), User(tmp_path, stand_in)
    try:
        workers[0].load()
        workers[0].kill()
        workers[1].load()
        assert len(stand_in.starts) == 1
        assert is_alive(stand_in.starts[0]["pid"])
        controller.kill()
        stand_in.wait_for_end()
    finally:
        for user in (controller, *workers):
            user.kill()


@pytest.mark.slow
def test_a_start_goes_on_where_its_process_was_killed(stand_in: RunStandIn, tmp_path: Path) -> None:
    """Another process of the run waits for the same server."""
    stand_in.behave(slow=2)
    first, second = User(tmp_path, stand_in), User(tmp_path, stand_in)
    try:
        first.begin_to_load()
        while not stand_in.starts:
            assert first.process.poll() is None
        first.kill()
        second.load()
        assert len(stand_in.starts) == 1
    finally:
        second.kill()
    stand_in.wait_for_end()


def test_a_server_has_the_devices_that_it_needs(
    stand_in: RunStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variable that is set: accelerators of other makers have one of their own. A worker
    leases one device, and has one thread; a server of two is given those of the whole run.
    """
    for name in DEVICE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    other = DEVICE_VARIABLES[-1]
    monkeypatch.setenv(other, "5")
    with pytest.raises(SpecError, match=rf"needs 2 devices, and {other} is 5"):
        stand_in.bind(stand_in.spec("tensor_parallel_size=2")).load()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with closing(
        RunServers(tmp_path / "leased", tmp_path / "logs", unleased={other: "4,5"})
    ) as run:
        for query, devices in (("tensor_parallel_size=2", "4,5"), ("", "5"), ("devices=3", "3")):
            bind(parse_spec(stand_in.spec(query)), "describer", context_with(run)).load()
            environment = stand_in.starts[-1]["env"]
            assert {name: environment.get(name) for name in DEVICE_VARIABLES} == {
                name: devices if name == other else None for name in DEVICE_VARIABLES
            }
            assert "OMP_NUM_THREADS" not in environment


def test_a_folder_that_cannot_be_written_is_one_line(stand_in: RunStandIn, tmp_path: Path) -> None:
    """A full disk, or a file in the way."""
    (tmp_path / "run").write_text("")
    servers = RunServers(tmp_path / "run", tmp_path / "logs")
    with pytest.raises(WriteError, match=r"the folder of its server, .* cannot be used"):
        bind(parse_spec(stand_in.spec()), "describer", context_with(servers))


@pytest.mark.models
@pytest.mark.slow
def test_transformers_serve_says_what_the_checkpoint_says_here(
    tmp_path: Path, stand_in: RunStandIn
) -> None:
    """Greedy captions are equal word for word, under one fingerprint. It maps the weights into
    memory, where it has no accelerator: another file is another model, and stops the case.
    """
    for library in ("torch", "transformers", "fastapi", "openai", "uvicorn"):
        pytest.importorskip(library, reason=f"`transformers serve` is asked, which needs {library}")
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

    from tests.tiny.describers import build_llava

    with quiet():
        checkpoint = build_llava(tmp_path / "llava")
    query = "engine=transformers&engine_args=--device cpu&dtype=float32&max_tokens=12"
    here = bind_text(f"{checkpoint}?max_new_tokens=12", "describer")
    served = stand_in.bind(f"serve:{checkpoint}?{query}")
    images = pictures(((64, 64), (48, 80), (96, 40)))
    model, own = served.load(), here.load()
    assert isinstance(model, ApiModel)
    assert isinstance(own, Describer)
    replies, texts = (each.describe(images, "describe", [0] * 3) for each in (model, own))

    assert served.fingerprint == here.fingerprint
    assert plain(replies) == list(texts)
    assert len(set(plain(replies))) > 1
    for reply in replies:
        assert isinstance(reply, Reply)
        assert reply.provenance["engine"] == "transformers serve"
    (weights,) = checkpoint.glob("*.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(IdentityError, match="written again: model"):
        model.describe(images[:1], "describe", [0])


# -- binding ---------------------------------------------------------------------------------------


def test_the_role_is_that_of_the_checkpoint(stand_in: RunStandIn, tmp_path: Path) -> None:
    """`--model` detects it as for a folder; roles that no chat plays are left out, and are refused
    with the way to insist. `--describer` is bound all the same.
    """
    detected = detect(parse_spec(stand_in.spec()))
    what = "LlavaForConditionalGeneration on vLLM"
    assert (detected.what, detected.roles) == (what, ("describer", "writer"))

    folder = write_checkpoint(tmp_path / "vit", VIT)
    encoder = stand_in.spec().replace(str(stand_in.checkpoint), str(folder))
    detected = detect(parse_spec(encoder))
    assert detected.roles == ()
    assert "only describe, write, judge or answer" in detected.because
    with pytest.raises(RoleError, match=r"can be the describer\. .* --describer, or --model"):
        stand_in.bind(encoder)
    assert stand_in.bind(encoder, force=True).what == "ViTModel on vLLM"


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("start_timeout=5&devices=1&concurrency=2&timeout=9&retries=1", True),
        ("tensor_parallel_size=2&gpu_memory_utilization=0.5&max_num_seqs=3", True),
        ("dtype=bfloat16", False),
        ("quantization=fp8", False),
        ("engine_args=--generation-config vllm", False),
        ("temperature=0.5", False),
    ],
)
def test_what_can_change_an_answer_is_in_its_key_and_nothing_else(
    stand_in: RunStandIn, query: str, same: bool
) -> None:
    """Where and how fast a server works is no reason to ask it again; its precision is."""
    plain = bind_text(stand_in.spec(), "describer").identity

    assert (bind_text(stand_in.spec(query), "describer").identity == plain) is same


def test_a_served_checkpoint_is_known_by_its_own_fingerprint(stand_in: RunStandIn) -> None:
    """Wherever it is served, and by whatever. Mistral's consolidated weights, which this package
    never loads but vLLM may, are a part of it, and remote code where it is run; that of another
    repository is refused, as for a folder.
    """
    here = bind_text(str(stand_in.checkpoint), "describer")
    served = bind_text(stand_in.spec(), "describer")
    assert served.fingerprint == here.fingerprint
    assert served.adapter != here.adapter
    assert (served.device, served.remarks) == ("server", ())
    assert not stand_in.starts

    query = "trust_remote_code=true"
    seen = {bind_text(stand_in.spec(query), "describer").fingerprint}
    for name, content in (
        ("consolidated.safetensors", safetensors_bytes()),
        ("modeling.py", b"x = 1"),
        ("modeling.py", b"x = 2"),
    ):
        (stand_in.checkpoint / name).write_bytes(content)
        fingerprint = bind_text(stand_in.spec(query), "describer").fingerprint
        assert fingerprint not in seen
        seen.add(fingerprint)
    assert bind_text(stand_in.spec(), "describer").fingerprint != served.fingerprint
    (stand_in.checkpoint / "chat_template.jinja").write_text("{{ strftime_now('%Y') }}")
    (told,) = bind_text(stand_in.spec(), "describer").remarks
    assert "asks for today" in told

    config = json.loads((stand_in.checkpoint / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "other/repository--modeling.Model"}
    (stand_in.checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="its code lies in"):
        bind_text(stand_in.spec(query), "describer")


def test_a_wrong_interpreter_or_role_is_refused(stand_in: RunStandIn) -> None:
    """Before anything is started; so is a key, since specs are printed and stored."""
    with pytest.raises(SpecError, match=r"no such program\. Give the interpreter"):
        bind_text(f"serve:{stand_in.checkpoint}?python=/no/python", "describer")
    with pytest.raises(RoleError, match="describer or judge or writer or vqa, not the generator"):
        bind_text(stand_in.spec(), "generator")
    for query in ("api_key=sk-secret-0123456789", "engine_args=--x sk-secret-0123456789"):
        with pytest.raises(SpecError, match="Keys come from the environment") as raised:
            bind_text(stand_in.spec(query), "describer")
        assert "secret" not in str(raised.value)


def test_an_engine_that_is_not_here_is_one_line_with_the_command(
    stand_in: RunStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It belongs into an environment of its own, which is named by its interpreter. A script of the
    same environment goes first.
    """
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for engine in ENGINES:
        spec = f"serve:{stand_in.checkpoint}?engine={engine}"
        for ask in (
            lambda text: bind_text(text, "judge"),
            lambda t: check_installed(parse_spec(t)),
        ):
            with pytest.raises(MissingDependencyError, match=r"pip install .*python=~/") as raised:
                ask(spec)
            assert "\n" not in str(raised.value)

    beside, elsewhere = tmp_path / "own" / "vllm", tmp_path / "other" / "vllm"
    for script in (beside, elsewhere):
        script.parent.mkdir()
        script.write_text(f"#!{sys.executable}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(elsewhere.parent))
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    assert find_program("vllm", None) == (str(beside), "serve")
    beside.unlink()
    assert find_program("vllm", None) == (str(elsewhere), "serve")
