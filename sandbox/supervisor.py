"""PID 1 of a sandbox: runs commands for the host over stdin and stdout, and lets none outlive it.

Started as `python3 -I -S -c <this file> FOLDER...` (the writable folders, watched for fullness),
by Python 3.7 or newer, standard library only. It must not import anything of patchgym.

The protocol (version 1), so that a program in another language can take this one's place:

    frame := length:u32 kind:u8 field*        length counts what follows it; integers big-endian
    field := tag:u8 length:u32 bytes          numbers inside fields are decimal ASCII

    host -> supervisor
      R run     a argument (repeated) | c shell command; e KEY=VALUE (repeated), d folder,
                i stdin, t timeout in ms, l bytes kept of each stream, p "1" give a report pipe
      C cancel  no fields; the command in progress is killed as at its deadline
      G get     f path, o offset, l length
      P put     f path, b data, a "1" append, m octal mode
    supervisor -> host
      H hello   v version; once, when ready
      D done    x exit status | s signal; T timed out, C cancelled, O oom kills, L pids limit hits,
                F "1" a folder is full, R "1" report cut, w wall us, u cpu us, m peak memory,
                k processes killed, 1/2 head, 3/4 tail, 5/6 dropped of stdout/stderr, r report
      F file    b data (shorter than asked: the end)      E error   n errno, m message
      K okay    a put is written

Each R, G, P is answered by exactly one frame. One request at a time; only C may come during an R.
End of stdin means that the owner is gone, whatever is running: the supervisor exits, and with it,
because it is PID 1, everything in the container.

What holds: a deadline kills every process that was born during the command (not those that
earlier commands left in the background, nor their children), however it forked or detached;
exit statuses are collected in one place only; nobody inside can read or write this process's
memory or descriptors (it is not dumpable); the kernel's OOM killer prefers commands to it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import sys
import time

VERSION = 1
CHUNK = 65536
REPORT_LIMIT = 16 << 20
GRACE = 0.05  # seconds to wait for output that background processes still hold open
KILL_ROUNDS = 0.4  # seconds of picking processes one by one, before everything is killed
KILL_LIMIT = 0.8  # seconds until the answer is sent even if a process is stuck in the kernel


def frame(kind: bytes, fields: list[tuple[bytes, object]]) -> bytes:
    parts: list[bytes | bytearray] = [kind]
    for tag, value in fields:
        data = value if isinstance(value, (bytes, bytearray)) else str(value).encode()
        parts += [tag, struct.pack(">I", len(data)), data]
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body


def unpack(body: memoryview) -> list[tuple[bytes, memoryview]]:
    fields, at = [], 1
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at + 1)
        fields.append((bytes(body[at : at + 1]), body[at + 5 : at + 5 + size]))
        at += 5 + size
    return fields


class Channel:
    """Frames over the two descriptors that lead to the host."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink, self.buffer = source, sink, bytearray()

    def send(self, kind: bytes, fields: list[tuple[bytes, object]]) -> None:
        view = memoryview(frame(kind, fields))
        try:
            while view:
                view = view[os.write(self.sink, view) :]
        except OSError:
            os._exit(0)

    def fill(self) -> None:
        data = os.read(self.source, 1 << 20)
        if not data:
            os._exit(0)  # the owner is gone: PID 1 takes everything with it
        self.buffer += data

    def next(self) -> memoryview | None:
        if len(self.buffer) < 4:
            return None
        (size,) = struct.unpack_from(">I", self.buffer)
        if len(self.buffer) < 4 + size:
            return None
        body = bytes(memoryview(self.buffer)[4 : 4 + size])
        del self.buffer[: 4 + size]
        return memoryview(body)

    def receive(self) -> memoryview:
        while True:
            body = self.next()
            if body is not None:
                return body
            self.fill()


