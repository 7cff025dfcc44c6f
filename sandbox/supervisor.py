"""PID 1 of a sandbox: runs commands for the host over stdin and stdout, and lets none outlive it.

The static program in `native/` is what normally runs; this one serves where that can't be had, and
makes the same promises. Started as `python3 -I -S -c <this file> FOLDER...` (the writable folders,
watched for fullness), by Python 3.7 or newer, standard library only. It must not import anything
of patchgym.

The protocol (version 2):

    frame := length:u32 kind:u8 id:u32 field*   length counts what follows it; big-endian
    field := tag:u8 length:u32 bytes            numbers inside fields are decimal ASCII

    host -> supervisor; the host chooses the ids
      R run     a argument (repeated) | c shell command; e KEY=VALUE (repeated), d folder,
                t timeout in ms (0: none), l bytes kept of each stream, i stdin,
                w "1" stdin stays open, s "1" stream the output, p "1" give a report pipe,
                u, g user and group (when PID 1 may change them)
      C cancel  the command with this id is killed as at its deadline
      I input   n id of the command, i data, z "1" the end of its stdin
      A acknowledge  n id of the command, b bytes of streamed output that were used up
      G get     f path, o offset, l length, u, g
      P put     f path, b data, a "1" append, m octal mode, u, g
    supervisor -> host
      H hello   v version, k kind; once, when ready, with id 0
      O output  n 1 or 2 (stdout, stderr), b data: of a streamed command, as it comes
      D done    x exit status | s signal; T timed out, C cancelled, O oom kills, L pids limit hits,
                F "1" a folder is full, R "1" report cut, w wall us, u cpu us, m peak memory,
                k processes killed, 1/2 head, 3/4 tail, 5/6 dropped of stdout/stderr, r report
      F file    b data (shorter than asked: the end)      E error   n errno, m message
      K okay    a put, or an input, is written

R, I, G, P are each answered by exactly one frame of their id (R: after any O frames); answers
come in any order. At most a window of streamed bytes goes unacknowledged; then the command waits.
End of stdin means that the owner is gone, whatever is running: the supervisor exits, and with it,
because it is PID 1, everything in the container.

What holds: a deadline kills every process that the command started, however it forked or detached,
and spares those of other commands. Whose a process is, is told by its ancestors, by its session,
and by the cookie PATCHGYM_COMMAND in its environment; when no other command's process is alive,
everything dies, whatever it says of itself. Exit statuses are collected in one place only; nobody
inside can read or write this process's memory or descriptors (it is not dumpable); the kernel's
OOM killer prefers commands to it. Outside a PID namespace of its own (the local fake) it kills
nothing but its own descendants.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import stat
import struct
import sys
import time

VERSION = 2
CHUNK = 65536
COMMANDS_LIMIT = 64  # commands in progress at one time
WINDOW = 1 << 20  # bytes streamed but not yet acknowledged at which a command is made to wait
REPORT_LIMIT = 16 << 20
GRACE = 0.05  # seconds to wait for output that background processes still hold open
KILL_ROUNDS = 0.4  # seconds of picking processes one by one, before everything is killed
KILL_LIMIT = 0.8  # seconds until the answer is sent even if a process is stuck in the kernel
SECRET = os.urandom(16).hex().encode()  # marks the cookies as ours


def frame(kind: bytes, number: int, fields: list[tuple[bytes, object]]) -> bytes:
    parts: list[bytes | bytearray] = [kind, struct.pack(">I", number)]
    for tag, value in fields:
        data = value if isinstance(value, (bytes, bytearray)) else str(value).encode()
        parts += [tag, struct.pack(">I", len(data)), data]
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body


class Request:
    """One frame of the host."""

    def __init__(self, body: bytes) -> None:
        self.kind = body[:1]
        (self.number,) = struct.unpack_from(">I", body, 1)
        self.fields: list[tuple[bytes, bytes]] = []
        at = 5
        while at < len(body):
            (size,) = struct.unpack_from(">I", body, at + 1)
            self.fields.append((body[at : at + 1], body[at + 5 : at + 5 + size]))
            at += 5 + size
        self.one = dict(self.fields)

    def integer(self, tag: bytes, default: int) -> int:
        return int(self.one.get(tag, default))


class Channel:
    """Frames over the two descriptors that lead to the host; never waits for it."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.incoming, self.outgoing = bytearray(), bytearray()
        os.set_blocking(sink, False)

    def send(self, kind: bytes, number: int, fields: list[tuple[bytes, object]]) -> None:
        self.outgoing += frame(kind, number, fields)

    def send_error(self, number: int, code: int, message: str) -> None:
        self.send(b"E", number, [(b"n", code), (b"m", message)])

    def flush(self) -> None:
        while self.outgoing:
            try:
                wrote = os.write(self.sink, memoryview(self.outgoing)[: 1 << 20])
            except BlockingIOError:
                return
            except OSError:
                return leave()
            del self.outgoing[:wrote]

    def fill(self) -> None:
        data = os.read(self.source, 1 << 20)
        if not data:
            leave()
        self.incoming += data

    def next(self) -> Request | None:
        if len(self.incoming) < 4:
            return None
        (size,) = struct.unpack_from(">I", self.incoming)
        if len(self.incoming) < 4 + size:
            return None
        body = bytes(memoryview(self.incoming)[4 : 4 + size])
        del self.incoming[: 4 + size]
        return Request(body)


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
        if os.getpid() != 1:
            return  # they would be the whole machine's
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
        nanoseconds, microseconds = self.read("cpu_ns"), self.read("cpu_us")
        if nanoseconds is not None:
            return nanoseconds // 1000
        if microseconds is not None:
            return microseconds
        spent = os.times()  # of children that have ended
        return int((spent.children_user + spent.children_system) * 1e6)


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


