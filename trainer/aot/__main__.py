"""Compiles one case and prints its report: `python -m patchgym.trainer.aot < CASE`, as JSON.

One case a process: the compiler's memory goes back, and a crash of it ends one case. What it logs
goes to stderr. Exit codes: 0 done, 2 the input or the machine is at fault.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from patchgym.sandbox.errors import PatchgymError

from .compiling import NoCompiler, prepare


def main() -> int:
    """Read a case from stdin, write its report to stdout."""
    try:
        prepare()
        # JAX reads what `prepare` set when it is imported.
        from .cases import case_of
        from .check import check_case

        report = check_case(case_of(json.load(sys.stdin)))
    except (NoCompiler, PatchgymError, ValueError) as error:
        sys.stderr.write(f"aot: {error}\n")
        return 2
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
