"""Indexes of shards, kept as small Parquet files: made once, and made again where they do not fit.

They are a cache: a folder that cannot be written to, or a damaged index, costs time alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cepbench.artifacts.digest import FileStamp, digest_json

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""Of what the indexes hold."""

_SEAL = b"cepbench"


def index_of_file(
    folder: Path | None, path: Path, kind: str, build: Callable[[], pa.Table]
) -> pa.Table:
    """An index of a file, kept while its size, times and inode stay the same.

    folder: where indexes are kept; None for none.
    kind: of the index.
    build: makes it; what that raises is not kept.
    """
    if folder is None:
        return build()
    resolved = path.resolve()
    before = FileStamp.of(resolved)
    target = index_path(folder, [kind, str(resolved)])
    known = _read_index(target, str(before))
    if known is not None:
        return known
    table = build()
    if before.settled and before == FileStamp.of(resolved):
        _write_index(target, str(before), table)
    return table


def index_path(folder: Path, key: list[str]) -> Path:
    """Where the index of a key lies."""
    names = [part.encode("utf-8", "backslashreplace").decode() for part in key]
    return folder / f"{digest_json([VERSION, *names])}.parquet"


def _read_index(path: Path, seal: str) -> pa.Table | None:
    """A kept table; None where there is none that is whole and bears the seal."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException, ValueError):
        return None
    metadata = table.schema.metadata or {}
    return table if metadata.get(_SEAL) == seal.encode("utf-8", "backslashreplace") else None


def _write_index(path: Path, seal: str, table: pa.Table) -> None:
    """Keep a table under a seal, whole or not at all; nothing is said where that cannot be."""
    import pyarrow.parquet as pq

    metadata = {**(table.schema.metadata or {}), _SEAL: seal.encode("utf-8", "backslashreplace")}
    sealed = table.replace_schema_metadata(metadata)
    place_file(path, lambda target: pq.write_table(sealed, target, write_page_checksum=True))


def place_file(path: Path, write: Callable[[Path], object]) -> bool:
    """Have a file written beside its place and moved there; False where that cannot be."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        os.close(handle)
        try:
            write(Path(name))
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
        return True
    return False
