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
    """Print what this machine offers: cores, memory, devices, compiled kernels, installed extras."""
    facts = _facts()
    width = max(map(len, facts))
    lines = [f"{name:{width}}  {text}" for name, (_, text) in facts.items() if text]
    emit({name: value for name, (value, _) in facts.items()}, as_json=as_json, text="\n".join(lines))


def _facts() -> dict[str, tuple[Any, str]]:
    """Return each fact about this machine as a value for JSON and as a text; "" leaves it to JSON."""
    import torch

    from headwater import native, shipped
    from headwater.device import available_cores, available_memory, cpu_quota, processor_name
    from headwater.storage import available_resources, cache_folder
    from headwater.training import compute_dtype

    def plain(text: str) -> tuple[str, str]:
        return text, text

    cpu = torch.device("cpu")
    cores, quota, threads = available_cores(), cpu_quota(), torch.get_num_threads()
    limit = "" if quota is None else f", processor time of {quota:.1f} cores"
    variables = thread_variables()
    settings = " and ".join(f"{name}={value}" for name, value in variables.items())
    memory, disk = available_memory(cpu), shutil.disk_usage(Path.cwd()).free
    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    used, others = native.chosen(), ", ".join(name for name in native.available() if name != native.chosen())
    no_kernels = "none: models run in torch. Install a C compiler, then install headwater again"
    devices = [cpu, *([torch.device("cuda")] if gpus else [])]
    dtypes = {d.type: "bf16" if compute_dtype("auto", d) == torch.bfloat16 else "fp32" for d in devices}
    extras = _extras()
    missing = [extra for extra, installed in extras.items() if not installed]
    install = f"{', '.join(missing)}: pip install 'headwater[{','.join(missing)}]'" if missing else ""
    data, resources = os.environ.get("HEADWATER_DATA"), available_resources()
    absent = ", ".join(name for name, available in resources.items() if not available)
    return {
        "headwater": plain(importlib.metadata.version("headwater")),
        "python": plain(platform.python_version()),
        "torch": plain(torch.__version__),
        "system": plain(platform.platform()),
        "processor": plain(f"{processor_name()} ({torch.backends.cpu.get_cpu_capability()})"),
        "cores": (cores, f"{cores} ({counted(threads, 'thread')} in use{limit})"),
        "threads": (threads, ""),
        "quota": (quota, ""),
        "environment": (variables, f"set {settings} before a Python program of your own imports torch"),
        "memory": (memory, f"{byte_size(memory)} available"),
        "disk": (disk, f"{byte_size(disk)} free here"),
        "kernels": (
            {"used": used, "available": native.available()},
            f"{used}; others that run here: {others}" if used else no_kernels,
        ),
        "devices": (
            [{"name": gpu.name, "memory": gpu.total_memory} for gpu in gpus],
            "; ".join(f"{gpu.name}, {byte_size(gpu.total_memory)}" for gpu in gpus),
        ),
        "precision": (dtypes, ", ".join(f"{dtype} on {device}" for device, dtype in dtypes.items())),
        "extras": (extras, ", ".join(extra for extra, installed in extras.items() if installed) or "none"),
        "missing": (missing, install),
        "models": (shipped.names(), ", ".join(shipped.names()) or "none"),
        "data": (data, data or "HEADWATER_DATA is not set"),
        "cache": plain(str(cache_folder())),
        "vocabularies": (resources, f"not available: {absent}" if absent else "all available"),
    }


def _extras() -> dict[str, bool]:
    """Return whether all packages of each extra are installed."""
    extras: dict[str, bool] = {}
    for requirement in importlib.metadata.requires("headwater") or []:
        parts = _REQUIREMENT.match(requirement)
        if parts and parts[2] not in _NOT_FOR_USERS and parts[1] != "headwater":
            installed = any(importlib.metadata.distributions(name=parts[1]))
            extras[parts[2]] = extras.get(parts[2], True) and installed
    return extras
