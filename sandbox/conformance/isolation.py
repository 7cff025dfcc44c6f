"""Checks of isolation: what code inside must not be, see, or reach."""

from __future__ import annotations

import secrets

from .contract import Backend, SandboxLike
from .expect import (
    LEASE_LIMIT,
    STEP,
    demand,
    demand_of_backend,
    expect,
    is_alive,
    printed,
    refusal,
    same,
    see_that_it_is_elsewhere,
)

SYSTEM_PLACES = ("/", "/etc", "/usr/bin", "/usr/lib", "/var", "/dev", "/sys", "/proc")
SHARED_PLACES = ("/usr/bin", "/usr/local/lib", "/etc", "/tmp", "/var/tmp", "/dev/shm", "/run")


@demand("isolation", "commands are not root, in no group of root's, and can't become it")
async def no_root(sandbox: SandboxLike) -> None:
    identity = (await printed(sandbox, "id -u; id -g; id -G")).split()
    expect("0" not in identity, f"uid, gid, groups: {identity}")
    for user in ("0:0", "12345:12345"):
        with refusal(f"user={user}"):
            await sandbox.run("true", timeout=STEP, user=user)


@demand("isolation", "commands have no capability at all")
async def no_capabilities(sandbox: SandboxLike) -> None:
    found = await printed(sandbox, "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status")
    held = {line.split()[0]: line.split()[1] for line in found.splitlines()}
    same("capabilities", {name for name, value in held.items() if int(value, 16)}, set())


@demand("isolation", "no program can raise privileges")
async def no_new_privileges(sandbox: SandboxLike) -> None:
    same("NoNewPrivs", await printed(sandbox, "grep NoNewPrivs /proc/self/status"),
         "NoNewPrivs:\t1\n")  # fmt: skip


@demand("isolation", "mounts, namespaces and devices can't be made")
async def no_kernel_doors(sandbox: SandboxLike) -> None:
    for command in (
        "mount -t tmpfs none .", "unshare -U true", "unshare -n true", "unshare -m true",
        "mknod m c 1 1", "chroot / true", "dmesg", "sysctl -w kernel.hostname=x 2>&1 && exit 0; "
        "echo x >/proc/sys/kernel/hostname",
    ):  # fmt: skip
        done = await sandbox.run(command, timeout=STEP)
        expect(not done.ok, f"{command!r} worked")


@demand("isolation", "nothing of the system can be written to")
async def read_only_system(sandbox: SandboxLike) -> None:
    name = f".patchgym-{secrets.token_hex(8)}"
    for place in SYSTEM_PLACES:
        done = await sandbox.run(["touch", f"{place}/{name}"], timeout=STEP)
        expect(not done.ok, f"{place} can be written to")
    with refusal("write() into /etc"):
        await sandbox.write(f"/etc/{name}", b"x")


