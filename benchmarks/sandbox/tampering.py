"""Twenty ways to leave something behind, as shell scripts: to lay out, to tamper, to look.

Each tampering has a repository of its own under /bench, so that none hides another. The scripts
print the names of what they find; run as root they need nothing but git, python3 and a shell.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOT = "/bench"


@dataclass(frozen=True, slots=True)
class Tampering:
    """One of the twenty."""

    name: str
    do: str
    """Shell, in the repository."""
    visible: str
    """Shell, in the repository: succeeds when the next user sees it."""


TAMPERINGS = (
    Tampering("tracked edit", "echo evil >> plain", "grep -q evil plain"),
    Tampering("tracked delete", "rm plain", "! test -e plain"),
    Tampering("untracked file", "echo evil > new", "test -e new"),
    Tampering("ignored file", "echo evil > new.pyc", "test -e new.pyc"),
    Tampering("nested repository", "git init -q nest && touch nest/f", "test -e nest"),
    Tampering(
        "assume-unchanged edit",
        "git update-index --assume-unchanged plain; echo evil >> plain",
        "grep -q evil plain",
    ),
    Tampering("mode change", "chmod 600 plain", "test $(stat -c %a plain) != 644"),
    Tampering(
        "moved tag",
        "git $IDENTITY commit -q --allow-empty -m evil; git tag -f base >/dev/null",
        "test $(git rev-parse base) != $BASE",
    ),
    Tampering(
        "skip-worktree edit",
        "git update-index --skip-worktree plain; echo evil >> plain",
        "grep -q evil plain",
    ),
    Tampering(
        "git hook",
        "echo true > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
        "test -e .git/hooks/post-checkout",
    ),
    Tampering(
        "fsmonitor command",
        "git config core.fsmonitor 'touch /tmp/bench-ran; false'",
        "git config core.fsmonitor >/dev/null",
    ),
    Tampering(
        "smudge filter",
        "echo 'plain filter=evil' > .git/info/attributes; "
        "git config filter.evil.smudge 'cat; echo evil'; echo evil > plain",
        "grep -q evil plain",
    ),
    Tampering("stale index.lock", "touch .git/index.lock", "test -e .git/index.lock"),
    Tampering(
        "sitecustomize",
        "echo '# evil' > /usr/lib/python3/dist-packages/sitecustomize.py",
        "test -e /usr/lib/python3/dist-packages/sitecustomize.py",
    ),
    Tampering("file in /tmp", "echo evil > /tmp/bench-left", "test -e /tmp/bench-left"),
    Tampering(
        ".bashrc", "echo '# bench evil' >> /root/.bashrc", "grep -q 'bench evil' /root/.bashrc"
    ),
    Tampering("/usr/bin/env", "cp /bin/true /usr/bin/env", "cmp -s /bin/true /usr/bin/env"),
    Tampering("file in /dev/shm", "echo evil > /dev/shm/bench", "test -e /dev/shm/bench"),
    Tampering(
        "SysV shared memory",
        'python3 -c "import ctypes; ctypes.CDLL(None).shmget(77, 4096, 0o1666)"',
        "test $(wc -l < /proc/sysvipc/shm) -gt 1",
    ),
    Tampering(
        "background process",
        "(setsid sleep 986.25 >/dev/null 2>&1 &) ; sleep 0.2",
        "grep -qa '^sleep.986.2[5]' /proc/[0-9]*/cmdline",
    ),
)

LAYOUT = f"""set -e
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
mkdir -p {ROOT}/golden; cd {ROOT}/golden
git init -q -b main; echo plain > plain; chmod 644 plain; echo '*.pyc' > .gitignore
git add -A; git $IDENTITY commit -q -m base; git tag base
for n in $(seq {len(TAMPERINGS)}); do cp -a {ROOT}/golden {ROOT}/$n; done
"""
RESET = f"""for n in $(seq {len(TAMPERINGS)}); do
cd {ROOT}/$n; git reset -q --hard 2>/dev/null && git clean -fdxq; done
"""
HEAD = "export IDENTITY='-c user.name=b -c user.email=b@localhost'\n"


def script(text: str) -> list[str]:
    """As a command."""
    return ["sh", "-c", HEAD + text]


def layout() -> list[str]:
    """Make the repositories; where there are some already, say so and leave them."""
    return script(f"if test -e {ROOT}/golden; then echo found; exit 0; fi\n{LAYOUT}")


def tamper() -> list[str]:
    """Do all twenty."""
    lines = [f"cd {ROOT}/{n}\n{each.do}" for n, each in enumerate(TAMPERINGS, 1)]
    return script("\n".join(lines) + "\ntrue\n")


def reset() -> list[str]:
    """What git can do about it."""
    return script(RESET + "true\n")


def look() -> list[str]:
    """Print the names of those that can be seen, one a line."""
    lines = [f"BASE=$(git -C {ROOT}/golden rev-parse HEAD)"]
    for n, each in enumerate(TAMPERINGS, 1):
        lines.append(f"cd {ROOT}/{n}\nif {each.visible}; then echo 'seen {each.name}'; fi")
    return script("\n".join(lines) + "\ntrue\n")


def seen(output: str) -> list[str]:
    """The names that `look` printed."""
    return [line[5:] for line in output.splitlines() if line.startswith("seen ")]
