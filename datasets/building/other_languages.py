"""Proposals for Node, Go, Rust and Java, by their lock files, with Debian's toolchains.

What the tests need is fetched in `setup`, without the repository, into a folder that a sandbox
without network still has; so commits with equal lock files share an image.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from patchgym.datasets.environment import Environment

from .proposal import Proposal

PIECE = 60_000  # characters that one command may carry
LARGEST = 1_500_000  # characters of packed manifests past which an install a commit is cheaper
DEBIAN = {"node": 18, "go": (1, 19), "rust": (1, 63)}
"""Versions of bookworm's toolchains."""
UNTRIED = "only proposed: not among what was run when patchgym was made"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def propose_others(files: Mapping[str, bytes], subproject: str = "") -> tuple[Proposal, ...]:
    """For the languages whose manifests lie in a folder, one each and the surest first."""
    prefix = f"{subproject.strip('/')}/" if subproject.strip("/") else ""
    here = {
        path.removeprefix(prefix): data for path, data in files.items() if path.startswith(prefix)
    }
    makers = (_node, _go, _rust, _maven, _gradle)
    return tuple(found for maker in makers if (found := maker(here, prefix)) is not None)


def put(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Commands that write small files into `$HOME/project` of a build."""
    commands = ['mkdir -p "$HOME/project"']
    for name, data in sorted(files.items()):
        packed = base64.b64encode(gzip.compress(data, mtime=0)).decode()
        target = f'"$HOME/project/{name}"'
        commands.extend(
            f"printf %s {packed[start : start + PIECE]} >> {target}.packed"
            for start in range(0, len(packed), PIECE)
        )
        commands.append(f"base64 -d {target}.packed | gunzip > {target} && rm {target}.packed")
    return tuple(commands)


def _node(tree: Mapping[str, bytes], prefix: str) -> Proposal | None:
    if "package.json" not in tree:
        return None
    package = _json(tree["package.json"])
    lock = next(
        (
            each
            for each in (
                "package-lock.json",
                "npm-shrinkwrap.json",
                "yarn.lock",
                "pnpm-lock.yaml",
            )
            if each in tree
        ),
        None,
    )
    install, notes = _node_install(lock)
    carried = {name: tree[name] for name in ("package.json", lock) if name}
    command, ran, check = _node_runner(package)
    packages = ("nodejs", "npm", "ca-certificates")
    wanted = re.search(r"(\d+)", str(_table(package, "engines").get("node", "")))
    if wanted and int(wanted[1]) > DEBIAN["node"]:  # type: ignore[operator]
        notes = (*notes, f"it wants Node {wanted[1]}; Debian 12 has {DEBIAN['node']}")
    shared = not _table(package, "workspaces") and not package.get("workspaces")
    shared = shared and sum(len(command) for command in put(carried)) < LARGEST
    extra = "" if ran else " && npm install --no-save --ignore-scripts jest-junit"
    if shared:
        setup = (
            *put(carried),
            f'cd "$HOME/project" && {install}{extra} && mkdir -p node_modules && '
            "cp -a node_modules /node_modules",
        )
        late: tuple[str, ...] = ()
    else:
        setup, late = (), (f"cd {prefix or '.'} && {install}{extra}",)
    return Proposal(
        environment=Environment(
            packages=packages,
            setup=setup,
            install=late,
            test_command=_in(prefix, command),
            report="junit",
            variables={"PATH": f"/node_modules/.bin:{PATH}", "CI": "true"},
        ),
        notes=(*notes, *(() if ran else (UNTRIED,))),
        check=_in(prefix, check),
    )


def _node_install(lock: str | None) -> tuple[str, tuple[str, ...]]:
    """How packages are installed, and what is to be said of it."""
    if lock in ("package-lock.json", "npm-shrinkwrap.json"):
        return "npm ci --no-audit --no-fund", ()
    if lock == "yarn.lock":
        return "npx --yes yarn@1 install --frozen-lockfile --non-interactive", (UNTRIED,)
    if lock == "pnpm-lock.yaml":
        return "npx --yes pnpm@8 install --frozen-lockfile --shamefully-hoist", (UNTRIED,)
    return "npm install --no-audit --no-fund", ("no lock file: packages are today's",)


def _node_runner(package: Mapping[str, Any]) -> tuple[str, bool, str]:
    """The test command, whether such a one was ever run, and a check that it can start."""
    known = {**_table(package, "dependencies"), **_table(package, "devDependencies")}
    script = str(_table(package, "scripts").get("test", ""))
    if "vitest" in known and "jest" not in script:
        command = "vitest run --reporter=junit --outputFile={report} {test_files}"
        return command, False, "vitest --version"
    if "jest" in known or re.search(r"\bjest\b", script):
        command = "JEST_JUNIT_OUTPUT_FILE={report} jest --ci --reporters=jest-junit {test_files}"
        return command, False, "jest --version"
    if "mocha" in known:
        command = (
            "mocha --reporter xunit --reporter-option output={report} {test_files}"  # mocha's own
        )
        return command, False, "mocha --version"
    command = "node --test --test-reporter=junit --test-reporter-destination={report} {test_files}"
    return command, True, "node --test --test-reporter=junit /dev/null"


def _go(tree: Mapping[str, bytes], prefix: str) -> Proposal | None:
    if "go.mod" not in tree:
        return None
    wanted = re.search(r"(?m)^go (\d+)\.(\d+)", tree["go.mod"].decode("utf-8", "replace"))
    version = (int(wanted[1]), int(wanted[2])) if wanted else (1, 0)
    notes: tuple[str, ...] = (UNTRIED,)
    if version > DEBIAN["go"]:  # type: ignore[operator]
        notes = (*notes, f"it wants Go {version[0]}.{version[1]}; Debian 12 has 1.19")
    carried = {name: tree[name] for name in ("go.mod", "go.sum") if name in tree}
    variables = {
        "GOMODCACHE": "/opt/go/mod", "GOFLAGS": "-mod=mod", "GOPROXY": "off",
        "GOCACHE": "/tmp/go-build", "GOTOOLCHAIN": "local",
    }  # fmt: skip
    tool = "GOBIN=/usr/local/bin GOFLAGS= go install gotest.tools/gotestsum@v1.10.0"
    return Proposal(
        environment=Environment(
            packages=("golang-go", "ca-certificates"),
            setup=(
                *put(carried),
                "mkdir -p /opt/go/mod",
                'cd "$HOME/project" && GOMODCACHE=/opt/go/mod go mod download',
                f"{tool} && chmod -R a+rX /opt/go",
            ),
            test_command=_in(prefix, "gotestsum --junitfile {report} -- ./..."),
            report="junit",
            variables=variables,
        ),
        notes=notes,
        check=_in(prefix, "gotestsum --version && go vet ./..."),
    )


def _rust(tree: Mapping[str, bytes], prefix: str) -> Proposal | None:
    if "Cargo.toml" not in tree:
        return None
    carried = {name: tree[name] for name in ("Cargo.toml", "Cargo.lock") if name in tree}
    locked = "--locked" if "Cargo.lock" in tree else ""
    notes = (UNTRIED, "Debian 12 has Rust 1.63: newer crates need an image with a newer one")
    workspace = b"[workspace]" in tree["Cargo.toml"]
    fetch = f"CARGO_HOME=/opt/cargo cargo fetch {locked}".strip()
    stub = 'cd "$HOME/project" && mkdir -p src && : > src/lib.rs && : > src/main.rs'
    tool = "CARGO_HOME=/opt/cargo cargo install --root /usr/local --locked cargo-nextest@0.9.43"
    configuration = r'[profile.junit.junit]\npath = "junit.xml"\n'
    command = (
        f"printf '{configuration}' > /tmp/nextest.toml; "
        "cargo nextest run --offline --profile junit --no-fail-fast "
        "--config-file /tmp/nextest.toml; code=$?; "
        "cp target/nextest/junit/junit.xml {report}; exit $code"
    )
    return Proposal(
        environment=Environment(
            packages=("cargo", "rustc", "build-essential", "pkg-config", "ca-certificates"),
            setup=(
                *(() if workspace else (*put(carried), f"{stub} && {fetch}")),
                tool,
                "chmod -R a+rwX /opt/cargo",
            ),
            install=(f"cd {prefix or '.'} && {fetch} && chmod -R a+rwX /opt/cargo",)
            if workspace
            else (),
            test_command=_in(prefix, command),
            report="junit",
            variables={"CARGO_HOME": "/opt/cargo"},
        ),
        notes=notes,
        check=_in(prefix, "cargo test --offline --no-run"),
    )


def _maven(tree: Mapping[str, bytes], prefix: str) -> Proposal | None:
    if "pom.xml" not in tree:
        return None
    local = "-Dmaven.repo.local=/opt/m2"
    command = (
        f"mvn -B -o {local} test; code=$?; folder=$(dirname {{report}}); "
        "find . -path '*/surefire-reports/TEST-*.xml' -exec cp --parents {} \"$folder\" \\; ; "
        "exit $code"
    ).replace("cp --parents {}", "cp --parents '{}'")
    return Proposal(
        environment=Environment(
            packages=("default-jdk-headless", "maven", "ca-certificates"),
            # modules and their poms need the whole tree, and go-offline misses plugins' own needs
            install=(f"cd {prefix or '.'} && mvn -B -q {local} -DskipTests install",),
            test_command=_in(prefix, command),
            report="junit",
        ),
        notes=(UNTRIED,),
        check=_in(prefix, f"mvn -B -q -o {local} test-compile"),
    )


def _gradle(tree: Mapping[str, bytes], prefix: str) -> Proposal | None:
    if not {"build.gradle", "build.gradle.kts"} & tree.keys():
        return None
    command = (
        "gradle --offline test; code=$?; folder=$(dirname {report}); "
        "for file in $(find . -path '*/test-results/*' -name 'TEST-*.xml'); "
        'do cp --parents "$file" "$folder"; done; exit $code'
    )
    return Proposal(
        environment=Environment(
            packages=("default-jdk-headless", "gradle", "ca-certificates"),
            install=(
                f"cd {prefix or '.'} && GRADLE_USER_HOME=/opt/gradle gradle testClasses && "
                "chmod -R a+rwX /opt/gradle",
            ),
            test_command=_in(prefix, command),
            report="junit",
            variables={"GRADLE_USER_HOME": "/opt/gradle"},
        ),
        notes=(UNTRIED, "Debian 12 has Gradle 4.4: most builds need their wrapper, or an image"),
        check=_in(prefix, "gradle --offline testClasses"),
    )


def _in(prefix: str, command: str) -> str:
    return f"cd {shlex.quote(prefix)} && {command}" if prefix else command


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _table(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