@demand("isolation", "there is no network but loopback, and no name is resolved")
async def no_network(sandbox: SandboxLike) -> None:
    devices = await printed(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1")
    same("interfaces", devices.split(), ["lo"])
    for address in ("1.1.1.1", "169.254.169.254", "172.17.0.1"):
        connect = f"import socket; socket.create_connection(('{address}', 80), 3)"
        done = await sandbox.run(["python3", "-c", connect], timeout=10)
        expect(not done.ok, f"{address} answered")
        expect("unreachable" in done.stderr.text(), f"{address}: {done.stderr.text()[-100:]}")
    done = await sandbox.run(["getent", "hosts", "example.org"], timeout=20)
    expect(not done.ok, "a name was resolved")


SERVE = """
import socket
server = socket.create_server(("127.0.0.1", 18080))
client = socket.create_connection(("127.0.0.1", 18080))
peer, _ = server.accept()
peer.close(); client.recv(1); client.close(); server.close()
"""


@demand_of_backend("isolation", "loopback works, and no lease inherits a port from another")
async def loopback(backend: Backend) -> None:
    for _ in range(3):
        async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
            strict = SERVE.replace("socket.create_server", "bind").replace(
                "import socket\n",
                "import socket\ndef bind(place):\n    s = socket.socket()\n"
                "    s.bind(place); s.listen(); return s\n",
            )
            done = await sandbox.run(["python3", "-c", strict], timeout=STEP)
            expect(done.ok, f"a server on loopback: {done.stderr.text()[-200:]}")


@demand("isolation", "commands can't signal, trace or read the process that watches them")
async def supervisor_out_of_reach(sandbox: SandboxLike) -> None:
    signals = "; ".join(f"kill -{name} 1" for name in ("KILL", "INT", "TERM", "STOP", "USR1"))
    await sandbox.run(signals, timeout=STEP)
    same("after signals", await printed(sandbox, "echo fine"), "fine\n")
    for command in (
        "cat /proc/1/environ", "ls /proc/1/fd/", "echo x >/proc/1/mem", "cat /proc/1/maps",
        "echo 1000 >/proc/1/oom_score_adj", "echo x >/proc/1/fd/1",
    ):  # fmt: skip
        done = await sandbox.run(command, timeout=STEP)
        expect(not done.ok or not done.stdout.head, f"{command!r} worked")
    same("after attempts", await printed(sandbox, "echo fine"), "fine\n")


@demand("isolation", "the machine's devices and its container engine are out of sight")
async def no_doors_to_the_machine(sandbox: SandboxLike) -> None:
    found = await printed(
        sandbox,
        "ls -d /dev/mem /dev/kmsg /dev/sd* /dev/vd* /dev/nvme* /dev/kvm "
        "/var/run/docker.sock /run/docker.sock /run/podman /run/containerd 2>/dev/null || true",
    )
    same("found", found, "")


@demand("isolation", "commands see no process but the sandbox's own")
async def own_processes_only(sandbox: SandboxLike) -> None:
    await see_that_it_is_elsewhere(sandbox)
    count = int(await printed(sandbox, "ls -d /proc/[0-9]* | wc -l"))
    expect(count < 12, f"{count} processes are visible in an idle sandbox")


@demand_of_backend("isolation", "two sandboxes see neither each other's processes nor memory")
async def neighbours_unseen(backend: Backend) -> None:
    name = f"patchgym-{secrets.token_hex(8)}"
    async with backend.lease(timeout=LEASE_LIMIT) as one:
        async with backend.lease(timeout=LEASE_LIMIT) as other:
            await printed(one, f"touch /tmp/{name} /dev/shm/{name}; sleep 7110 >/dev/null 2>&1 &")
            expect(not await is_alive(other, 7110), "a process of the other is visible")
            seen = await printed(other, f"ls /tmp/{name} /dev/shm/{name} 2>/dev/null || true")
            await printed(one, f"rm -f /tmp/{name} /dev/shm/{name}")
    same("files of the other", seen, "")


@demand_of_backend("isolation", "files outside of the workdir and home do not reach the next lease")
async def tampered_system(backend: Backend) -> None:
    name = f".patchgym-{secrets.token_hex(8)}"
    places = " ".join(f"{place}/{name}" for place in SHARED_PLACES)
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        before = await printed(sandbox, "sha256sum /usr/bin/env /bin/sh")
        await sandbox.run(f"for f in {places}; do echo x >$f; done", timeout=STEP)
        await printed(sandbox, f"test -e /tmp/{name}")
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        left = await printed(sandbox, f"ls {places} 2>/dev/null || true")
        await sandbox.run(f"rm -f {places}", timeout=STEP)
        same("programs", await printed(sandbox, "sha256sum /usr/bin/env /bin/sh"), before)
    same("left", left, "")


@demand_of_backend("isolation", "System V shared memory does not reach the next lease")
async def tampered_shared_memory(backend: Backend) -> None:
    show = "tail -n +2 /proc/sysvipc/shm"
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        same("at first", await printed(sandbox, show), "")
        await printed(sandbox, "ipcmk -M 4096")
        expect(await printed(sandbox, show), "a segment was made and is not listed")
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        same("next lease", await printed(sandbox, show), "")
