"""Where a spec's folder or hub id is; a hub id's files are fetched into huggingface_hub's cache.

With HF_HUB_OFFLINE=1, or without a network, what the cache holds is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.errors import CheckpointError, SpecError, did_you_mean
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.files import names_beside
from pytest_cepbench.models.torch_runtime import require

_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


@dataclass(frozen=True)
class Location:
    """A folder on this machine, and where it came from.

    folder: the folder itself; for a hub id the snapshot's folder in the cache.
    repository: the hub id; empty for a folder.
    revision: the commit on the hub; None for a folder.
    """

    folder: Path
    repository: str = ""
    revision: str | None = None


def locate(target: str, revision: str | None, patterns: Sequence[str], text: str) -> Location:
    """The folder of a path or hub id.

    revision: commit, tag or branch of a hub id. patterns: of the files that are fetched of one.
    text: what the user typed, for people. Raises CheckpointError where there is no such folder or
    repository, SpecError for the revision of a folder.
    """
    folder = Path(target).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise SpecError(
                f"model spec {text!r}: revision is for hub ids, and {folder} is a folder"
            )
        return Location(folder.resolve())
    if folder.exists():
        raise CheckpointError(
            f"{folder} is a file: give the folder that save_pretrained wrote, or unicom:PATH for "
            "Unicom's weights"
        )
    if _HUB_ID.fullmatch(target) is None:
        hint = did_you_mean(folder.name, names_beside(folder, folders=True))
        raise CheckpointError(
            f"{folder}: no such folder (and not of the form of a hub id, org/name).{hint}"
        )
    cached = snapshot(target, revision, patterns)
    return Location(cached, target, cached.name)


def snapshot(repository: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """The cache folder of a repository's snapshot with the files that fit the patterns.

    Raises CheckpointError where it is neither cached nor can be fetched.
    """
    require("huggingface_hub")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))
    # The hub's errors are OSErrors, those of the network are its HTTP client's, a bad id a
    # ValueError.
    except (OSError, HFValidationError) as error:
        at = f" at revision {revision!r}" if revision else ""
        offline = (
            " HF_HUB_OFFLINE is set, so the hub was not asked." if constants.HF_HUB_OFFLINE else ""
        )
        lines = [line.strip() for line in mask_secrets(str(error)).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise CheckpointError(
            f"{repository!r}{at}: there is no folder of this name under {Path.cwd()}, and as a hub "
            f"id it is neither cached in {constants.HF_HUB_CACHE} nor could be fetched "
            f"({reason}).{offline} Check the spelling, or give the path of a folder."
            f"{did_you_mean(Path(repository).name, names_beside(Path(repository), folders=True))}"
        ) from error
