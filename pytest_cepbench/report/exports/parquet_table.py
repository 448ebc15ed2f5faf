"""A run as a Parquet file: the rows of the CSV table, with types."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.report.exports.exported_run import ExportedRun
from pytest_cepbench.report.exports.table import table_of


def export(run: ExportedRun, path: Path) -> list[Path]:
    """Write the table; see `report.exports.Export`."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()
    }  # fmt: skip
    rows = table_of(run)
    schema = pa.schema([(name, types[kind]) for name, kind in rows.columns.items()])
    table = pa.Table.from_pylist(rows.rows, schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    parquet.write_table(table, fresh)
    fresh.replace(path)
    return [path]
