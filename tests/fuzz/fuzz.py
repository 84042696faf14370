"""Coverage-guided fuzzing of one parser, or of each in turn: `python tests/fuzz/fuzz.py warc --seconds 600`.

Needs atheris (`pip install atheris`), which is not a dependency of Headwater. An input that ends in anything but a
HeadwaterError, takes longer than 20 s (`--patience`) or more than 2 GiB is written to `--findings`; once mended it
belongs into seeds/TARGET/, where `test_fuzz_seeds.py` tries it every time. What grows is kept in `--work`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def fuzz_one(target: str, seconds: int, patience: int, work: Path, findings: Path) -> None:
    """Fuzz until the time is over; ends the process, with a status other than 0 where something was found."""
    import atheris

    with atheris.instrument_imports(include=["headwater", "targets"]):
        import targets

        run = targets.TARGETS[target]
        targets.warm_up()
        with_seeds = sorted((HERE / "seeds" / target).glob("*"))
        for seed in with_seeds:  # imports whatever is imported on first use
            run(seed.read_bytes())

    grown = work / target
    grown.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={targets.MAXIMUM_BYTES}",
        f"-timeout={patience}",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={findings}/{target}-",
    ]
    atheris.Setup([sys.argv[0], *options, str(grown), str(HERE / "seeds" / target)], run)
    atheris.Fuzz()


def main() -> int:
    """Fuzz the named target in this process, or all of them, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="a name in targets.TARGETS, or all")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--patience", type=int, default=20, help="seconds for one input")
    parser.add_argument("--work", type=Path, default=Path("build/fuzz/corpus"))
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz/findings"))
    options = parser.parse_args()
    if options.target != "all":
        fuzz_one(options.target, options.seconds, options.patience, options.work, options.findings)
        return 0
    from targets import TARGETS

    status = 0
    for target in TARGETS:
        print(f"== {target}", flush=True)
        times = ["--seconds", str(options.seconds), "--patience", str(options.patience)]
        places = ["--work", str(options.work), "--findings", str(options.findings)]
        command = [sys.executable, __file__, target, *times, *places]
        status |= subprocess.run(command, check=False).returncode != 0
    return status


if __name__ == "__main__":
    sys.exit(main())
