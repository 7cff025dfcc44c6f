"""What the base install weighs, and how long `patchgym --help` takes against a bare Python.

One run compares both: the help's wall time as a multiple of `python -c pass`, interleaved.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_MB = 60


def seconds(command: list[str]) -> float:
    """Wall seconds of one process."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def wheels_mb() -> float:
    """Megabytes of the wheels that a base install downloads, our own included."""
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "download", "-q", "-d", folder, str(ROOT)]
        subprocess.run(download, check=True)
        return sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6


def main() -> None:
    """Print the numbers."""
    helps, bares = [], []
    patchgym = str(Path(sys.executable).with_name("patchgym"))
    for _ in range(15):
        helps.append(seconds([patchgym, "--help"]))
        bares.append(seconds([sys.executable, "-c", "pass"]))
    size = wheels_mb()
    ratio = statistics.median(helps) / statistics.median(bares)
    print(f"base install: {size:.1f} MB of wheels (limit {LIMIT_MB})")
    print(
        f"patchgym --help: {statistics.median(helps) * 1000:.0f} ms, {ratio:.1f} x python -c pass"
    )
    result = {
        "base_wheels_mb": round(size, 1),
        "help_vs_bare_python": round(ratio, 2),
        "help_seconds": round(statistics.median(helps), 3),
        "spread": {"help": [round(min(helps), 3), round(max(helps), 3)]},
        "versions": {"python": sys.version.split()[0]},
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
