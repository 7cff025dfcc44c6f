#!/usr/bin/env bash
# Set up the compiler for TPUs (the extra `aot`, 0.5 GB) in an environment of its own, .venv-aot or
# the folder given as $1, with this working tree importable there as `patchgym`. Quick, and without
# network, when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$(realpath -m "${1:-.venv-aot}")

fail() { printf 'aot: %s\n' "$*" >&2; exit 2; }

want=$(cat pyproject.toml uv.lock scripts/aot.sh | sha256sum; printf '%s' "$PWD")
stamp=$venv/patchgym-aot
[ "$(cat "$stamp" 2>/dev/null || true)" != "$want" ] || exit 0

printf 'aot: installing the extra into %s\n' "$venv"
UV_LINK_MODE=copy UV_PROJECT_ENVIRONMENT=$venv .venv/bin/uv sync -q --locked --python .venv/bin/python \
    --no-default-groups --no-install-project --extra train --extra aot ||
    fail "can't install the extra aot: it needs network, 2 GB of disk, and Linux on x86-64"
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s/src\n' "$PWD" >"$packages/patchgym.pth"
# From elsewhere: in the working tree, `datasets` would be a folder of ours.
(cd / && "$venv/bin/python" -c 'import libtpu, patchgym.trainer.aot.cases') >/dev/null 2>&1 ||
    fail "libtpu was installed but can't be imported: run $venv/bin/python -c 'import libtpu'"
printf '%s' "$want" >"$stamp"
