"""Keys: not in words of servers, not in results, not in what Python shows of an object."""

from __future__ import annotations

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.api.endpoint import find_endpoint
from pytest_cepbench.models.api.params import ServerParams
from pytest_cepbench.models.api.secrecy import Secret, public_url, without_secrets
from tests.models.api.conftest import Load, describe
from tests.models.api.fake_server import FakeServer, document, fault, said

KEY = "0123456789-team-key"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"no such key: {KEY}!", "no such key: [key]!"),
        ("Incorrect API key provided: sk-abc***********wxyz.", "Incorrect API key provided: [key]"),
        ("sent Authorization: Bearer abcdef0123456789", "sent Authorization: Bearer [key]"),
        ("GET http://me:pass@host/v1 failed", "GET http://host/v1 failed"),
        ("two\nlines\x1b[31m red\x00", "two lines [31m red"),
        ("a task-oriented risk-based answer", "a task-oriented risk-based answer"),
        ("x" * 1000, "x" * 297 + "..."),
    ],
)
def test_words_of_servers_are_shown_without_keys(text: str, shown: str) -> None:
    """Servers repeat the key that they refuse, whole or in part."""
    assert without_secrets(text, [Secret(KEY)]) == shown


def test_a_word_that_stands_for_no_key_is_no_secret() -> None:
    """EMPTY is what many servers without keys are given; captions may hold it."""
    assert Secret("EMPTY").out_of("an EMPTY room") == "an EMPTY room"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pass@host:8000/v1/?token=a#b", "https://host:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://host:port/v1", "(a URL that cannot be read)"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(url: str, shown: str) -> None:
    """User, password and query are for the server alone."""
    assert public_url(url) == shown


def test_what_python_shows_of_an_endpoint_holds_no_key() -> None:
    """--showlocals and a debugger print such objects."""
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"http://me:{KEY}@host/v1?q={KEY}"}

    endpoint = find_endpoint("m", "describer", ServerParams(revision="1"), environment)

    assert KEY not in repr(endpoint)
    assert (endpoint.url, endpoint.api_key) == ("http://host/v1", KEY)
    assert endpoint.headers["Authorization"].startswith("Basic ")
    assert "@" not in endpoint.address.reveal()


def test_a_server_that_answers_with_the_key_puts_it_into_no_result(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are stored and drawn by others; the key is sent to the server that it is for, and no further."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answer = lambda seen: said(f"a sign: {seen.headers['authorization']}")

    (reply,) = describe(load("describer"))

    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert reply.value == "a sign: Bearer [key]"


def test_faults_that_repeat_the_key_are_told_without_it(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures and remarks go into reports, results into the store."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    unknown = fault(400, f"{KEY}: unknown parameter temperature", param="temperature")
    server.in_turn(
        unknown,
        document({"choices": [{"message": {"content": "x"}}], "model": KEY}),
        said(None, refusal=f"not for {KEY}"),
        fault(400, f"bad {KEY}"),
        fault(500, f"no {KEY}"),
    )

    replies = describe(load("describer", "concurrency=1&retries=0"), 4)

    failures = {reply.value.kind for reply in replies if isinstance(reply.value, Failure)}
    assert failures == {"refused", "exception", "unanswered"}
    assert any(reply.remarks for reply in replies)
    assert KEY not in repr(replies)


def test_no_key_is_sent_where_the_spec_says_so(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of one's own need not see the key of another one."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    describe(load("describer", "key_env=none"))

    assert KEY not in str(server.seen[0].headers)
