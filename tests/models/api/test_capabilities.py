"""What every report says of a server's results, by what was kept beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.models.api.provider import provenance_warnings
from pytest_cepbench.store import Store
from tests.models.api.fake_server import FakeServer, fault
from tests.models.binding import bind_text


@pytest.mark.parametrize("served", ["gpt-4o-2024-08-06", "GPT-4o", "gpt-4o@main", "other"])
def test_another_name_is_told_with_both(served: str) -> None:
    """Also one that only adds a date: which weights an alias stands for changes."""
    (warning,) = provenance_warnings(
        "describer", "gpt-4o", [{"server served": served, "batch": "8"}]
    )
    assert warning.startswith(
        f"describer openai:gpt-4o: the server answered as {served!r}, and 'gpt-4o' was asked for"
    )


def test_nothing_is_told_where_the_name_is_the_one_or_none() -> None:
    """Not every server says what it is; a name is kept up to its hundredth letter."""
    long = "x" * 120
    assert (
        provenance_warnings("judge", "m", [{"server served": "m"}, {}, {"server system": "fp"}])
        == []
    )
    assert provenance_warnings("judge", long, [{"server served": long[:100]}]) == []


def test_many_names_are_one_sentence() -> None:
    """A server that calls itself otherwise in each answer fills no report."""
    every = [{"server served": f"m-{i}"} for i in range(50)] * 2
    (warning,) = provenance_warnings("generator", "m", every)
    assert "answered as 'm-0', 'm-1', 'm-2' and 47 others, and 'm' was asked for" in warning


def test_what_others_stored_is_shown_and_not_obeyed() -> None:
    """A shared store may hold any text there; so may one that kept a key."""
    (warning,) = provenance_warnings(
        "describer", "m", [{"server served": "a\x1b[2J\u202e sk-0123456789\n"}]
    )
    assert warning.isprintable()
    assert "sk-0123456789" not in warning


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with Store(tmp_path / "store") as opened:
        yield opened


def _describe(server: FakeServer, store: Store) -> list[str]:
    """Describe one image through the store; what is told then."""
    runner = RoleRunner(bind_text(server.spec("key_env=none"), "describer"), store)
    runner.ask("describe", [Step("k" * 64, 0, lambda: Image.new("RGB", (2, 2)))], "what?")
    return runner.warnings


def test_stored_results_are_told_of_like_new_ones(server: FakeServer, store: Store) -> None:
    """The name that answered, and what it did not honour; the store keeps both."""
    usual = server.answer
    server.in_turn(fault(400, "temperature is not supported", param="temperature"), usual)

    first = _describe(server, store)
    asked = len(server.seen)
    again = _describe(server, store)

    assert len(server.seen) == asked
    assert first == again
    name, unheeded = first
    assert "the server answered as 'tiny-2026', and 'tiny' was asked for" in name
    assert unheeded.endswith("answers were made without what was asked for: 'temperature=0'")
