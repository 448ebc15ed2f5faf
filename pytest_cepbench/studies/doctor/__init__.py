"""The doctor: checks of a set-up alone, before anything is gated with it."""

from pytest_cepbench.studies.doctor.diagnosis import Check, CheckTable, Diagnosis, Status
from pytest_cepbench.studies.doctor.examination import examine

__all__ = ["Check", "CheckTable", "Diagnosis", "Status", "examine"]