class Process:
    """One line of /proc."""

    def __init__(self, pid: int, words: list[bytes]) -> None:
        self.pid, self.parent, self.session = pid, int(words[1]), int(words[3])
        self.started = words[19]


def alive() -> dict[int, Process]:
    """Every process but this one and zombies, by pid."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if words[0] not in (b"Z", b"X"):
            found[int(name)] = Process(int(name), words)
    if os.getpid() == 1:
        return found
    return {pid: each for pid, each in found.items() if _is_ours(each, found)}


def _is_ours(process: Process | None, found: dict[int, Process]) -> bool:
    while process is not None and process.parent != os.getpid():
        process = found.get(process.parent)
    return process is not None


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # it is gone already


def leave() -> None:
    """The owner is gone. PID 1 takes everything with it; another kills its descendants first."""
    deadline = time.monotonic() + KILL_LIMIT
    while os.getpid() != 1 and time.monotonic() < deadline:
        left = alive()
        if not left:
            break
        for pid in left:
            _signal(pid)
        time.sleep(0.001)
    os._exit(0)


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

    def __init__(self, request: Request, serial: int) -> None:
        one = request.one
        self.number, self.serial = request.number, serial
        self.argv = [value for tag, value in request.fields if tag == b"a"]
        if b"c" in one:
            shell = b"/bin/bash" if os.path.exists("/bin/bash") else b"/bin/sh"
            self.argv = [shell, b"-c", one[b"c"]]
        self.environment = dict(os.environb)
        for tag, value in request.fields:
            if tag == b"e":
                key, _, text = value.partition(b"=")
                self.environment[key] = text
        self.environment[b"PATCHGYM_COMMAND"] = b"%s-%d" % (SECRET, serial)
        self.folder = one.get(b"d", b"/")
        self.user, self.group = request.integer(b"u", -1), request.integer(b"g", -1)
        self.stdin = bytearray(one.get(b"i", b""))
        self.stdin_open = one.get(b"w") == b"1"
        self.stdin_request = 0
        self.streams = [Kept(request.integer(b"l", 65536)) for _ in range(2)]
        self.streaming, self.unacknowledged = one.get(b"s") == b"1", 0
        self.report = bytearray()
        self.report_cut = False
        self.wants_report = one.get(b"p") == b"1"
        self.timed_out = self.cancelled = False
        self.sources: dict[int, int] = {}
        self.feed = -1
        self.pid, self.status, self.killed = 0, -1, 0
        self.before = alive()
        self.started = time.monotonic()
        milliseconds = request.integer(b"t", 0)
        self.deadline = self.started + milliseconds / 1000 if milliseconds else float("inf")
        self.closing = float("inf")
        self.marks: list[int] = []

    @property
    def ended(self) -> bool:
        return self.status >= 0

    def start(self, badness: Badness) -> None:
        """Fork. Raises OSError when no process can be made."""
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
        self.pid = pid
        self.feed = pipes[0][1]
        self.sources = {pair[0]: index for index, pair in enumerate(pipes[1:])}
        for end in list(self.sources) + [self.feed]:
            os.set_blocking(end, False)
        if not self.stdin and not self.stdin_open:
            self.close_feed()

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
            if self.group >= 0:
                os.setgroups([])
                os.setgid(self.group)
            if self.user >= 0:
                os.setuid(self.user)
            os.chdir(self.folder)
            self._execute()
        except OSError as problem:
            missing = problem.errno == errno.ENOENT
            reason = "command or folder not found" if missing else problem.strerror
            text = f"patchgym: {os.fsdecode(self.argv[0])}: {reason}\n"
            os.write(2, text.encode("utf-8", "surrogateescape"))
            os._exit(127 if missing else 126)
        finally:
            os._exit(126)

    def _execute(self) -> None:
        """exec; not os.execvpe, which imports modules first, each time anew in every child."""
        name, problem = self.argv[0], OSError(errno.ENOENT, "not found")
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

    def not_started(self, reason: str) -> None:
        self.streams[1].add(f"patchgym: can't start a process: {reason}\n".encode())
        self.status, self.stdin_open = 126 << 8, False

    def take(self, end: int, channel: Channel) -> bool:
        """Read what a pipe has; False at its end."""
        try:
            data = os.read(end, CHUNK)
        except BlockingIOError:
            return True
        index = self.sources[end]
        if index < 2:
            self.streams[index].add(data)
            if data and self.streaming:
                channel.send(b"O", self.number, [(b"n", index + 1), (b"b", data)])
                self.unacknowledged += len(data)
        elif len(self.report) + len(data) <= REPORT_LIMIT:
            self.report += data
        else:
            self.report_cut = True
        if not data:
            os.close(end)
            del self.sources[end]
        return bool(data)

    def drain(self, channel: Channel) -> None:
        """Read what was written before the end, without waiting for more."""
        for end in list(self.sources):
            for _ in range(16):  # a pipe holds no more than 16 chunks
                if not (select.select([end], [], [], 0)[0] and self.take(end, channel)):
                    break

    def add_input(self, request: Request, channel: Channel) -> None:
        """More stdin from the host; it is answered when it is written."""
        if self.feed < 0 or self.stdin_request:
            channel.send_error(request.number, errno.EPIPE, "the command does not read its stdin")
            return
        self.stdin += request.one.get(b"i", b"")
        self.stdin_open = request.one.get(b"z") != b"1"
        self.stdin_request = request.number
        self.give(channel)

    def give(self, channel: Channel) -> None:
        """Write what stdin's pipe takes."""
        broken = False
        try:
            if self.stdin:
                del self.stdin[: os.write(self.feed, memoryview(self.stdin)[:CHUNK].tobytes())]
        except BlockingIOError:
            return
        except OSError:
            broken = True
            self.stdin.clear()
        if self.stdin:
            return
        if self.stdin_request and broken:
            text = "the command does not read its stdin"
            channel.send_error(self.stdin_request, errno.EPIPE, text)
        elif self.stdin_request:
            channel.send(b"K", self.stdin_request, [])
        self.stdin_request = 0
        if broken or not self.stdin_open:
            self.close_feed()

    def close_feed(self) -> None:
        if self.feed >= 0:
            os.close(self.feed)
        self.feed = -1

    def close(self) -> None:
        for end in self.sources:
            os.close(end)
        self.sources = {}
        self.close_feed()


