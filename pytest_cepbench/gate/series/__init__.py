"""Series of gates: the record of their looks, the shares of alpha that these have, and delays."""

from pytest_cepbench.gate.series.delays import DROPS, Delays, delays_of
from pytest_cepbench.gate.series.file import SERIES, SeriesFile, recorded_names
from pytest_cepbench.gate.series.record import Entry, Place, SeriesRecord, parse_record

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
