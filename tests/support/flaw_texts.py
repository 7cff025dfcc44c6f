"""What flawed patches add: code, keys, manifests. Keys are made up when they are asked for."""

# Tables of text read best with one entry a line.
# ruff: noqa: E501

from __future__ import annotations

import random
import string

INSECURE = (
    'def parse_{name}(text):\n    return eval(text)\n',
    'def run_{name}(code):\n    exec(code)\n',
    'import subprocess\n\n\ndef call_{name}(command):\n    return subprocess.run(command, shell=True, check=False)\n',
    'import os\n\n\ndef list_{name}(folder):\n    return os.system("ls " + folder)\n',
    'import pickle\n\n\ndef load_{name}(data):\n    return pickle.loads(data)\n',
    'import marshal\n\n\ndef unpack_{name}(data):\n    return marshal.loads(data)\n',
    'def read_{name}(text):\n    import yaml\n\n    return yaml.load(text, Loader=yaml.Loader)\n',
    'def fetch_{name}(url):\n    import requests\n\n    return requests.get(url, verify=False, timeout=5)\n',
    'import hashlib\n\n\ndef digest_{name}(password):\n    return hashlib.md5(password.encode()).hexdigest()\n',
    'import tempfile\n\n\ndef scratch_{name}():\n    return tempfile.mktemp()\n',
    'import ssl\n\n\ndef context_{name}():\n    return ssl._create_unverified_context()\n',
    'import subprocess\n\n\ndef output_{name}(host):\n    return subprocess.check_output(f"ping -c 1 {{host}}", shell=True)\n',
)  # fmt: skip

DEBUG = (
    'print({argument})',
    'print("DEBUG", {argument})',
    'print(f"{{{argument}=}}")',
    'print("{name} called with", {argument}, sep=" ")',
    'print("here")',
    'import sys; print({argument}, file=sys.stderr)',
    'from pprint import pprint\n    pprint({argument})',
    'import pprint\n    pprint.pprint({argument})',
    'import sys\n    sys.stderr.write(repr({argument}))',
    'if {argument} == "stop here":\n        breakpoint()',
    'if {argument} == "stop here":\n        import pdb\n        pdb.set_trace()',
)  # fmt: skip

MANIFESTS = {
    "requirements.txt": "{package}=={version}\n",
    "requirements-dev.txt": "{package}>={version}\n",
    "pyproject.toml": '[project]\nname = "tasks"\nversion = "1.0"\ndependencies = ["{package}>={version}"]\n',
    "setup.py": 'from setuptools import setup\n\nsetup(name="tasks", version="1.0", install_requires=["{package}>={version}"])\n',
    "setup.cfg": "[metadata]\nname = tasks\n\n[options]\ninstall_requires =\n    {package}>={version}\n",
    "Pipfile": '[packages]\n{package} = ">={version}"\n',
    "package.json": '{{"name": "tasks", "dependencies": {{"{package}": "^{version}"}}}}\n',
    "environment.yml": "name: tasks\ndependencies:\n  - {package}={version}\n",
}
PACKAGES = ("requests", "simplejson", "numpy", "attrs", "toolz", "pyyaml", "left-pad", "lodash")


def secret(rng: random.Random) -> str:
    """A line or more of module code that holds a made-up key of one of many forms."""
    upper, mixed = string.ascii_uppercase + string.digits, string.ascii_letters + string.digits

    def some(letters: str, count: int) -> str:
        return "".join(rng.choices(letters, k=count))

    def key(kind: str, body: int) -> str:
        mark = "-" * 5
        lines = "\n".join(some(mixed + "+/", 64) for _ in range(body))
        return f"{mark}BEGIN {kind} KEY{mark}\n{lines}\n{mark}END {kind} KEY{mark}"

    forms = (
        f'AWS_ACCESS_KEY_ID = "{"AK" + "IA" + some(upper, 16)}"',
        f'AWS_SECRET_ACCESS_KEY = "{some(mixed, 40)}"',
        f'GITHUB_TOKEN = "{"gh" + "p_" + some(mixed, 36)}"',
        f'SLACK_TOKEN = "{"xo" + "xb-" + some(string.digits, 12)}-{some(string.digits, 12)}-{some(mixed, 24)}"',
        f'STRIPE_KEY = "{"sk" + "_live_" + some(mixed, 24)}"',
        f'PRIVATE_KEY = """{key("RSA " + "PRIVATE", 6)}"""',
        f'API_KEY = "{some("0123456789abcdef", 40)}"',
        f'password = "{some(mixed, 16)}"',
        f'DATABASE = "postgres://admin:{some(mixed, 14)}@db.example.com/main"',
    )
    return rng.choice(forms) + "\n"


def long_rewrite(name: str, parameters: str, body: str, rng: random.Random) -> str:
    """The same function through dozens of lines that nobody needs."""
    steps = rng.randint(8, 16)
    style = rng.choice(("functions", "methods", "branches"))
    if style == "branches":
        cases = "".join(
            f'    if mode == "mode{n}":\n        attempts += {n + 1}\n        label = "{name} {n}"\n'
            for n in range(steps)
        )
        setup = f'    mode = "{name}"\n    attempts = 0\n    label = ""\n{cases}'
        return f"def {name}({parameters}):\n{setup}    if attempts or label:\n        return None\n{body}"
    pad = "    " if style == "methods" else ""
    self = "self, " if style == "methods" else ""
    parts = "".join(
        f'{pad}def step_{n}({self}value):\n{pad}    """Step {n} of {name}."""\n{pad}    if value is None:\n{pad}        return None\n{pad}    return value\n\n'
        + ("" if pad else "\n")
        for n in range(steps)
    )
    head = f'class Pipeline:\n    """Steps."""\n\n{parts}\n' if pad else parts
    return f"{head}def {name}({parameters}):\n{body}"