class Executioner:
    """Reaps children, and kills what a command started."""

    def __init__(self, commands: dict[int, Command]) -> None:
        self.commands = commands

    def reap(self) -> None:
        """The only place that waits for children, so that no exit status is lost."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for command in self.commands.values():
                if command.pid == pid and not command.ended:
                    command.status = status

    def kill(self, victim: Command) -> int:
        """SIGKILL all that the victim started, however it detached itself; returns how many."""
        seen: set[int] = set()
        started = time.monotonic()
        while True:
            self.reap()
            now = alive()
            company = self._has_company(victim, now)
            targets = [
                pid for pid in now if not (company and self._is_spared(victim, now[pid], now))
            ]
            if not targets or time.monotonic() - started > KILL_LIMIT:
                return len(seen)
            seen.update(targets)
            alone = os.getpid() == 1
            if alone and (not company or time.monotonic() - started > KILL_ROUNDS):
                _signal(-1)  # at one stroke: a fork bomb can't outrun it
            else:
                for pid in targets:
                    _signal(pid)
            time.sleep(0.001)

    def _others(self, victim: Command) -> list[Command]:
        return [each for each in self.commands.values() if each is not victim]

    def _has_company(self, victim: Command, now: dict[int, Process]) -> bool:
        running = any(not other.ended for other in self._others(victim))
        return running or any(_was_there(victim, each) for each in now.values())

    def _is_spared(self, victim: Command, process: Process, now: dict[int, Process]) -> bool:
        others = self._others(victim)
        living = {other.pid for other in others if not other.ended}
        each: Process | None = process
        while each is not None:
            if each.pid == victim.pid:
                return False
            if each.pid in living or _was_there(victim, each):
                return True
            each = now.get(each.parent)
        if process.session in {other.pid for other in others}:
            return True
        serial = _cookie(process.pid)
        return serial is not None and serial != victim.serial


def _was_there(victim: Command, process: Process) -> bool:
    then = victim.before.get(process.pid)
    return then is not None and then.started == process.started


def _cookie(pid: int) -> int | None:
    """The serial of the command whose cookie a process carries."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return None
    mark = b"PATCHGYM_COMMAND=" + SECRET + b"-"
    for word in words:
        if word.startswith(mark) and word[len(mark) :].isdigit():
            return int(word[len(mark) :])
    return None


