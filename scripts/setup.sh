#!/usr/bin/env bash
# Set up what patchgym needs and the machine lacks: a Python environment, and a Docker engine.
# Quick when nothing is missing. Installs system packages only as root or by sudo without a password.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
DOCKERD_LOG=/var/log/patchgym-dockerd.log

fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 126
    fi
}

install_packages() {
    command -v apt-get >/dev/null || fail "no apt-get here: install these by hand, then run again: $*"
    as_root true || fail "not root, and sudo asks for a password; run: sudo apt-get install -y $*"
    printf 'setup: installing %s\n' "$*"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

find_python() {
    local name
    for name in python3.11 python3.12 python3.13 python3; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"; return
        fi
    done
    fail "no Python 3.11 or newer; run: sudo apt-get install -y python3 python3-venv"
}

python_environment() {
    local stamp want python
    stamp=.venv/patchgym-setup
    want=$(cat pyproject.toml uv.lock setup.py sandbox/native/* trainer/sampler/native/* scripts/setup.sh | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null || true)" = "$want" ] && return
    python=$(find_python)
    if [ ! -x .venv/bin/pip ] && ! "$python" -m venv .venv 2>/dev/null; then
        install_packages python3-venv
        "$python" -m venv .venv
    fi
    printf 'setup: Python packages into .venv\n'
    .venv/bin/python -m pip install -q "uv==$UV_VERSION"
    UV_LINK_MODE=copy .venv/bin/uv sync -q --locked --inexact --extra train --extra tasks --extra observe --extra wandb --extra mlflow --extra dashboard --extra ray --extra scale --group dev
    printf '%s\n' "$want" >"$stamp"
}

docker_answers() { .venv/bin/python -c 'import docker; docker.from_env(timeout=5).ping()' 2>/dev/null; }

# A daemon that was killed leaves its pid file; the next one refuses to start, or waits for a
# stranger, when that number belongs to another process by then.
forget_dead_daemon() {
    [ -f "$1" ] || return 0
    [ "$(cat "/proc/$(cat "$1")/comm" 2>/dev/null || true)" = "$2" ] || as_root rm -f "$1"
}

docker_engine() {
    docker_answers && return
    if [ -z "${DOCKER_HOST:-}" ] && [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
        fail "a Docker socket is there but $(id -un) may not use it; run: sudo usermod -aG docker $(id -un), and log in again"
    fi
    [ -z "${DOCKER_HOST:-}" ] || fail "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST: start it, or unset DOCKER_HOST"
    command -v dockerd >/dev/null || [ -x /usr/sbin/dockerd ] || install_packages docker.io
    docker_answers && return
    as_root true || fail "no Docker engine is running; run: sudo dockerd >/tmp/dockerd.log 2>&1 &"
    forget_dead_daemon /var/run/docker.pid dockerd
    forget_dead_daemon /var/run/docker/containerd/containerd.pid containerd
    printf 'setup: starting the Docker engine (log: %s)\n' "$DOCKERD_LOG"
    as_root sh -c "PATH=\$PATH:/usr/sbin:/sbin setsid dockerd >$DOCKERD_LOG 2>&1 </dev/null &"
    for _ in $(seq 120); do
        docker_answers && return
        sleep 0.5
    done
    fail "the Docker engine did not start within 60 s; its last words: $(as_root tail -n 1 $DOCKERD_LOG)"
}

python_environment
docker_engine
