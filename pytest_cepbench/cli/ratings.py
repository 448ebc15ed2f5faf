"""`cepbench rate export` and `import`: exchange of a ratings folder with other tools."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from pytest_cepbench.cli.output import HOME, NOT_DONE, complain, show, tell
from pytest_cepbench.datasets.opening.verdict_files import write_verdicts
from pytest_cepbench.errors import SpecError
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.ratings.folder import Ratings, Votes, read_ratings, read_votes
from pytest_cepbench.ratings.label_studio import import_label_studio, write_label_studio
from pytest_cepbench.ratings.votes import shown_battles, write_replay


def run(arguments: Namespace) -> int:
    """Export or import; exit codes as in `main`."""
    try:
        ratings = read_ratings(arguments.ratings)
        votes = read_votes(ratings)
        for line in votes.remarks.lines:
            tell(line)
        if arguments.action == "import":
            users = _users(arguments.annotator)
            imported = import_label_studio(ratings, votes, arguments.file, users)
            show([], *imported.lines)
            return 0
        out = arguments.out or _default_out(ratings, arguments.format)
        written = _export(ratings, votes, arguments.format, out, arguments.annotator)
        keep_out_of_git(HOME, out)
    except OSError as error:
        return complain(f"{arguments.out or HOME}: {error.strerror or error}", NOT_DONE)
    show([], *(f"written: {path}" for path in written))
    return 0


def _default_out(ratings: Ratings, form: str) -> Path:
    return HOME / "ratings" / f"{ratings.path.resolve().name}-{form}"


def _export(
    ratings: Ratings, votes: Votes, form: str, out: Path, annotator: str | None
) -> list[Path]:
    """Write the files; returns them. Raises DatasetError, WriteError."""
    if form == "label-studio":
        if annotator is not None:
            raise SpecError("--annotator is of votes: tasks for Label Studio have none")
        return write_label_studio(ratings, out)
    if form == "replay":
        return write_replay(ratings, votes, out, annotator)
    battles = shown_battles(ratings, votes, [] if annotator is None else [annotator])
    out.mkdir(parents=True, exist_ok=True)
    write_verdicts(out / "verdicts.json", battles)
    return [out / "verdicts.json"]


def _users(texts: Iterable[str]) -> dict[str, str]:
    """User -> annotator. Raises SpecError for one who is said to be two."""
    users: dict[str, str] = {}
    for user, name in map(_user, texts):
        if users.setdefault(user, name) != name:
            raise SpecError(
                f"--annotator {user}=...: the user is {users[user]!r} and {name!r}; say one"
            )
    return users


def _user(text: str) -> tuple[str, str]:
    """User and annotator of `USER=NAME`. Raises SpecError."""
    user, equals, name = text.rpartition("=")
    if not (user and equals and name):
        raise SpecError(f"--annotator {text!r}: USER=NAME is expected, such as 3=ada")
    return user, name