class Supervisor:
    """The loop. Nothing in it waits for a command, a file or the host."""

    def __init__(self, channel: Channel, wakeup: int, folders: list[str]) -> None:
        self.channel, self.wakeup, self.folders = channel, wakeup, folders
        self.commands: dict[int, Command] = {}
        self.executioner = Executioner(self.commands)
        self.counters, self.badness, self.serials = Counters(), Badness(), 0

    def serve(self) -> None:
        self.channel.send(b"H", 0, [(b"v", VERSION), (b"k", b"python")])
        while True:
            self.channel.flush()
            self.serve_once()

    def serve_once(self) -> None:
        poll, owners = select.poll(), {}
        poll.register(self.wakeup, select.POLLIN)
        poll.register(self.channel.source, select.POLLIN)
        if self.channel.outgoing:
            poll.register(self.channel.sink, select.POLLOUT)
        for command in self.commands.values():
            ends = [command.feed] if command.stdin and command.feed >= 0 else []
            if not (command.streaming and command.unacknowledged >= WINDOW):
                ends += list(command.sources)
            for end in ends:
                poll.register(end, select.POLLOUT if end == command.feed else select.POLLIN)
                owners[end] = command
        for end, _ in poll.poll(self.milliseconds_left()):
            if end in owners and end == owners[end].feed:
                owners[end].give(self.channel)
            elif end in owners and end in owners[end].sources:
                owners[end].take(end, self.channel)
            elif end == self.wakeup:
                os.read(end, 4096)
                self.executioner.reap()
            elif end == self.channel.source:
                self.listen()
        for command in [each for each in self.commands.values() if self.is_due(each)]:
            self.finish(command)

    def milliseconds_left(self) -> float | None:
        ends = [each.closing if each.ended else each.deadline for each in self.commands.values()]
        left = min(ends, default=float("inf")) - time.monotonic()
        return None if left == float("inf") else min(max(left, 0) * 1000 + 1, 1000)

    def is_due(self, command: Command) -> bool:
        now = time.monotonic()
        if command.cancelled or (command.ended and not command.sources):
            return True
        if command.ended:  # background processes may hold its pipes open
            command.closing = min(command.closing, now + GRACE)
            return now >= command.closing
        command.timed_out = now >= command.deadline
        return command.timed_out

    def listen(self) -> None:
        self.channel.fill()
        while True:
            request = self.channel.next()
            if request is None:
                return
            try:
                self.handle(request)
            except OSError as problem:
                text = problem.strerror or str(problem)
                self.channel.send_error(request.number, problem.errno or 0, text)

    def handle(self, request: Request) -> None:
        if request.kind == b"R":
            self.run(request)
        elif request.kind == b"C" and request.number in self.commands:
            self.commands[request.number].cancelled = True
        elif request.kind in b"IA":
            command = self.commands.get(request.integer(b"n", 0))
            if request.kind == b"A":
                if command is not None:
                    command.unacknowledged -= request.integer(b"b", 0)
            elif command is None:
                raise OSError(errno.ESRCH, "the command has ended")
            else:
                command.add_input(request, self.channel)
        elif request.kind == b"G":
            self.get(request)
        elif request.kind == b"P":
            self.put(request)

    def get(self, request: Request) -> None:
        with _AsUser(request):
            handle = _open_regular(request.one[b"f"], os.O_RDONLY)
        try:
            data = os.pread(handle, request.integer(b"l", 0), request.integer(b"o", 0))
        finally:
            os.close(handle)
        self.channel.send(b"F", request.number, [(b"b", data)])

    def put(self, request: Request) -> None:
        path = request.one[b"f"]
        append = request.one.get(b"a") == b"1"
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
        with _AsUser(request):
            if not append:
                os.makedirs(os.path.dirname(path) or b".", exist_ok=True)
            handle = _open_regular(path, flags)
        try:
            view = memoryview(request.one.get(b"b", b""))
            while view:
                view = view[os.write(handle, view) :]
            if b"m" in request.one:
                os.fchmod(handle, int(request.one[b"m"], 8))
        finally:
            os.close(handle)
        self.channel.send(b"K", request.number, [])

    def run(self, request: Request) -> None:
        if len(self.commands) >= COMMANDS_LIMIT:
            raise OSError(errno.EAGAIN, "64 commands are in progress already")
        self.serials += 1
        command = Command(request, self.serials)
        command.marks = self.marks()
        self.commands[command.number] = command
        try:
            command.start(self.badness)
        except OSError as problem:
            command.not_started(problem.strerror or str(problem))

    def marks(self) -> list[int]:
        pids, ooms = self.counters.read("pids"), self.counters.read("oom")
        return [ooms or 0, pids or 0, self.counters.cpu_us()]

    def finish(self, command: Command) -> None:
        if command.timed_out or command.cancelled:
            command.killed = self.executioner.kill(command)
        command.drain(self.channel)
        command.close()
        del self.commands[command.number]
        if command.stdin_request:
            self.channel.send_error(command.stdin_request, errno.EPIPE, "the command has ended")
        self.tell(command)

    def tell(self, command: Command) -> None:
        fields: list[tuple[bytes, object]] = []
        status = command.status
        if command.ended and os.WIFEXITED(status):
            fields.append((b"x", os.WEXITSTATUS(status)))
        elif command.ended and not command.killed:
            fields.append((b"s", os.WTERMSIG(status)))
        for tag, flag in ((b"T", command.timed_out), (b"C", command.cancelled)):
            if flag:
                fields.append((tag, 1))
        marks = self.marks()
        for index, tag in enumerate((b"O", b"L", b"u")):
            fields.append((tag, marks[index] - command.marks[index]))
        fields.append((b"F", int(any(_full(folder) for folder in self.folders))))
        fields.append((b"R", int(command.report_cut)))
        fields.append((b"w", int((time.monotonic() - command.started) * 1e6)))
        peak = self.counters.read("peak")
        if peak is not None:
            fields.append((b"m", peak))
        fields.append((b"k", command.killed))
        for index, kept in enumerate(command.streams):
            kept.trim()
            fields.append((b"12"[index : index + 1], kept.head))
            fields.append((b"34"[index : index + 1], kept.tail))
            fields.append((b"56"[index : index + 1], kept.dropped))
        fields.append((b"r", command.report))
        self.channel.send(b"D", command.number, fields)