class Counters:
    """The container's own cgroup files, version 1 or 2, opened once."""

    PLACES = {
        "cpu_ns": ["cpuacct/cpuacct.usage", "cpu,cpuacct/cpuacct.usage"],
        "cpu_us": ["cpu.stat:usage_usec"],
        "peak": ["memory/memory.max_usage_in_bytes", "memory.peak"],
        "oom": ["memory/memory.oom_control:oom_kill", "memory.events:oom_kill"],
        "pids": ["pids/pids.events:max", "pids.events:max"],
    }

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, bytes]] = {}
        for name, places in self.PLACES.items():
            for place in places:
                path, _, key = place.partition(":")
                try:
                    handle = os.open("/sys/fs/cgroup/" + path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue
                self.files[name] = (handle, key.encode())
                break

    def read(self, name: str) -> int | None:
        if name not in self.files:
            return None
        handle, key = self.files[name]
        try:
            words = os.pread(handle, 4096, 0).split()
        except OSError:
            return None
        if not key:
            return int(words[0])
        return int(words[words.index(key) + 1]) if key in words else None

    def cpu_us(self) -> int:
        nanoseconds = self.read("cpu_ns")
        return (self.read("cpu_us") or 0) if nanoseconds is None else nanoseconds // 1000


class Kept:
    """The first and the last bytes of a stream, and how many went by between them."""

    def __init__(self, limit: int) -> None:
        self.half = max(limit // 2, 1)
        self.head, self.tail, self.dropped = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        room = self.half - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > self.half + (1 << 18):
            self.trim()

    def trim(self) -> None:
        extra = len(self.tail) - self.half
        if extra > 0:
            del self.tail[:extra]
            self.dropped += extra


def alive() -> dict[int, tuple[int, bytes]]:
    """Every process but PID 1 and zombies: pid -> (parent, start time)."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if words[0] not in (b"Z", b"X"):
            found[int(name)] = (int(words[1]), words[19])
    return found


class Reaper:
    """The only place that waits for children, so that no exit status is lost."""

    def __init__(self) -> None:
        self.main = 0
        self.status: int | None = None

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main and self.status is None:
                self.status = status

    def kill_born_since(self, before: dict[int, tuple[int, bytes]]) -> int:
        """SIGKILL all processes that are neither in `before` nor children of those."""
        seen: set[int] = set()
        started = time.monotonic()
        while True:
            self.reap()
            now = alive()
            kept = {pid for pid in now if pid in before and before[pid][1] == now[pid][1]}
            targets = [pid for pid in now if not _under(pid, kept, now)]
            if not targets or time.monotonic() - started > KILL_LIMIT:
                return len(seen)
            seen.update(targets)
            if not kept or time.monotonic() - started > KILL_ROUNDS:
                _signal(-1)  # at one stroke: a fork bomb can't outrun it
            else:
                for pid in targets:
                    _signal(pid)
            time.sleep(0.001)


def _under(pid: int, kept: set[int], now: dict[int, tuple[int, bytes]]) -> bool:
    while pid not in kept:
        if pid not in now or now[pid][0] == pid:
            return False
        pid = now[pid][0]
    return True


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # it is gone already


class Badness:
    """Keeps commands likelier victims of the OOM killer than PID 1."""

    def __init__(self) -> None:
        try:  # opened before this process stops being dumpable: later it may not open it
            self.file = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self.own = os.pread(self.file, 16, 0).strip() or b"0"
        except OSError:
            self.file, self.own = -1, b"0"

    def set(self, child: bool) -> None:
        try:
            os.pwrite(self.file, b"1000" if child else self.own, 0)
        except OSError:
            self.file = -1


class Command:
    """One command, from fork to the frame that tells its end."""

    def __init__(self, fields: list[tuple[bytes, memoryview]]) -> None:
        one = {tag: bytes(value) for tag, value in fields if tag not in (b"a", b"e")}
        self.argv = [bytes(value) for tag, value in fields if tag == b"a"]
        if b"c" in one:
            shell = b"/bin/bash" if os.path.exists("/bin/bash") else b"/bin/sh"
            self.argv = [shell, b"-c", one[b"c"]]
        self.environment = dict(os.environb)
        for tag, value in fields:
            if tag == b"e":
                key, _, text = bytes(value).partition(b"=")
                self.environment[key] = text
        self.folder = one.get(b"d", b"/")
        self.stdin = memoryview(one.get(b"i", b""))
        self.seconds = int(one.get(b"t", b"60000")) / 1000
        self.streams = [Kept(int(one.get(b"l", b"65536"))) for _ in range(2)]
        self.report = bytearray()
        self.report_cut = False
        self.wants_report = one.get(b"p") == b"1"
        self.timed_out = self.cancelled = False
        self.sources: dict[int, int] = {}
        self.feed = -1

    def start(self, badness: Badness) -> int:
        """Fork; returns the child's pid. Raises OSError when no process can be made."""
        pipes = [os.pipe() for _ in range(4 if self.wants_report else 3)]
        ends = [pipes[0][0]] + [pair[1] for pair in pipes[1:]]
        badness.set(True)
        try:
            pid = os.fork()
        except OSError:
            badness.set(False)
            for pair in pipes:
                os.close(pair[0])
                os.close(pair[1])
            raise
        if pid == 0:
            self._become(ends)
        badness.set(False)
        for end in ends:
            os.close(end)
        self.feed = pipes[0][1]
        self.sources = {pair[0]: index for index, pair in enumerate(pipes[1:])}
        for end in list(self.sources) + [self.feed]:
            os.set_blocking(end, False)
        return pid

    def _become(self, ends: list[int]) -> None:
        try:
            for target, end in enumerate(ends):
                os.dup2(end, target)
            if len(ends) > 3:
                self.environment[b"PATCHGYM_REPORT_FD"] = b"3"
            else:
                os.close(3)
            os.setsid()
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chdir(self.folder)
            self._execute()
        except OSError as problem:
            text = f"patchgym: {os.fsdecode(self.argv[0])}: {problem.strerror}\n"
            os.write(2, text.encode("utf-8", "surrogateescape"))
            os._exit(127 if problem.errno == errno.ENOENT else 126)
        finally:
            os._exit(126)

    def _execute(self) -> None:
        """exec; not os.execvpe, which imports modules first, each time anew in every child."""
        name, problem = self.argv[0], OSError(errno.ENOENT, "command not found")
        path = (
            [b""] if b"/" in name else self.environment.get(b"PATH", b"/usr/bin:/bin").split(b":")
        )
        for folder in path:
            try:
                os.execve(os.path.join(folder, name), self.argv, self.environment)
            except OSError as trouble:
                if trouble.errno not in (errno.ENOENT, errno.ENOTDIR):
                    problem = trouble
        raise problem

    def take(self, end: int) -> bool:
        """Read what a pipe has; False at its end."""
        try:
            data = os.read(end, CHUNK)
        except BlockingIOError:
            return True
        index = self.sources[end]
        if index < 2:
            self.streams[index].add(data)
        elif len(self.report) + len(data) <= REPORT_LIMIT:
            self.report += data
        else:
            self.report_cut = True
        if not data:
            os.close(end)
            del self.sources[end]
        return bool(data)

    def drain(self) -> None:
        """Read what was written before the end, without waiting for more."""
        for end in list(self.sources):
            for _ in range(16):  # a pipe holds no more than 16 chunks
                if not (select.select([end], [], [], 0)[0] and self.take(end)):
                    break

    def give(self) -> bool:
        """Write what stdin's pipe takes; False when all is written or nobody reads."""
        try:
            self.stdin = self.stdin[os.write(self.feed, self.stdin[:CHUNK]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.stdin = self.stdin[:0]
        if not self.stdin:
            os.close(self.feed)
            self.feed = -1
        return bool(self.stdin)

    def close(self) -> None:
        for end in self.sources:
            os.close(end)
        if self.feed >= 0:
            os.close(self.feed)


class Supervisor:
    """The loop: one request, one answer."""

    def __init__(self, channel: Channel, wakeup: int, folders: list[str]) -> None:
        self.channel, self.wakeup, self.folders = channel, wakeup, folders
        self.reaper, self.counters, self.badness = Reaper(), Counters(), Badness()

    def serve(self) -> None:
        self.channel.send(b"H", [(b"v", VERSION)])
        while True:
            body = self.channel.receive()
            kind, fields = bytes(body[:1]), unpack(body)
            try:
                if kind == b"R":
                    self.run(Command(fields))
                elif kind == b"G":
                    self.get({tag: bytes(value) for tag, value in fields})
                elif kind == b"P":
                    self.put({tag: bytes(value) for tag, value in fields})
            except OSError as problem:
                text = problem.strerror or str(problem)
                self.channel.send(b"E", [(b"n", problem.errno or 0), (b"m", text)])

    def get(self, one: dict[bytes, bytes]) -> None:
        with open(one[b"f"], "rb", buffering=0) as file:
            data = os.pread(file.fileno(), int(one[b"l"]), int(one[b"o"]))
        self.channel.send(b"F", [(b"b", data)])

    def put(self, one: dict[bytes, bytes]) -> None:
        path = one[b"f"]
        append = one.get(b"a") == b"1"
        if not append:
            os.makedirs(os.path.dirname(path) or b".", exist_ok=True)
        with open(path, "ab" if append else "wb", buffering=0) as file:
            view = memoryview(one[b"b"])
            while view:
                view = view[file.write(view) :]
            if b"m" in one:
                os.fchmod(file.fileno(), int(one[b"m"], 8))
        self.channel.send(b"K", [])

    def run(self, command: Command) -> None:
        before = alive()
        marks = [self.counters.read("oom"), self.counters.read("pids"), self.counters.cpu_us()]
        started = time.monotonic()
        self.reaper.status = None
        try:
            self.reaper.main = command.start(self.badness)
        except OSError as problem:
            text = f"patchgym: can't start a process: {problem.strerror}\n"
            command.streams[1].add(text.encode())
            self.reaper.main, self.reaper.status = 0, 126 << 8
        else:
            self.watch(command, started + command.seconds)
        killed = 0
        if command.timed_out or command.cancelled:
            killed = self.reaper.kill_born_since(before)
            command.drain()
        command.close()
        self.finish(command, marks, time.monotonic() - started, killed)

    def watch(self, command: Command, deadline: float) -> None:
        """Move bytes until the command has ended, or its time is up, or the host cancels."""
        poll = select.poll()
        poll.register(self.channel.source, select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        for end in command.sources:
            poll.register(end, select.POLLIN)
        poll.register(command.feed, select.POLLOUT)
        while command.sources or self.reaper.status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                command.timed_out = self.reaper.status is None
                return
            ready = poll.poll(left * 1000 + 1)
            for end, event in ready:
                self.handle(command, poll, end, event)
            if command.cancelled:
                return
            if self.reaper.status is None:
                self.reaper.reap()
                if self.reaper.status is not None:  # pipes may be held open by others
                    deadline = min(deadline, time.monotonic() + GRACE)

    def handle(self, command: Command, poll: select.poll, end: int, event: int) -> None:
        if end == self.wakeup:
            os.read(end, 4096)
        elif end == self.channel.source:
            self.channel.fill()
            body = self.channel.next()
            command.cancelled = body is not None and bytes(body[:1]) == b"C"
        elif end == command.feed:
            if event & select.POLLERR:
                command.stdin = command.stdin[:0]
            if not command.give():
                poll.unregister(end)
        elif not command.take(end):
            poll.unregister(end)

    def finish(
        self, command: Command, marks: list[int | None], seconds: float, killed: int
    ) -> None:
        fields: list[tuple[bytes, object]] = []
        status = self.reaper.status
        if status is not None and os.WIFEXITED(status):
            fields.append((b"x", os.WEXITSTATUS(status)))
        elif status is not None and not killed:
            fields.append((b"s", os.WTERMSIG(status)))
        for tag, flag in ((b"T", command.timed_out), (b"C", command.cancelled)):
            if flag:
                fields.append((tag, 1))
        ooms, pids = self.counters.read("oom"), self.counters.read("pids")
        fields.append((b"O", (ooms or 0) - (marks[0] or 0)))
        fields.append((b"L", (pids or 0) - (marks[1] or 0)))
        fields.append((b"F", int(any(_full(folder) for folder in self.folders))))
        fields.append((b"R", int(command.report_cut)))
        fields.append((b"w", int(seconds * 1e6)))
        fields.append((b"u", self.counters.cpu_us() - (marks[2] or 0)))
        peak = self.counters.read("peak")
        if peak is not None:
            fields.append((b"m", peak))
        fields.append((b"k", killed))
        for index, kept in enumerate(command.streams):
            kept.trim()
            fields.append((b"12"[index : index + 1], kept.head))
            fields.append((b"34"[index : index + 1], kept.tail))
            fields.append((b"56"[index : index + 1], kept.dropped))
        fields.append((b"r", command.report))
        self.channel.send(b"D", fields)


def _full(folder: str) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def forbid_inspection() -> None:
    """PR_SET_DUMPABLE off: other processes of the same user can't trace this one or read it."""
    try:  # ctypes proper takes 5 ms of CPU to import
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_cdeclfunction(prctl, (4, 0, 0, 0, 0))
    except (ImportError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def main() -> None:
    # 0 to 3 become /dev/null (3 is where a report pipe will go), the host's pipes move up
    source = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10)
    null = os.open("/dev/null", os.O_RDWR)
    for target in range(4):
        if target != 2 and target != null:
            os.dup2(null, target)
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, where: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a child may signal PID 1, but to no effect
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    supervisor = Supervisor(Channel(source, sink), read_end, sys.argv[1:])
    forbid_inspection()
    supervisor.serve()


if __name__ == "__main__":
    main()
