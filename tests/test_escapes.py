"""Nothing hidden in text that people look at, and the same content in what programs read."""

from __future__ import annotations

import ast
import json
import tomllib
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_cepbench.errors import error_line, named_error
from pytest_cepbench.escapes import (
    escape_json,
    is_secret_name,
    mask_secrets,
    one_line,
    quote_toml,
    visible,
)

HIDDEN = [
    "\x00", "\x07", "\x08", "\x1b", "\x1c", "\x7f", "\x85", "\x9b", "\xad", "\u034f", "\u061c",
    "\u115f", "\u180e", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u2028", "\u2029",
    "\u202a", "\u202e", "\u2060", "\u2066", "\u2069", "\u2800", "\u3164", "\ufeff", "\ufff9",
    "\uffa0", "\U000e0001", "\U000e0041", "\U000e0100", "\U000f0000", "\ud83d",
]  # fmt: skip
"""Control, direction, joining, filling and tag characters, private ones, half of a pair."""

NAMES = st.text(
    alphabet=st.characters(exclude_categories=["Cs"]) | st.sampled_from(HIDDEN), max_size=20
)


def hides_nothing(text: str, keep: str = "") -> bool:
    """Whether every character of a text shows itself."""
    return all(char in keep or (char.isprintable() and char not in HIDDEN) for char in text)


@pytest.mark.parametrize("char", HIDDEN)
def test_what_does_not_show_itself_is_shown_as_its_escape(char: str) -> None:
    """As Python writes it: the reader can look the number up."""
    shown = visible(f"a{char}b")
    assert hides_nothing(shown)
    assert shown.isascii()
    assert ast.literal_eval(f'"{shown}"') == f"a{char}b"
    assert one_line(f"a{char}b") == shown


@given(NAMES, st.integers(4, 50))
@example("\u202egnp.exe", 50)
def test_nothing_is_hidden_whatever_the_text(text: str, most: int) -> None:
    """Everywhere in it; what is kept are line ends and tabs. A line is cut where it is too long;
    a short printable one stays as it is but for white space.
    """
    assert hides_nothing(visible(text), "\n\t")
    assert hides_nothing(visible(text, ""))
    line = one_line(text, most)
    assert hides_nothing(line)
    assert len(line) <= most
    if hides_nothing(text) and len(text) <= most and text == " ".join(text.split()):
        assert line == text


@given(st.text(alphabet=st.characters(categories=["L", "Nd", "P", "S", "M"]), max_size=20))
def test_letters_of_any_script_stay(text: str) -> None:
    """Captions in Arabic, Thai or Japanese, emoji and accents are read as they were written."""
    fillers = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    text = "".join(char for char in text if char not in fillers and char < "\U000e0100")
    assert visible(text) == text


def test_spaces_of_any_width_are_spaces() -> None:
    """A no-break space before a colon, as French has it, is no secret; a long line ends in dots."""
    assert visible("Un chat\u00a0: l\u2009à\u3000") == "Un chat : l à "
    assert one_line("  two\r\n\tlines\x0b \u00a0 ") == "two lines"
    assert one_line("x" * 200) == "x" * 200
    assert one_line("x" * 201) == "x" * 197 + "..."
    assert all(
        visible(chr(i)) == " " for i in range(0x110000) if unicodedata.category(chr(i)) == "Zs"
    )


@given(st.dictionaries(NAMES, NAMES | st.lists(NAMES, max_size=3), max_size=3))
def test_programs_read_the_same_from_json(value: dict[str, object]) -> None:
    """The escapes are JSON's own."""
    for text in (json.dumps(value, ensure_ascii=False), json.dumps(value, indent=2)):
        shown = escape_json(text)
        assert hides_nothing(shown, "\n")
        assert json.loads(shown) == value


@given(NAMES)
def test_programs_read_the_same_from_toml(text: str) -> None:
    """The escapes are TOML's own; it has none for halves of pairs."""
    text = text.encode("utf-8", "replace").decode()
    shown = quote_toml(text)
    assert hides_nothing(shown)
    assert tomllib.loads(f"name = {shown}") == {"name": text}


def test_names_of_keys() -> None:
    """Variables, options and parameters whose values are not shown; others may stand anywhere."""
    keys = (
        "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_PAT",
        "POSTGRES_PASSWORD", "DB_PASSWD", "DB_PWD", "SMTP_PASS", "GPG_KEY", "MY_CREDENTIALS",
        "REGISTRY_AUTH", "Authorization", "--api-key", "X-Amz-Signature", "sig", "apikey",
    )  # fmt: skip
    others = (
        "PATH", "PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "max_new_tokens", "GIT_AUTHOR_NAME",
        "KEYBOARD", "SSH_AUTH_SOCK", "AWS_SHARED_CREDENTIALS_FILE", "HF_TOKEN_PATH", "PASSENGERS",
        "PYTHONPATH", "CUDA_PATH", "-k", "--keyword", "design", "LD_LIBRARY_PATH",
    )  # fmt: skip
    assert [name for name in (*keys, *others) if is_secret_name(name)] == list(keys)


def test_keys_of_the_environment_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are, in a URL, and a line of a longer one; a short one is a word."""
    environment = {
        "A_KEY": "one/two+three four\n",
        "PRIVATE_KEY": "-----BEGIN-----\nMIIEvQIBADANBgkqhkiG\n-----END-----",
        "B_TOKEN": "EMPTY",
        "C_NAME": "not a secret",
    }
    text = "one/two+three four, one%2Ftwo%2Bthree%20four, MIIEvQIBADANBgkqhkiG, EMPTY, not a secret"
    assert mask_secrets(text, environment) == "[key], [key], [key], EMPTY, not a secret"
    monkeypatch.setenv("A_KEY", "one/two+three four")
    error = ValueError("denied:\none/two+three four")
    assert error_line(error) == "denied: [key]"
    assert named_error(error) == "ValueError: denied:\n[key]"
