"""Models: adapters that turn a model spec into roles. torch is imported here alone, and lazily.

`spec` parses what users type, `binding` finds the provider of its scheme and binds it for a role,
`protocols` says what a role does. This module has the names of the roles and imports nothing of the
package: options and help list them without loading a library.
"""

from __future__ import annotations

from typing import Literal, get_args

RoleName = Literal[
    "describer",
    "generator",
    "encoder",
    "detector",
    "judge",
    "writer",
    "editor",
    "interleaver",
    "vqa",
]

ROLE_NAMES: tuple[RoleName, ...] = get_args(RoleName)
