"""Requirements files and conda's environment.yml, which are read line by line."""

from __future__ import annotations

import re

from .declared import Declared, lines_of

CONDA_ONLY = ("python", "pip", "conda", "mamba", "nodejs", "compilers", "c-compiler", "pandoc")


def read_requirements(text: str) -> Declared:
    """A requirements file: its requirements, and the files that it includes."""
    requires, includes, constraints = [], [], []
    for line in lines_of(text.replace("\\\n", " ")):
        option, _, rest = line.partition(" ") if " " in line else line.partition("=")
        if option in ("-r", "--requirement") or line.startswith("-r"):
            includes.append(rest.strip() or line[2:])
        elif option in ("-c", "--constraint") or line.startswith("-c"):
            constraints.append(rest.strip() or line[2:])
        elif not line.startswith(("-", ".", "/")):
            requires.append(line.partition(" --")[0].strip())
    return Declared(
        requires=tuple(requires), includes=tuple(includes), constraints=tuple(constraints)
    )


def read_conda(text: str) -> Declared:
    """environment.yml, in the plain form that conda writes."""
    requires: list[str] = []
    python, inside, pip = "", False, False
    for raw in text.splitlines():
        line = raw.partition(" #")[0].rstrip()
        if re.match(r"\w", line):
            inside, pip = line.startswith("dependencies:"), False
            continue
        item = re.match(r"(\s*)-\s+(.+)$", line)
        if not inside or not item:
            continue
        word = item[2].strip("\"' ")
        if word == "pip:":
            pip = True
            continue
        if pip and len(item[1]) < 3:
            pip = False
        if pip:
            if not word.startswith(("-", ".")):
                requires.append(word)
            continue
        found = re.match(r"(?:[\w-]+::)?([\w.-]+)\s*(.*)$", word)
        if found is None:
            continue
        name, pin = found[1].lower(), found[2]
        if name == "python":
            python = _conda_pin(pin)
        elif name not in CONDA_ONLY and not name.startswith(("lib", "_")):
            requires.append(found[1] + _conda_pin(pin))
    return Declared(python=python, tests={"dev": tuple(requires)} if requires else {})


def _conda_pin(pin: str) -> str:
    pin = pin.strip().replace(" ", "")
    exact = re.fullmatch(r"=+(\d[\d.]*)(?:\.?\*)?(?:=.*)?", pin)
    if exact:
        return f"=={exact[1]}.*" if not pin.startswith("==") else f"=={exact[1]}"
    return pin if re.match(r"[<>!~]", pin) else ""
