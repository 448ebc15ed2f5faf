"""A machine with accelerators, as far as nvidia-smi tells of one: a small program of that name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

GIB = 1 << 30

_PROGRAM = """\
#!{python}
import json, sys
divided = json.loads({divided!r})
for index, (uuid, name, free) in enumerate(json.loads({devices!r})):
    if "-L" in sys.argv:
        print(f"GPU {{index}}: {{name}} (UUID: {{uuid}})")
        for place, profile in enumerate(divided.get(uuid, [])):
            print(f"  MIG {{profile}}     Device  {{place}}: (UUID: {{uuid.replace('GPU', 'MIG')}}-{{place}})")
    else:
        mig = "Enabled" if uuid in divided else "Disabled"
        print(f"{{uuid}}, {{free * 1024}}, {{80 * 1024}}, {{mig}}, {{name}}")
"""

_NO_DRIVER = (
    "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not reach the driver.'\nexit 9\n"
)


def install_smi(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    devices: Sequence[tuple[str, str, int]] | None,
    divided: Mapping[str, Sequence[str]] = {},
) -> None:
    """Put an nvidia-smi first on PATH beside a torch for CUDA; the caller restricts nothing.

    devices: (UUID, name, free GiB) of each, of 80 GiB; None: the tool fails. divided: UUID ->
    profiles of the MIG instances.
    """
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True)
    text = _PROGRAM.format(
        python=sys.executable, devices=json.dumps(devices), divided=json.dumps(dict(divided))
    )
    program.write_text(_NO_DRIVER if devices is None else text, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    install_torch(folder, monkeypatch, "13.2")
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def install_torch(folder: Path, monkeypatch: pytest.MonkeyPatch, cuda: str | None) -> None:
    """Have the installed torch be one for a release of CUDA, None for CPUs, as its files say it.

    What is imported as torch stays the real one.
    """
    for file, text in (
        (
            "torch-2.99.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n",
        ),
        ("torch/version.py", f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"),
    ):
        (folder / "site" / file).parent.mkdir(parents=True)
        (folder / "site" / file).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder / "site")
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder / "site"), before])))
