/* The container's own cgroup files, version 1 or 2, opened once. */
#include "supervisor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *path, *key; /* without a key, the file's first number */
    int fd;
} Counter;

static Counter cpu_ns[] = {{"cpuacct/cpuacct.usage", 0, -1}, {"cpu,cpuacct/cpuacct.usage", 0, -1}};
static Counter cpu_us[] = {{"cpu.stat", "usage_usec", -1}};
static Counter peak[] = {{"memory/memory.max_usage_in_bytes", 0, -1}, {"memory.peak", 0, -1}};
static Counter ooms[] = {{"memory/memory.oom_control", "oom_kill", -1},
                         {"memory.events", "oom_kill", -1}};
static Counter pids[] = {{"pids/pids.events", "max", -1}, {"pids.events", "max", -1}};
#define OPEN(counter) open_all(counter, sizeof counter / sizeof *counter)
#define READ(counter) read_any(counter, sizeof counter / sizeof *counter)

static void open_all(Counter *counter, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s", counter[i].path);
        counter[i].fd = open(path, O_RDONLY | O_CLOEXEC);
    }
}

static long long read_one(const Counter *counter) {
    char text[4096], *rest = text;
    ssize_t size = pread(counter->fd, text, sizeof text - 1, 0);
    if (size <= 0) return -1;
    text[size] = 0;
    if (!counter->key) return atoll(text);
    for (char *line; (line = strsep(&rest, "\n"));) {
        size_t length = strlen(counter->key);
        if (!strncmp(line, counter->key, length) && line[length] == ' ') {
            return atoll(line + length);
        }
    }
    return -1;
}

static long long read_any(const Counter *counter, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (counter[i].fd >= 0) return read_one(&counter[i]);
    }
    return -1;
}

void counters_open(void) {
    OPEN(cpu_ns), OPEN(cpu_us), OPEN(peak), OPEN(ooms), OPEN(pids);
}

Marks counters_read(void) {
    long long nanoseconds = READ(cpu_ns);
    return (Marks){READ(ooms), READ(pids), nanoseconds < 0 ? READ(cpu_us) : nanoseconds / 1000};
}

long long peak_memory(void) { return READ(peak); }
