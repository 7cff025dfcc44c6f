"""Source that runs inside sandboxes, under the repository's own Python (3.7 or newer).

Standard library only, and nothing of patchgym: the host sends these modules over stdin, and `BOOT`
makes a package of them. They report over the descriptor that PATCHGYM_REPORT_FD names, in JSON
lines, each with the run's nonce and a running number:

    {"start": id} · {"test": id, "names": other names, "outcome", "message", "seconds"} ·
    {"broken": a file, class or module whose tests could not run, "message"} ·
    {"seen": rule, "message", "path", "line", "certain"} ·
    {"loaded": the repository's files whose modules were loaded} · {"done": exit status}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

MODULES = ("channel", "guard", "cases", "pytest_hooks", "unittest_hooks", "sympy_hooks", "main")
BOOT = """import sys
here = sys.path.pop(0)  # nothing of the repository yet
import json, types
request = json.loads(sys.stdin.buffer.read())
package = types.ModuleType("patchgym_probe")
package.__path__ = []
sys.modules["patchgym_probe"] = package
for name, source in request.pop("modules"):
    module = types.ModuleType("patchgym_probe." + name)
    module.__package__ = "patchgym_probe"
    sys.modules[module.__name__] = module
    exec(compile(source, "<patchgym " + name + ">", "exec"), module.__dict__)
del package, name, source
module.main(request, here)
"""


@cache
def _modules() -> list[list[str]]:
    folder = files("patchgym.sandbox.testing") / "probe"
    return [[name, (folder / f"{name}.py").read_text("utf-8")] for name in MODULES]


def request_bytes(request: Mapping[str, object]) -> bytes:
    """What the probe reads from stdin."""
    return json.dumps({**request, "modules": _modules()}).encode()
