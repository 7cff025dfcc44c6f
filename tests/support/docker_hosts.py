"""Docker endpoints for tests: this machine's daemon behind other doors, and Podman."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

DOCKER = "/var/run/docker.sock"


def need(program: str, package: str) -> str:
    """The path of a program, installed from Debian's packages when it is missing."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    install = ("install", "-y", "-qq", "--no-install-recommends", package)
    said = ""
    for words in ((), install, ("update", "-qq"), install):  # the lists may be old, or not there
        if words:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            command = ["apt-get", *words]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            said = done.stderr.strip()[-300:]
        found = shutil.which(program, path=path)
        if found is not None:
            return found
    pytest.fail(f"{program} is needed: apt-get install {package}: {said}")


class Door:
    """Forwards connections to the Docker socket, until it is shut."""

    def __init__(self, listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
        self._listener = listener
        self._context = context
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._open = True
        listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        """As when the host is lost: every connection breaks, none is taken any more."""
        self._open = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._context is not None:
                client = self._context.wrap_socket(client, server_side=True)
        except OSError:
            client.close()
            return
        server = socket.socket(socket.AF_UNIX)
        server.connect(DOCKER)
        self._pairs.append((client, server))
        threads = [
            threading.Thread(target=_pump, args=pair, daemon=True)
            for pair in ((client, server), (server, client))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
        server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        if not isinstance(target, ssl.SSLSocket):
            target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def unix_door(folder: Path) -> Iterator[tuple[str, Door]]:
    """The daemon at another unix socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "door.sock"))
    door = Door(listener)
    yield f"unix://{folder}/door.sock", door
    door.shut()


@contextmanager
def tls_door(folder: Path) -> Iterator[tuple[str, Path]]:
    """The daemon at a TCP port that asks for a client certificate; its URL and certificates."""
    authority = trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert("me@localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    client.private_key_pem.write_to_path(str(folder / "key.pem"))
    client.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    server.configure_cert(context)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    door = Door(listener, context)
    yield f"tcp://localhost:{listener.getsockname()[1]}", folder
    door.shut()


@contextmanager
def ssh_door(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The daemon behind sshd on a port of its own: its URL, and the options that ssh needs."""
    sshd = need("sshd", "openssh-server")
    need("ssh", "openssh-client")
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    options = [f"HostKey={folder}/host", f"AuthorizedKeysFile={folder}/authorized"]
    options += ["StrictModes=no", "UsePAM=no", "PermitRootLogin=yes", f"PidFile={folder}/pid"]
    command = [sshd, "-D", "-e", "-f", "/dev/null", "-p", str(port)]
    for option in options:
        command += ["-o", option]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        _until_listening(port)
        wanted = [f"IdentityFile={folder}/user", f"UserKnownHostsFile={folder}/known"]
        yield f"ssh://127.0.0.1:{port}", [*wanted, "StrictHostKeyChecking=accept-new"]
        daemon.terminate()


def _until_listening(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    pytest.fail("sshd did not come up")


@contextmanager
def podman(folder: Path, image: str) -> Iterator[tuple[str, str]]:
    """Podman's API at a socket, with `image` loaded: its URL, and the image's name there."""
    program = need("podman", "podman")
    need("runc", "runc")
    need("conmon", "conmon")
    words = [program, "--root", str(folder / "root"), "--runroot", str(folder / "run")]
    words += ["--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", "runc"]
    url = f"unix://{folder}/podman.sock"
    command = [*words, "system", "service", "--time", "0", url]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as service:
        try:
            with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
                subprocess.run(
                    [*words, "load"], stdin=saving.stdout, check=True, capture_output=True
                )
            yield url, f"localhost/{image}"
        finally:
            service.terminate()
            service.wait()
            subprocess.run([*words, "system", "reset", "--force"], capture_output=True)


class OwnDaemon:
    """A Docker daemon for one test alone, which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.url = f"unix://{folder}/docker.sock"
        self._folder = folder
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        # a network namespace of its own: a daemon without a bridge removes the host's docker0
        command = [need("unshare", "util-linux"), "--net", need("dockerd", "docker.io")]
        command += ["--host", self.url, "--bridge", "none"]
        command += ["--iptables=false", "--data-root", str(self._folder / "data")]
        command += ["--exec-root", str(self._folder / "exec")]
        command += ["--pidfile", str(self._folder / "docker.pid"), "--log-level", "error"]
        with (self._folder / "log").open("ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(600):
            if self._docker("version").returncode == 0:
                return
            if self._daemon.poll() is not None:
                break
            time.sleep(0.1)
        pytest.fail(f"dockerd did not come up: {(self._folder / 'log').read_text()[-500:]}")

    def stop(self) -> None:
        """End it; its containers end with it."""
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait()

    def load(self, image: str) -> None:
        """Bring an image over from this machine's daemon."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
            done = subprocess.run(
                ["docker", "--host", self.url, "load"], stdin=saving.stdout, capture_output=True
            )
        assert done.returncode == 0, done.stderr

    def inventory(self) -> dict[str, list[str]]:
        """Ids of all containers, networks and volumes."""
        listings = {
            "containers": ("ps", "-aq"),
            "networks": ("network", "ls", "-q"),
            "volumes": ("volume", "ls", "-q"),
        }
        return {
            name: sorted(self._docker(*words).stdout.decode().split())
            for name, words in listings.items()
        }

    def _docker(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["docker", "--host", self.url, *words], capture_output=True)


@contextmanager
def own_daemon(folder: Path, image: str) -> Iterator[OwnDaemon]:
    """A daemon with `image`, gone at the end."""
    daemon = OwnDaemon(folder)
    daemon.start()
    try:
        daemon.load(image)
        yield daemon
    finally:
        daemon.stop()
        for place in (folder / "data").glob("**/netns/*"):
            subprocess.run(["umount", str(place)], capture_output=True)
        shutil.rmtree(folder / "data", ignore_errors=True)
