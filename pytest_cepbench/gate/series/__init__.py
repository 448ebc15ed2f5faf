"""Series of gates: the record of their looks, the shares of alpha that these have, and delays."""

from pytest_cepbench.gate.series.file import SERIES, SeriesFile, recorded_names
from pytest_cepbench.gate.series.record import (
    DROPS,
    Delays,
    Entry,
    Place,
    SeriesRecord,
    delays_of,
    parse_record,
)

__all__ = [
    "DROPS",
    "SERIES",
    "Delays",
    "Entry",
    "Place",
    "SeriesFile",
    "SeriesRecord",
    "delays_of",
    "parse_record",
    "recorded_names",
]