class _AsUser:
    """Files are opened as the user whose they are, when this process is another."""

    def __init__(self, request: Request) -> None:
        self.group, self.user = request.integer(b"g", -1), request.integer(b"u", -1)

    def __enter__(self) -> None:
        if self.group >= 0:
            os.setegid(self.group)
        if self.user >= 0:
            os.seteuid(self.user)

    def __exit__(self, *_: object) -> None:
        if self.user >= 0:
            os.seteuid(os.getuid())
        if self.group >= 0:
            os.setegid(os.getgid())


def _open_regular(path: bytes, flags: int) -> int:
    """Only regular files: opening a pipe or a device could wait for ever."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code))
    return handle


def _full(folder: str) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _prctl(option: int, value: int) -> None:
    try:  # ctypes proper takes 5 ms of CPU to import
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_cdeclfunction(prctl, (option, value, 0, 0, 0))
    except (ImportError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def forbid_inspection() -> None:
    """PR_SET_DUMPABLE off: other processes of the same user can't trace this one or read it."""
    _prctl(4, 0)


def adopt_orphans() -> None:
    """PR_SET_CHILD_SUBREAPER on: what detaches itself becomes our child, as under PID 1."""
    _prctl(36, 1)


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
    if os.getpid() != 1:
        adopt_orphans()
    forbid_inspection()
    supervisor.serve()


if __name__ == "__main__":
    main()
