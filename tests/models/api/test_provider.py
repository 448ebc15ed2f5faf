"""Binding an `openai:` spec, and what every report says of a server's results."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.errors import CepError, MissingDependencyError, SpecError
from pytest_cepbench.models.api.provider import provenance_warnings
from pytest_cepbench.models.binding import check_installed, detect, weights_bytes
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from tests.models.api.conftest import Load, describe
from tests.models.api.fake_server import FakeServer, fault
from tests.models.binding import bind_text
from tests.models.files import LLAVA, write_checkpoint

URL = "base_url=http://127.0.0.1:1/v1"


def test_the_served_weights_are_the_identity(tmp_path: Path) -> None:
    """Another checkpoint under the same name is another model; a copy or another port is not."""
    folder = write_checkpoint(tmp_path / "step-1", LLAVA)

    def identity(weights: Path, url: str = URL) -> object:
        return bind_text(f"openai:policy?{url}&weights={weights}", "describer").identity

    before = identity(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert identity(copy) == before == identity(folder, "base_url=http://other:8000/v1")
    (weights,) = copy.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    assert identity(copy) != before


@pytest.mark.parametrize(
    ("query", "role", "same"),
    [
        ("concurrency=2&timeout=1&retries=1&patience=1", "describer", True),
        ("price_in=1&price_out=1&key_env=MY_KEY", "describer", True),
        ("price_image=1", "generator", True),
        ("revision=2", "describer", False),
        ("temperature=0.5", "describer", False),
        ("system_prompt=be brief", "judge", False),
        ("dtype=bfloat16", "describer", False),
        ("height=64&width=64", "generator", False),
    ],
)
def test_what_can_change_an_answer_is_in_its_key_and_nothing_else(
    query: str, role: RoleName, same: bool
) -> None:
    """How long a server is waited for is no reason to ask it again."""
    plain = bind_text(f"openai:m?{URL}&revision=1", role)
    revised = "" if "revision" in query else "&revision=1"

    assert (bind_text(f"openai:m?{URL}{revised}&{query}", role).identity == plain.identity) is same


def test_binding_needs_neither_server_nor_key() -> None:
    """A run whose results are all in the store asks no server."""
    bound = bind_text("openai:m?base_url=http://nowhere.invalid/v1&revision=1", "describer")

    assert (bound.resources.batch_size, bound.seeded, bound.device) == (64, False, "server")
    assert bound.provenance["server"] == "http://nowhere.invalid/v1"
    assert bind_text("openai:m?revision=1&temperature=1", "judge").seeded
    assert bind_text("openai:m?revision=1&temperature=none", "describer").seeded
    assert bind_text("openai:m?revision=1", "generator").seeded
    assert weights_bytes(parse_spec("openai:m?revision=1")) is None


def test_a_wrong_spec_is_refused_in_one_line() -> None:
    """Before anything runs, with what was expected."""
    cases: tuple[tuple[str, RoleName, str], ...] = (
        ("openai:m", "describer", "give weights=FOLDER .* or revision=NAME"),
        ("openai:?revision=1", "describer", "no model is named"),
        ("openai:m\udcff?revision=1", "describer", "bytes are no UTF-8"),
        ("openai:m?weights=/nowhere", "describer", "weights=/nowhere: no such folder"),
        ("openai:m?revision=1", "encoder", "has no encoder; it can be the describer or generator"),
    )
    for spec, role, message in cases:
        with pytest.raises(CepError, match=message) as raised:
            bind_text(spec, role)
        assert "\n" not in str(raised.value)


def test_a_key_in_a_spec_is_refused_and_not_repeated() -> None:
    """Specs are printed, stored and reported: keys come from the environment."""
    key, words = "sk-secret-0123456789", r"environment|OPENAI_BASE_URL|each of them once"
    for query in (
        f"revision=1&api_key={key}",
        f"revision=1&api_key=abc&token={key}",
        f"revision=1&key_env={key}",
        "revision=1&key_env=sksecret0123456789",
        f"revision=1&base_url=http://user:{key}@host/v1",
        f"revision=1&base_url=http://host/v1%3Ftoken={key}",
        f"revision=1&quality={key}",
        f"weights=&revision={key}",
        f"revision=1&quality={key}&quality={key}",
        f"revision=1&{key}",
    ):
        with pytest.raises(SpecError, match=words) as detecting:
            detect(parse_spec(f"openai:m?{query}"))
        with pytest.raises(SpecError, match=words) as binding:
            bind_text(f"openai:m?{query}", "generator")
        assert "secret" not in f"{detecting.value} {binding.value}"


def test_a_server_that_answers_for_any_name_is_remarked(
    server: FakeServer, load: Load, tmp_path: Path
) -> None:
    """It may have other weights than those that the spec names, as before it was started anew."""
    weights = f"weights={write_checkpoint(tmp_path / 'step-2', LLAVA)}"

    (listed,) = describe(load("describer", weights))
    (other,) = describe(load("describer", weights, "policy"))

    assert not listed.remarks
    (remark,) = other.remarks
    assert "does not list this model; it lists tiny, large: see that" in remark


def test_a_missing_client_is_one_line_with_the_command(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is an extra."""
    monkeypatch.setitem(sys.modules, "httpx2", None)

    with pytest.raises(MissingDependencyError, match=r'pip install "pytest-cepbench\[openai\]"'):
        check_installed(parse_spec(server.spec()))
    with pytest.raises(MissingDependencyError, match=r'pip install "pytest-cepbench\[openai\]"'):
        bind_text(server.spec(), "describer")


def _warnings(server: FakeServer, store: Store) -> list[str]:
    """Describe one image through the store; what is told then."""
    runner = RoleRunner(bind_text(server.spec("key_env=none"), "describer"), store)
    runner.ask("describe", [Step("k" * 64, 0, lambda: Image.new("RGB", (2, 2)))], "what?")
    return runner.warnings


def test_stored_results_are_told_of_like_new_ones(server: FakeServer, store: Store) -> None:
    """The name that answered, and what it did not honour; the store keeps both. A name that only
    adds a date is another: which weights an alias stands for changes. Not every server says what it
    is; a name is kept up to its hundredth letter.
    """
    usual = server.answer
    server.in_turn(fault(400, "temperature is not supported", param="temperature"), usual)

    first = _warnings(server, store)
    asked = len(server.seen)
    again = _warnings(server, store)

    assert len(server.seen) == asked
    assert first == again
    name, unheeded = first
    assert "the server answered as 'tiny-2026', and 'tiny' was asked for" in name
    assert unheeded.endswith("answers were made without what was asked for: 'temperature=0'")
    for served in ("gpt-4o-2024-08-06", "GPT-4o", "gpt-4o@main", "other"):
        (told,) = provenance_warnings("judge", "gpt-4o", [{"server served": served}])
        assert f"the server answered as {served!r}, and 'gpt-4o' was asked for" in told
    assert provenance_warnings("judge", "m", [{"server served": "m"}, {}]) == []
    assert provenance_warnings("judge", "x" * 120, [{"server served": "x" * 100}]) == []
