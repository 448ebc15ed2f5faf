"""The accelerators that this process may use, found out without torch: names, memory, tokens.

NVIDIA's are asked of nvidia-smi, else counted by their device files; AMD's are read from the
kernel's own files. The caller's CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES is obeyed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

CUDA, HIP = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"

_FIELDS = "uuid,memory.free,memory.total,mig.mode.current,name"
_MIB = 1 << 20
_PATIENCE = 60.0  # seconds; with many sleeping devices nvidia-smi wakes them one by one

_PARENT = re.compile(r"GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>GPU-\S+)\)")
_SLICE = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-\S+)\)")


@dataclass(frozen=True)
class Device:
    """An accelerator.

    token: what names it in `variable`. name: for people. free, total: bytes of its memory; None
    where nobody says. variable: the environment variable that restricts a process to it.
    """

    token: str
    name: str
    free: int | None = None
    total: int | None = None
    variable: str = CUDA


def visible_devices() -> tuple[Device, ...]:
    """The accelerators that the caller's environment leaves to this process, in its order.

    What the caller named keeps the caller's token (an index, a UUID, a MIG instance); otherwise it
    is the UUID, which means the same whatever order CUDA counts in. Memory is as of the first call.
    """
    if any(os.environ.get(name, "all").strip() in ("", "-1") for name in (CUDA, HIP)):
        return ()
    here = _nvidia(shutil.which("nvidia-smi")) or _amd(Path("/sys"))
    variable = here[0].variable if here else CUDA
    named = CUDA if variable == CUDA or HIP not in os.environ else HIP
    if named not in os.environ:
        return here
    return tuple(_chosen(os.environ[named].split(","), here, named))


def device_name(device: str) -> str:
    """What `device` (cpu, mps, cuda or cuda:N, as torch counts) is here: an accelerator by its
    name.

    "cpu" and "mps" are named so; "cuda" is what remains where nobody says more.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return kind
    visible = visible_devices()
    place = int(index or 0)
    return visible[place].name if place < len(visible) else kind


def _chosen(tokens: Sequence[str], here: Sequence[Device], variable: str) -> Iterator[Device]:
    """The devices of a list of tokens; as CUDA does, it ends before the first that is none."""
    # On a mixed machine an index means another device to CUDA than to nvidia-smi.
    alike = len({one.name for one in here}) == 1
    ordered = alike or variable == HIP or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    for token in (token.strip() for token in tokens):
        if token.isdecimal():
            if here and int(token) >= len(here):
                return
            known = here[int(token)] if here and ordered else Device(token, f"device {token}")
        elif token.startswith(("GPU-", "MIG-")):  # may be shortened
            found = (one for one in here if one.token.startswith(token))
            known = next(found, Device(token, "device"))
        else:
            return
        yield replace(known, token=token, variable=variable)


# -- NVIDIA
# ------------------------------------------------------------------------------------------


@cache
def _nvidia(tool: str | None) -> tuple[Device, ...]:
    """What nvidia-smi lists, MIG instances in the place of their device; else the device files."""
    devices: list[Device] = []
    for line in _ask(tool, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"):
        values = [value.strip() for value in line.split(",", 4)]
        if len(values) != 5:
            continue
        uuid, free, total, mig, name = values
        if mig == "Enabled":
            devices += _slices(tool, uuid)
        else:
            devices.append(Device(uuid, name, _bytes(free), _bytes(total)))
    if devices:
        return tuple(devices)
    # A container may be given /dev/nvidia3 alone, which CUDA then counts as 0.
    files = sorted(Path("/dev").glob("nvidia[0-9]*"))
    return tuple(Device(str(index), f"NVIDIA device {index}") for index in range(len(files)))


def _slices(tool: str | None, uuid: str) -> Iterator[Device]:
    """The MIG instances of a device."""
    parent = None
    for line in _ask(tool, "-L"):
        found = _PARENT.match(line)
        if found:
            parent = found["name"] if found["uuid"] == uuid else None
        found = _SLICE.match(line)
        if found and parent is not None:
            yield Device(found["uuid"], f"{parent} MIG {found['profile']}")


def _ask(tool: str | None, *arguments: str) -> list[str]:
    """What nvidia-smi prints; nothing where it is not there or fails, as without a driver."""
    if tool is None:
        return []
    command = [tool, *arguments]
    try:
        done = subprocess.run(  # noqa: S603 # found on PATH, its arguments are ours
            command, capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def _bytes(mebibytes: str) -> int | None:
    return int(mebibytes) * _MIB if mebibytes.isdecimal() else None


# -- AMD
# ---------------------------------------------------------------------------------------------


@cache
def _amd(system: Path) -> tuple[Device, ...]:
    """The compute devices of the kernel's amdkfd driver. system: where sysfs is mounted."""
    devices: list[Device] = []
    nodes = system.glob("class/kfd/kfd/topology/nodes/*/properties")
    for file in sorted(nodes, key=lambda path: int(path.parent.name)):
        properties = dict(line.split(None, 1) for line in _text(file).splitlines() if " " in line)
        if properties.get("simd_count", "0").strip() == "0":  # a processor's node
            continue
        card = system / f"class/drm/renderD{properties.get('drm_render_minor', '').strip()}/device"
        total, used = (_count(card / f"mem_info_vram_{what}") for what in ("total", "used"))
        free = None if total is None or used is None else total - used
        name = _text(card / "product_name").strip() or "AMD device"
        devices.append(Device(str(len(devices)), name, free, total, HIP))
    return tuple(devices)


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _count(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None
