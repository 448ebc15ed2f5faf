"""Comparison with the frozen files, in `files/` beside this module.

A difference means that a store, a baseline, a report's reader or a user's settings no longer fit.
Where that is wanted (a new option, a new metric), GOLDEN=write in the environment writes the files
anew, and the diff of them is what a reviewer reads.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILES = Path(__file__).with_name("files")


def assert_frozen(name: str, value: Any) -> None:
    """Fail unless a value is the frozen one. value: text or bytes, or what JSON can hold."""
    path = FILES / name
    text = value if isinstance(value, bytes) else _text(value).encode()
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    assert text.decode() == path.read_text(encoding="utf-8"), f"{path} is frozen"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True) + "\n"
