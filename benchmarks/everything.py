"""Measure every row that this machine and its peers allow, and write the tables of the pages from the results.

    python benchmarks/everything.py --peers FOLDER                  # make benchmark: 20 to 40 minutes
    python benchmarks/everything.py --peers FOLDER --only logits-512-bf16 generate
    python benchmarks/everything.py --write                         # the tables again, from benchmarks/results
    python benchmarks/everything.py --check                         # fails if a table is not what the results say

The results of a class of processors are one file, `benchmarks/results/CLASS.json`. The class is the kernels'
variant: `amx`, `avx512_bf16`, `avx512`, `avx2_vnni`, `avx2`, `neon`. HEADWATER_CPU chooses a lower one;
the peers' own variables must limit them too (benchmarks/README.md), and the file has them. A measurement that
ended is kept while the code stays the same, so an interrupted run goes on. A busy machine is refused.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measurements import MEASUREMENTS, Peers
from result_tables import RESULTS, check, write

FOLDER = Path(__file__).parent
LIMITS = ("HEADWATER_CPU", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
MOST_BUSY = 0.08  # share of the processors that other programs may use
PACKAGES = [
    "torch",
    "transformers",
    "gigatoken",
    "tiktoken",
    "tokenizers",
    "lm_eval",
    "ctranslate2",
    "onnxruntime",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=FOLDER / "peers", help="see README.md")
    parser.add_argument("--only", nargs="+", choices=[m.name for m in MEASUREMENTS], help="these measurements")
    parser.add_argument("--again", action="store_true", help="measure what has a result of the same code too")
    parser.add_argument("--write", action="store_true", help="only write the tables")
    parser.add_argument("--check", action="store_true", help="only check the tables")
    options = parser.parse_args()
    if options.check:
        sys.exit(check())
    if not options.write:
        measure(options)
    write()


def measure(options: argparse.Namespace) -> None:
    """Run what is missing, one measurement after the other, and save after each."""
    from headwater.device import available_cores

    if changed := _git("status", "--porcelain", "--", "src/headwater", "benchmarks/*.py"):
        sys.exit(f"Commit the code before it is measured, so that a result can name its commit:\n{changed}")
    peers, threads = Peers(options.peers.resolve()), available_cores()
    results = _opened(threads)
    path = RESULTS / f"{results['class']}.json"
    code = _code()
    for measurement in MEASUREMENTS:
        if options.only and measurement.name not in options.only:
            continue
        done = results["measurements"].get(measurement.name, {})
        if done.get("code") == code and not options.again:
            print(f"{measurement.name}: measured at {done['commit'][:8]}", flush=True)
            continue
        missing = [need for need in measurement.needs if not _exists(getattr(peers, need))]
        if missing:
            print(f"{measurement.name}: skipped, {', '.join(missing)} is not in {peers.folder}", flush=True)
            continue
        if (busy := busy_share()) > MOST_BUSY:
            sys.exit(f"Other programs use {busy:.0%} of the processors. Stop them, then run this again.")
        rows, note = _run(measurement, peers, threads)
        busy_after = busy_share()
        if rows and busy_after > MOST_BUSY:
            sys.exit(f"{measurement.name}: other programs use {busy_after:.0%} of the processors now: not kept.")
        if not rows:
            print(f"{measurement.name}: failed: {note}", flush=True)
            continue
        results["measurements"][measurement.name] = {
            "code": code,
            "commit": _git("rev-parse", "HEAD"),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": _versions(peers),
            "rows": rows,
        }
        RESULTS.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        partial.replace(path)
        for name, row in rows.items():
            print(f"{name:28} {row['ratio']:6.2f} × {row['best_peer']}", flush=True)


def _run(measurement: Any, peers: Peers, threads: int) -> tuple[dict[str, Any], str]:
    script, *arguments = measurement.command(peers, threads)
    command = [sys.executable, str(FOLDER / script), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    started = time.monotonic()
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    print(f"{measurement.name}: {time.monotonic() - started:.0f} s", flush=True)
    if ran.returncode:
        return {}, (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
    print(ran.stderr, end="", file=sys.stderr)
    return measurement.read(ran.stdout), ""


def _opened(threads: int) -> dict[str, Any]:
    """Return the results of this machine's class, empty if they are of another processor."""
    from headwater.device import processor_name
    from headwater.native import chosen

    name = chosen() or "torch"
    machine = {
        "processor": processor_name(),
        "threads": threads,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3),
        "system": f"{platform.system()} {platform.machine()}",
        "limited": {k: v for k, v in os.environ.items() if k in LIMITS},
    }
    path = RESULTS / f"{name}.json"
    if path.is_file():
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if results["machine"] == machine:
            return results
    return {"class": name, "machine": machine, "measurements": {}}


def busy_share(seconds: float = 2.0) -> float:
    """Return the share of all processors' time that was used by anybody during `seconds`; 0 without /proc/stat."""
    first = _ticks()
    time.sleep(seconds)
    busy, total = (after - before for after, before in zip(_ticks(), first, strict=True))
    return busy / total if total else 0.0


def _ticks() -> tuple[int, int]:
    try:
        fields = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(fields) - fields[3] - fields[4], sum(fields)  # all but idle and waiting for the disk


def _code() -> str:
    """Name the code that is measured: the trees of the package and of these scripts."""
    trees = [_git("rev-parse", f"HEAD:{folder}") for folder in ("src/headwater",)]
    scripts = _git("ls-tree", "HEAD", "benchmarks/", "--").splitlines()
    blobs = [line.split()[2] for line in scripts if line.endswith(".py")]
    return _short(" ".join(trees + blobs))


def _short(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _versions(peers: Peers) -> dict[str, str]:
    code = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]:\n try: print(n, m.version(n))\n"
    code += " except m.PackageNotFoundError: pass"
    found = {name: importlib.metadata.version(name) for name in PACKAGES if importlib.util.find_spec(name)}
    if peers.python.exists():
        ran = subprocess.run([peers.python, "-c", code, *PACKAGES], capture_output=True, text=True, check=False)
        found = dict(line.split() for line in ran.stdout.splitlines()) | found
    return found | {"python": platform.python_version()}


def _exists(found: Path | None) -> bool:
    return found is not None and found.exists()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=FOLDER.parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
