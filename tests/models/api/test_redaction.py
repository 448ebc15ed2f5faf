"""Keys: not in words of servers, not in results, not in what Python shows of an object."""

from __future__ import annotations

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.api.endpoint import (
    find_endpoint,
    public_url,
    without_secrets,
)
from pytest_cepbench.models.api.parameters import ServerParams
from pytest_cepbench.models.protocols import Battle
from tests.models.api.conftest import Load, describe
from tests.models.api.fake_server import Answer, FakeServer, chat_answer, document, fault

KEY = "0123456789-team-key"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"no such key: {KEY}!", "no such key: [key]!"),
        ("Incorrect API key provided: sk-abc***********wxyz.", "Incorrect API key provided: [key]"),
        ("sent Authorization: Bearer abcdef0123456789", "sent Authorization: Bearer [key]"),
        ("GET http://me:pass@host/v1 failed", "GET http://host/v1 failed"),
        ("two\nlines\x1b[31m red\x00", r"two lines\x1b[31m red\x00"),
        ("a task-oriented risk-based answer", "a task-oriented risk-based answer"),
        ("x" * 1000, "x" * 297 + "..."),
    ],
)
def test_words_of_servers_are_shown_without_keys(text: str, shown: str) -> None:
    """Servers repeat the key that they refuse, whole or in part."""
    assert without_secrets(text, KEY) == shown


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
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://host/v1"}

    endpoint = find_endpoint("m", "describer", ServerParams(revision="1"), environment)

    assert KEY not in repr(endpoint)
    assert endpoint.url == "http://host/v1"
    assert endpoint.key == KEY


def test_a_server_that_answers_with_the_key_puts_it_into_no_result(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are stored and drawn by others; the key goes only to the server that it is for."""
    key, coded = "0123456789+team/key", "0123456789%2Bteam%2Fkey"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server.answer = lambda seen: chat_answer(f"a sign: {seen.headers['authorization']}, {coded}")

    (reply,) = describe(load("describer"))

    assert server.seen[0].headers["authorization"] == f"Bearer {key}"
    assert reply.value == "a sign: Bearer [key], [key]"


def test_faults_that_repeat_the_key_are_told_without_it(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures and remarks go into reports, results into the store."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    unknown = fault(400, f"{KEY}: unknown parameter temperature", param="temperature")
    server.in_turn(
        unknown,
        document({"choices": [{"message": {"content": "x"}}], "model": KEY}),
        chat_answer(None, refusal=f"not for {KEY}"),
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


def test_the_account_that_pays_is_named(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variables that OpenAI's own client reads; without them nothing is sent."""
    describe(load("describer"))
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    describe(load("describer"))

    names = ("openai-organization", "openai-project", "authorization")
    sent = [[seen.headers.get(name) for name in names] for seen in server.seen]
    assert sent == [[None, None, None], ["org-1", "proj-1", None]]


def test_a_key_that_is_cut_does_not_stay_in_part(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are shortened when the key is out of them, wherever in them it is."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    refusal = chat_answer(None, refusal="x" * 295 + KEY)
    page = Answer(b" " * 3990 + KEY.encode(), 400)
    server.in_turn(refusal, page, chat_answer("x" * 195 + KEY))

    replies = describe(load("describer", "concurrency=1&retries=0"), 2)
    verdict = load("judge").judge([Battle(["q"], ["a"], ["b"])], [0])

    assert KEY[:5] not in repr([*replies, *verdict])
