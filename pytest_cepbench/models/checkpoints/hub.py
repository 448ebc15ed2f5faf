"""Hub ids: fetching a repository's files into huggingface_hub's cache, or finding them there.

With HF_HUB_OFFLINE=1, or without a network, what the cache holds is used.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint_files import MODULES_FILE
from pytest_cepbench.models.torch_runtime import require

INDEX_FILES = ("model_index.json", "open_clip_config.json", "config.json")
"""The files that say what a checkpoint is, in order of precedence."""

_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


def is_hub_id(target: str) -> bool:
    """Whether a target has the form of a hub id: name or org/name."""
    return _HUB_ID.fullmatch(target) is not None


def fetch_index(repository: str, revision: str | None) -> Path:
    """The cache folder of a repository's snapshot, holding at least its configuration.

    Raises CheckpointError saying what was tried when it can be neither reached nor found cached.
    """
    return _snapshot(repository, revision, [*INDEX_FILES, MODULES_FILE, "adapter_config.json"])


def fetch_files(repository: str, commit: str, choose: Callable[[list[str]], Sequence[str]]) -> None:
    """Bring those files of a commit into the cache that `choose` picks from all their names.

    Without a network nothing is fetched: what is missing shows when the files are checked.
    """
    from huggingface_hub import HfApi

    try:
        names = HfApi().list_repo_files(repository, revision=commit)
    except OSError:  # no network, or the hub's own errors, which are OSErrors
        return
    patterns = [glob.escape(name) for name in choose(names)]
    _snapshot(repository, commit, patterns)


def _snapshot(repository: str, revision: str | None, patterns: list[str]) -> Path:
    require("huggingface_hub")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=patterns))
    # The hub's errors are OSErrors, those of the network are its HTTP client's, a bad id a
    # ValueError.
    except (OSError, HFValidationError) as error:
        at = f" at revision {revision!r}" if revision else ""
        offline = (
            " HF_HUB_OFFLINE is set, so the hub was not asked." if constants.HF_HUB_OFFLINE else ""
        )
        msg = (
            f"{repository!r}{at}: there is no folder of this name under {Path.cwd()}, and as a hub "
            f"id it is neither cached in {constants.HF_HUB_CACHE} nor could be fetched "
            f"({_first_line(error)}).{offline} Check the spelling, or give the path of a folder"
        )
        raise CheckpointError(msg) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
