"""Keys: not in words of servers, not in results, not in what Python shows of an object."""

from __future__ import annotations

import logging
import string
import time
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.api.endpoint import (
    Secret,
    find_endpoint,
    public_url,
    without_secrets,
)
from pytest_cepbench.models.api.parameters import ServerParams
from pytest_cepbench.models.protocols import Battle
from tests.models.api.conftest import Load, describe
from tests.models.api.fake_server import Answer, FakeServer, chat_answer, document, fault
from tests.models.binding import bind_text

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
    assert without_secrets(text, [Secret(KEY)]) == shown


KEYS = st.text(alphabet=string.ascii_letters + string.digits + "-_.+/=~", min_size=8, max_size=60)

AROUND = st.text(alphabet="ab ./:\n", max_size=6)

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "percent": lambda key: quote(key, safe=""),
    "every letter percent": lambda key: "".join(f"%{ord(c):02X}" for c in key),
    "percent twice": lambda key: "".join(f"%25{ord(c):02x}" for c in key),
    "every other letter": lambda key: "".join(
        c if i % 2 else f"%{ord(c):02x}" for i, c in enumerate(key)
    ),
}
"""How a server may repeat a key, beside what it says around it."""


@pytest.mark.parametrize("form", FORMS)
@given(KEYS, AROUND, AROUND)
@settings(max_examples=25)
def test_a_key_is_found_in_every_form(form: str, key: str, before: str, after: str) -> None:
    """The key goes, and what stands around it stays."""
    repeated = FORMS[form](key)
    text = f"{before}\n{repeated}\n{after}"
    redacted = Secret(key).remove_from(text)
    assert "[key]" in redacted
    assert repeated not in redacted
    assert redacted.replace("\n", "").startswith(before.replace("\n", ""))
    assert redacted.replace("\n", "").endswith(after.replace("\n", ""))


def test_a_key_of_any_letters_is_found_in_a_url() -> None:
    """A password may hold spaces, and letters of several bytes."""
    for form in (quote, quote_plus):
        text = f"http://host/?q={form('pass wörd (1)')}&n=1"
        assert Secret("pass wörd (1)").remove_from(text) == "http://host/?q=[key]&n=1"


@pytest.mark.parametrize("key", ["EMPTY", "none", "a", "", "1234567"])
@given(st.text(alphabet="EMPTYnone a1234567%=", max_size=40))
@settings(max_examples=20)
def test_a_short_key_changes_no_text(key: str, text: str) -> None:
    """Servers without keys are given words; captions hold them."""
    assert Secret(key).remove_from(text) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_a_text_without_the_key_stays_as_it_is(text: str) -> None:
    """Encoded letters are read to find the key, and not to change anything."""
    assume("0" not in text)
    assert Secret(KEY).remove_from(text) == text


def test_words_are_not_joined_to_a_key() -> None:
    """A key with gaps may be plain text."""
    assert Secret("redbuses").remove_from("two red buses") == "two red buses"
    assert Secret("redbuses").remove_from("two redbuses") == "two [key]"


@pytest.mark.parametrize(
    "text", ["%25" * 30_000, "%" + "25" * 40_000, "%252530" * 20_000, " " * 50_000]
)
def test_looking_for_a_key_takes_no_longer_than_the_text(text: str) -> None:
    """A text of nothing but encoded letters is searched in little time."""
    started = time.perf_counter()
    assert Secret(KEY * 800).remove_from(text) == text
    assert time.perf_counter() - started < 2


def test_a_word_that_stands_for_no_key_is_no_secret() -> None:
    """EMPTY is what many servers without keys are given; captions may hold it."""
    assert Secret("EMPTY").remove_from("an EMPTY room") == "an EMPTY room"


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
    assert endpoint.url == "http://host/v1"
    assert endpoint.key is not None
    assert endpoint.key.reveal() == KEY
    assert endpoint.user is not None
    assert "@" not in endpoint.address.reveal()


def test_a_server_that_answers_with_the_key_puts_it_into_no_result(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are stored and drawn by others; the key goes only to the server that it is for."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answer = lambda seen: chat_answer(f"a sign: {seen.headers['authorization']}")

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


def test_password_and_query_of_an_address_are_secrets_too(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that repeats them puts them into no result."""
    url = server.url.replace("//", "//team:a%20pass-word@") + "?token=query-token-1"
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    sent = b64encode(b"team:a pass-word").decode()
    server.answer = lambda _: chat_answer(f"a pass-word, query-token-1, {sent} and team")

    (reply,) = describe(bind_text("openai:tiny?revision=1", "describer").load())

    assert server.seen[0].headers["authorization"] == f"Basic {sent}"
    assert reply.value == "[key], [key], [key] and team"


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


def test_libraries_log_no_key(
    server: FakeServer,
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Headers, reasons and exceptions are logged as the server sent them, but for the key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    echo = {"x-echo": KEY, "x-coded": "".join(f"%{ord(char):02x}" for char in KEY)}
    body = chat_answer().body
    server.in_turn(Answer(body, 200, echo), Answer(b"{}", 400, echo))
    caplog.set_level(logging.DEBUG)

    describe(load("describer", "concurrency=1&retries=0"), 2)

    assert "x-echo" in caplog.text
    assert KEY not in caplog.text
    assert echo["x-coded"] not in caplog.text
