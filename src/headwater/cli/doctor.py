"""`headwater doctor`: what this machine can do."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

from headwater.cli.console import AsJson, emit
from headwater.cli.process import thread_variables
from headwater.display import byte_size, counted

_REQUIREMENT = re.compile(r"""([\w.-]+).*;.*extra == ["']([\w-]+)["']""")
_NOT_FOR_USERS = {"all", "dev", "docs"}


def doctor(as_json: AsJson = False) -> None:
    """Describe this machine."""
    machine = describe_machine()
    emit(machine, as_json=as_json, text=_machine_text(machine))


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra."""
    extras: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("headwater") or []:
        parts = _REQUIREMENT.match(requirement)
        if parts and parts[2] not in _NOT_FOR_USERS and parts[1] != "headwater":
            extras.setdefault(parts[2], []).append(parts[1])
    return extras


def describe_machine() -> dict[str, Any]:
    """Return cores, memory and disk that this process may use, torch, kernels, extras and local files."""
    import torch

    from headwater import native, shipped
    from headwater.device import available_cores, available_memory, cpu_quota, processor_name
    from headwater.storage import available_resources, cache_folder
    from headwater.training import compute_dtype

    cpu = torch.device("cpu")
    devices = [
        {"name": torch.cuda.get_device_name(index), "memory": torch.cuda.get_device_properties(index).total_memory}
        for index in range(torch.cuda.device_count())
    ]
    places = [cpu] + ([torch.device("cuda")] if devices else [])
    return {
        "headwater": importlib.metadata.version("headwater"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": available_cores(),
        "quota": cpu_quota(),
        "threads": torch.get_num_threads(),
        "environment": thread_variables(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "kernels": {"used": native.chosen(), "available": list(native.available())},
        "memory_available": available_memory(cpu),
        "disk_free": shutil.disk_usage(Path.cwd()).free,
        "torch": torch.__version__,
        "devices": devices,
        "precision": {
            device.type: "bf16" if compute_dtype("auto", device) == torch.bfloat16 else "fp32" for device in places
        },
        "extras": {
            extra: all(any(importlib.metadata.distributions(name=package)) for package in packages)
            for extra, packages in _extras().items()
        },
        "data": os.environ.get("HEADWATER_DATA"),
        "cache": str(cache_folder()),
        "models": shipped.names(),
        "resources": available_resources(),
    }


def _machine_text(machine: dict[str, Any]) -> str:
    present = [extra for extra, there in machine["extras"].items() if there]
    absent = [extra for extra, there in machine["extras"].items() if not there]
    quota = "" if machine["quota"] is None else f", processor time of {machine['quota']:.1f} cores"
    rows = [
        ("headwater", f"{machine['headwater']}, Python {machine['python']}, torch {machine['torch']}"),
        ("system", machine["system"]),
        ("processor", f"{machine['processor']} ({machine['vectors']})"),
        ("cores", f"{machine['cores']} ({counted(machine['threads'], 'thread')} in use{quota})"),
        (
            "in Python",
            f"set {' and '.join(f'{name}={value}' for name, value in machine['environment'].items())} "
            "before torch is imported, as this command does: other programs then delay it less",
        ),
        ("memory", f"{byte_size(machine['memory_available'])} available"),
        ("disk", f"{byte_size(machine['disk_free'])} free here"),
    ]
    kernels, lower = machine["kernels"]["used"], ", ".join(machine["kernels"]["available"][1:])
    missing_kernels = "none: models run in torch. Install a C compiler, then install headwater again"
    rows.append(("kernels", f"{kernels}, also here: {lower}" if kernels else missing_kernels))
    rows += [("device", f"{d['name']}, {byte_size(d['memory'])}") for d in machine["devices"]]
    rows += [("training", f"{precision} on {device}") for device, precision in machine["precision"].items()]
    rows.append(("extras", ", ".join(present) or "none"))
    if absent:
        rows.append(("missing", f"{', '.join(absent)}: pip install 'headwater[{','.join(absent)}]'"))
    rows.append(("shipped models", ", ".join(machine["models"]) or "none"))
    rows.append(("HEADWATER_DATA", machine["data"] or "not set"))
    rows.append(("cache", machine["cache"]))
    missing = [name for name, there in machine["resources"].items() if not there]
    rows.append(("vocabularies", "all available" if not missing else "not available: " + ", ".join(missing)))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
