/* Who lives in the container, and who must die at a command's deadline.
 *
 * A process belongs to the command under whose main process it hangs. One that detached itself is
 * known by its session, or by the cookie in the environment that it was born with. When nothing
 * but the command itself is alive, none of that matters: everything dies at one stroke.
 */
#include "supervisor.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIDS_LIMIT (1 << 22) /* the kernel's own */

static char cookie_secret[33];

void choose_secret(void) {
    uint8_t noise[16];
    if (getrandom(noise, sizeof noise, 0) != sizeof noise) quit(1);
    for (int i = 0; i < 16; i++) snprintf(cookie_secret + 2 * i, 3, "%02x", noise[i]);
}

const char *secret(void) { return cookie_secret; }

static bool read_process(pid_t pid, Process *process) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0) return false;
    text[size] = 0;
    char *rest = strrchr(text, ')'); /* a name may hold blanks and brackets */
    char state;
    int parent, group, session;
    if (!rest || sscanf(rest + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4 ||
        state == 'Z' || state == 'X') {
        return false;
    }
    for (int field = 3; field < 22 && rest; field++) rest = strchr(rest + 1, ' ');
    *process = (Process){pid, parent, session, rest ? strtoull(rest, 0, 10) : 0};
    return true;
}

static const Process *find(const Processes *processes, pid_t pid) {
    for (size_t i = 0; i < processes->count; i++) {
        if (processes->all[i].pid == pid) return &processes->all[i];
    }
    return 0;
}

/* Outside a PID namespace of its own (the local fake), only its descendants are its business. */
static void keep_descendants(Processes *processes) {
    Processes kept = {malloc((processes->count + 1) * sizeof(Process)), 0};
    if (!kept.all) quit(1);
    for (size_t i = 0; i < processes->count; i++) {
        const Process *each = &processes->all[i];
        while (each && each->parent != getpid()) each = find(processes, each->parent);
        if (each) kept.all[kept.count++] = processes->all[i];
    }
    processes_free(processes);
    *processes = kept;
}

Processes alive(void) {
    static DIR *folder;
    Processes found = {0};
    size_t capacity = 0;
    if (!folder) folder = opendir("/proc");
    else rewinddir(folder);
    if (!folder) return found;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        pid_t pid = atoi(entry->d_name);
        Process process;
        if (pid == getpid() || !read_process(pid, &process)) continue;
        if (found.count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            found.all = realloc(found.all, capacity * sizeof *found.all);
            if (!found.all) quit(1);
        }
        found.all[found.count++] = process;
    }
    if (getpid() != 1) keep_descendants(&found);
    return found;
}

void processes_free(Processes *processes) {
    free(processes->all);
    *processes = (Processes){0};
}

/* The only place that waits for children, so that no exit status is lost. */
void reap(Command *commands) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (Command *each = commands; each; each = each->next) {
            if (each->pid == pid && !each->ended) each->ended = true, each->status = status;
        }
    }
}

/* The serial of the command whose cookie a process carries; 0 when it shows none of ours. */
static unsigned long cookie_of(pid_t pid) {
    static char text[1 << 17];
    char path[32], mark[64];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    int length = snprintf(mark, sizeof mark, "PATCHGYM_COMMAND=%s-", cookie_secret);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    unsigned long serial = 0;
    size_t size = 0;
    for (ssize_t got; !serial && (got = read(fd, text + size, sizeof text - 1 - size)) > 0;) {
        size += (size_t)got;
        text[size] = 0;
        const char *found = memmem(text, size, mark, (size_t)length);
        /* a cookie cut by the buffer's end is read again with what follows it */
        if (found && (size_t)(found - text) + 96 < sizeof text) serial = strtoul(found + length, 0, 10);
        if (size == sizeof text - 1) memmove(text, text + size - 96, 96), size = 96;
    }
    close(fd);
    return serial;
}

static bool was_there(const Command *victim, const Process *process) {
    const Process *then = find(&victim->before, process->pid);
    return then && then->started == process->started;
}

static bool is_spared(const Command *victim, const Command *commands, const Processes *living,
                      const Process *process) {
    for (const Process *each = process; each; each = find(living, each->parent)) {
        if (each->pid == victim->pid) return false;
        if (was_there(victim, each)) return true;
        for (const Command *other = commands; other; other = other->next) {
            if (other != victim && !other->ended && other->pid == each->pid) return true;
        }
    }
    for (const Command *other = commands; other; other = other->next) {
        if (other != victim && other->pid == process->session) return true;
    }
    unsigned long serial = cookie_of(process->pid);
    return serial && serial != victim->serial;
}

static bool has_company(const Command *victim, const Command *commands, const Processes *living) {
    for (const Command *other = commands; other; other = other->next) {
        if (other != victim && !other->ended) return true;
    }
    for (size_t i = 0; i < living->count; i++) {
        if (was_there(victim, &living->all[i])) return true;
    }
    return false;
}

/* SIGKILL all that the victim started, however it detached itself; returns how many. */
int kill_tree(Command *victim, Command *commands) {
    uint8_t *seen = calloc(PIDS_LIMIT / 8, 1);
    if (!seen) quit(1);
    int killed = 0;
    for (Time started = now();; usleep(1000)) {
        reap(commands);
        Processes living = alive();
        bool company = has_company(victim, commands, &living);
        size_t targets = 0;
        for (size_t i = 0; i < living.count; i++) {
            pid_t pid = living.all[i].pid;
            if (company && is_spared(victim, commands, &living, &living.all[i])) continue;
            targets++;
            if (!(seen[pid / 8] >> pid % 8 & 1)) seen[pid / 8] |= (uint8_t)(1 << pid % 8), killed++;
            if (company || getpid() != 1) kill(pid, SIGKILL);
        }
        processes_free(&living);
        if (!targets || now() - started > KILL_LIMIT) break;
        /* at one stroke, which a fork bomb can't outrun */
        if (getpid() == 1 && (!company || now() - started > KILL_ROUNDS)) kill(-1, SIGKILL);
    }
    free(seen);
    return killed;
}
