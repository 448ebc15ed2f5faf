"""Reaching a server: a mistake is one line with the remedy, and no message or result has keys.

At the end binding an `openai:` spec, and what every report says of a server's results.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.errors import CepError, MissingDependencyError, ModelError, SpecError
from pytest_cepbench.models.api import client
from pytest_cepbench.models.api.endpoint import find_endpoint, public_url, without_secrets
from pytest_cepbench.models.api.parameters import ServerParams
from pytest_cepbench.models.api.provider import provenance_warnings
from pytest_cepbench.models.binding import check_installed, detect, weights_bytes
from pytest_cepbench.models.protocols import Battle, Describer, RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from tests.models.api.conftest import describe, load
from tests.models.api.fake_server import (
    Answer,
    FakeServer,
    chat_answer,
    document,
    fault,
    serving,
    web_page,
)
from tests.models.binding import bind_text
from tests.models.files import LLAVA, write_checkpoint

KEY = "sk-secret-0123456789"


def _error(spec: str, role: RoleName = "describer", *, ask: bool = True) -> str:
    """What is said where a model is loaded and asked for one thing."""

    def use() -> None:
        model = bind_text(spec, role).load()
        if ask:
            assert isinstance(model, Describer)
            model.describe([Image.new("RGB", (2, 2))], "", [0])

    with pytest.raises(ModelError) as raised:
        use()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_the_environment_lacks_or_holds_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told when the model is loaded: refused connections and unknown hosts; no key, which the
    client's own address wants, and a spec that names a variable; a missing scheme, a pasted quote,
    by the variable's name and without its value.
    """
    for url in ("http://127.0.0.1:1/v1", "http://nowhere.invalid/v1"):
        message = _error(f"openai:tiny?base_url={url}&revision=1", ask=False)
        for words in (f"{url} cannot be reached", "base_url=", "OPENAI_BASE_URL"):
            assert words in message
    assert "OPENAI_API_KEY is not set" in _error("openai:gpt?revision=1", ask=False)
    named = "openai:gpt?revision=1&base_url=http://127.0.0.1:1/v1&key_env=TEAM_KEY"
    assert "TEAM_KEY is not set" in _error(named, ask=False)
    monkeypatch.setenv("TEAM_KEY", KEY)
    assert "cannot be reached" in _error(named, ask=False)
    for name, value, expected in (
        ("OPENAI_BASE_URL", "localhost:8000/v1", "is no address of a server"),
        ("OPENAI_BASE_URL", f"http://me:{KEY}@host:port/v1", "is no address of a server"),
        ("OPENAI_BASE_URL", f"http://me:{KEY}@host/v1", "without user and query"),
        ("OPENAI_BASE_URL", f"http://host/v1?token={KEY}", "without user and query"),
        ("OPENAI_API_KEY", f"{KEY}\nand more", "what OPENAI_API_KEY holds is no key"),
        ("OPENAI_API_KEY", f"“{KEY}”", "what OPENAI_API_KEY holds is no key"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            message = _error("openai:m?revision=1", ask=False)
        assert expected in message
        assert KEY not in message
    for name, value, expected in (
        ("HTTP_PROXY", "gopher://proxy:1", "Unknown scheme for proxy"),
        ("HTTPS_PROXY", f"http://me:{KEY}@proxy:port", "Invalid port"),
        ("SSL_CERT_FILE", "/nowhere.pem", "No such file"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            message = _error("openai:m?revision=1&base_url=https://host/v1", ask=False)
        assert re.search(rf"no client for https://host/v1 .*{expected}.*{name}", message)
        assert KEY not in message
    assert "Invalid IDNA" in _error("openai:m?revision=1&base_url=http://%E2%80%A8/v1", ask=False)


ECHO = f"Incorrect API key provided: {KEY[:6]}***{KEY[-4:]}, sent as Bearer {KEY}"

UNKNOWN = fault(404, "The model 'tinny' does not exist", "model_not_found")

OTHERS = (
    r"not know this model.* Did you mean 'tiny'\? It lists tiny, large\. .*--describer \(or --mo"
)

FAULTS: dict[str, tuple[Answer | None, Answer | None, str]] = {
    "a web site": (web_page(), None, r"a web page \(Welcome to nginx!\)"),
    "a web site below": (web_page(404), web_page(), r"a web page \(Welcome to nginx!\)"),
    "no such page": (
        web_page(404),
        web_page(404),
        r"no such interface \(404: a web page.* base_url=",
    ),
    "a wrong key": (fault(401, ECHO), None, "Correct OPENAI_API_KEY"),
    "a key without a list": (fault(403, ECHO), fault(403, ECHO), "Correct OPENAI_API_KEY"),
    "a used quota": (None, fault(429, "you exceeded it", "insufficient_quota"), "is used up"),
    "another model": (None, UNKNOWN, OTHERS),
    "Gemini": (
        None,
        document([{"error": {"code": 400, "message": "API key not valid"}}], 400),
        "last fault: 400: API key not valid",
    ),
    "transformers": (None, document({"detail": "pinned to a model"}, 400), "Did you mean 'tiny'"),
}
"""The list of models where it is no usual one, the answer where one is asked for, what is said."""


@pytest.mark.parametrize("name", FAULTS)
def test_what_no_other_try_can_mend_is_said_at_once(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """At loading where the list shows it, which may be forbidden to a key that may use the model.
    A key that is repeated, whole or in part, is not shown.
    """
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    models, answer, words = FAULTS[name]
    server.models = models or server.models
    server.in_turn(answer or chat_answer())
    message = _error(server.spec(model="tinny"), ask=answer is not None)
    assert re.search(words, message)
    assert "secret" not in message
    assert KEY[-4:] not in message
    assert len(server.seen) == (answer is not None)


def test_an_answer_without_an_end_is_not_read_to_it(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of nothing can unfold to a gigabyte."""
    monkeypatch.setattr(client, "_MOST_BYTES", 2**20)
    packed = {"content-encoding": "gzip"}
    server.answer = lambda _: Answer(gzip.compress(bytes(2**20 + 1)), headers=packed)
    assert "an answer of more than 1 MiB" in _error(server.spec())


def test_a_list_that_lacks_the_model_stops_nothing(server: FakeServer) -> None:
    """Aliases work without being listed, and not every server has a list."""
    for models in (
        document({"data": [{"id": "large"}]}),
        document({"detail": "Not Found"}, 404),
        document({"data": 7}),
        Answer(b"{"),
    ):
        server.models = models
        assert describe(load(server, "describer"))[0].value == "a red circle"


def test_one_fatal_answer_ends_the_whole_batch(server: FakeServer) -> None:
    """A key that expires on the way fails every request still to come: none of them is sent."""
    model = load(server, "describer", "concurrency=2")
    server.in_turn(chat_answer(), fault(401, "expired"))

    with pytest.raises(ModelError, match="refuses the key"):
        describe(model, 64)
    assert len(server.seen) < 10


@pytest.mark.parametrize("status", [301, 307])
def test_a_server_that_points_elsewhere_is_not_followed(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Neither image nor key nor prompt goes where a server says; told."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as other:
        at = other.url.partition("//")[2]
        pointed = f"http://me:{KEY}@{at}/chat/completions?key={KEY}#{KEY}"
        server.models = Answer(b"", status, {"location": pointed})
        server.answer = lambda _: Answer(b"", status, {"location": pointed})

        message = _error(server.spec())

        assert other.seen == []
    assert len(server.seen) == 1
    assert f"points elsewhere ({status}), and redirects are not followed" in message
    assert "base_url=" in message
    assert KEY not in message


# -- keys -----------------------------------------------------------------------------------------


TEAM_KEY = "0123456789-team-key"


def test_words_and_addresses_are_shown_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers repeat the key that they refuse, whole or in part; user, password and query of an
    address are for the server alone. --showlocals and a debugger print an endpoint.
    """
    for text, shown in (
        (f"no such key: {TEAM_KEY}!", "no such key: [key]!"),
        ("Incorrect API key provided: sk-abc***********wxyz.", "Incorrect API key provided: [key]"),
        ("GET http://me:pass@host/v1 failed", "GET http://host/v1 failed"),
        ("two\nlines\x1b[31m red\x00", r"two lines\x1b[31m red\x00"),
        ("a task-oriented risk-based answer", "a task-oriented risk-based answer"),
        ("x" * 1000, "x" * 297 + "..."),
    ):
        assert without_secrets(text, TEAM_KEY) == shown
    for url, shown in (
        ("https://me:pass@host:8000/v1/?token=a#b", "https://host:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://host:0/v1", "http://host:0/v1"),
        ("http://host:port/v1", "(a URL that cannot be read)"),
    ):
        assert public_url(url) == shown
    monkeypatch.setenv("OPENAI_API_KEY", TEAM_KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://host/v1")
    endpoint = find_endpoint("m", "describer", ServerParams(revision="1"))
    assert TEAM_KEY not in repr(endpoint)
    assert (endpoint.url, endpoint.key) == ("http://host/v1", TEAM_KEY)


def test_a_server_that_answers_with_the_key_puts_it_into_no_result(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are stored and drawn by others; the key goes only to the server that it is for, and to
    none where the spec says so.
    """
    key, coded = "0123456789+team/key", "0123456789%2Bteam%2Fkey"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server.answer = lambda seen: chat_answer(
        f"a sign: {seen.headers.get('authorization')}, {coded}"
    )

    (reply,) = describe(load(server, "describer"))
    describe(load(server, "describer", "key_env=none"))

    sent = [seen.headers.get("authorization") for seen in server.seen]
    assert sent == [f"Bearer {key}", None]
    assert reply.value == "a sign: Bearer [key], [key]"


def test_faults_that_repeat_the_key_are_told_without_it(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures and remarks go into reports, results into the store. Words are shortened when the
    key is out of them, wherever in them it is.
    """
    monkeypatch.setenv("OPENAI_API_KEY", TEAM_KEY)
    unknown = fault(400, f"{TEAM_KEY}: unknown parameter temperature", param="temperature")
    server.in_turn(
        unknown,
        document({"choices": [{"message": {"content": "x"}}], "model": TEAM_KEY}),
        chat_answer(None, refusal=f"not for {TEAM_KEY}"),
        chat_answer(None, refusal="x" * 295 + TEAM_KEY),
        fault(400, f"bad {TEAM_KEY}"),
        Answer(b" " * 3990 + TEAM_KEY.encode(), 400),
        fault(500, f"no {TEAM_KEY}"),
        chat_answer("x" * 195 + TEAM_KEY),
    )

    replies = describe(load(server, "describer", "concurrency=1&retries=0"), 6)
    verdict = load(server, "judge").judge([Battle(["q"], ["a"], ["b"])], [0])

    failures = {reply.value.kind for reply in replies if isinstance(reply.value, Failure)}
    assert failures == {"refused", "exception", "unanswered"}
    assert TEAM_KEY[:5] not in repr([*replies, *verdict])


# -- binding, and what every report says of a server's results -------------------------------------


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


def test_a_server_that_answers_for_any_name_is_remarked(server: FakeServer, tmp_path: Path) -> None:
    """It may have other weights than those that the spec names, as before it was started anew."""
    weights = f"weights={write_checkpoint(tmp_path / 'step-2', LLAVA)}"

    (listed,) = describe(load(server, "describer", weights))
    (other,) = describe(load(server, "describer", weights, "policy"))

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
