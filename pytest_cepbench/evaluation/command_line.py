"""The command of a run as reports show it: one line, without keys."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from pytest_cepbench.escapes import HIDDEN, environment_secrets, is_secret_name
from pytest_cepbench.models.api.endpoint import Secret, without_secrets

_QUERY = re.compile(r"(?<=[?&])(?P<name>[^=&\s]+)=(?P<value>[^&\s]*)")


def redacted_command(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """A command line as a shell reads it, with its keys replaced by `[key]`.

    Removed are: values of options and parameters that are named like a key (`--api-key=...`,
    `?token=...`), values of such variables of the environment wherever they stand, the users and
    passwords of URLs, and what looks like a key. Long arguments are cut.

    arguments: program first; may be empty.
    environment: variables, of which some hold keys.
    """
    secrets = [Secret(value) for value in environment_secrets(environment).values()]
    shown: list[str] = []
    value_is_key = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if value_is_key and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif argument.startswith("-") and equals and is_secret_name(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(_cleared(argument, secrets))
        is_option = argument.startswith("-") and not equals
        value_is_key = is_option and is_secret_name(name)
    return shlex.join(shown)


def _cleared(argument: str, secrets: Sequence[Secret]) -> str:
    """One argument without what is a key in it."""

    def hidden(match: re.Match[str]) -> str:
        return f"{match['name']}={HIDDEN}" if is_secret_name(match["name"]) else match[0]

    return without_secrets(_QUERY.sub(hidden, argument), secrets)
