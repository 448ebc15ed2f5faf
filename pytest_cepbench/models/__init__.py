"""Models: adapters that turn a model spec into roles. torch is imported here alone, and lazily."""

from pytest_cepbench.models.protocols import (
    ROLE_NAMES,
    BindContext,
    BoundRole,
    Describer,
    Encoder,
    Generator,
    RoleName,
)
from pytest_cepbench.models.registry import DetectedModel, bind, detect
from pytest_cepbench.models.spec import ModelSpec, parse_spec

__all__ = [
    "ROLE_NAMES",
    "BindContext",
    "BoundRole",
    "Describer",
    "DetectedModel",
    "Encoder",
    "Generator",
    "ModelSpec",
    "RoleName",
    "bind",
    "detect",
    "parse_spec",
]
