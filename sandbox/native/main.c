/* Start-up, the poll loop, and which request goes where. */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static int source, sink, children, badness;
static char own_badness[16];
static Command *commands;
static size_t running;
static Buffer incoming;

void quit(int status) { _exit(status); } /* PID 1 takes everything with it */

Time now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (Time)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* Keeps commands likelier victims of the OOM killer than PID 1. */
void set_badness(bool child) {
    const char *value = child ? "1000" : own_badness;
    if (badness >= 0 && pwrite(badness, value, strlen(value), 0) < 0) badness = -1;
}

static Command *find(uint32_t id) {
    for (Command *each = commands; each; each = each->next) {
        if (each->id == id) return each;
    }
    return 0;
}

/* I and A: what the host has for, or has had from, a command in progress. */
static void handle_traffic(Frame frame) {
    Frame rest = frame;
    Command *command = 0;
    long long used = 0;
    for (Field field; next_field(&rest, &field);) {
        if (field.tag == 'n') command = find((uint32_t)number_of(field));
        if (field.tag == 'b') used = number_of(field);
    }
    if (frame.kind == 'A') {
        if (command) command->unacknowledged -= used;
    } else if (command) command_input(command, frame);
    else send_error(frame.id, ESRCH, "the command has ended");
}

static void handle(Frame frame) {
    Command *command;
    switch (frame.kind) {
        case 'R':
            if (running == COMMANDS_LIMIT) {
                send_error(frame.id, EAGAIN, "64 commands are in progress already");
                return;
            }
            command = command_start(frame);
            command->next = commands;
            commands = command;
            running++;
            break;
        case 'C':
            command = find(frame.id);
            if (command) command->cancelled = true;
            break;
        case 'I':
        case 'A': handle_traffic(frame); break;
        case 'G': answer_get(frame); break;
        case 'P': answer_put(frame); break;
        default: send_error(frame.id, ENOSYS, "unknown request");
    }
}

/* The end of stdin means that the owner is gone, whatever is running. */
static void listen_to_host(void) {
    static uint8_t chunk[1 << 18];
    ssize_t size = read(source, chunk, sizeof chunk);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (size <= 0) quit(0);
    buffer_add(&incoming, chunk, (size_t)size);
    size_t done = 0, whole;
    for (Frame frame;; done += whole) {
        Buffer rest = {.data = incoming.data + done, .size = incoming.size - done};
        if (!next_frame(&rest, &frame, &whole)) break;
        handle(frame);
    }
    if (done) buffer_drop(&incoming, done);
}

static bool is_due(Command *command, Time time) {
    if (command_over(command) || command->cancelled) return true;
    if (command->ended) { /* background processes may hold its pipes open */
        if (!command->closing) command->closing = time + GRACE;
        return time >= command->closing;
    }
    command->timed_out = command->deadline && time >= command->deadline;
    return command->timed_out;
}

static void finish_what_is_due(char *const *folders) {
    for (Command **place = &commands; *place;) {
        Command *command = *place;
        if (!is_due(command, now())) {
            place = &command->next;
            continue;
        }
        command_end(command, commands);
        *place = command->next;
        running--;
        command_tell(command, folders);
    }
}

static int milliseconds_left(void) {
    Time first = 0;
    for (Command *each = commands; each; each = each->next) {
        Time due = each->ended ? each->closing : each->deadline;
        if (due && (!first || due < first)) first = due;
    }
    Time left = first - now();
    return !first ? -1 : left <= 0 ? 0 : left > 1000000 ? 1000 : (int)(left / 1000 + 1);
}

static void watch(struct pollfd *polled, size_t *count, int fd, short events) {
    if (fd >= 0) polled[(*count)++] = (struct pollfd){fd, events, 0};
}

static void serve_command(Command *command, const struct pollfd *polled, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!polled[i].revents) continue;
        if (polled[i].fd == command->feed) command_write(command);
        else command_read(command, polled[i].fd);
    }
}

static void serve_once(char *const *folders) {
    struct pollfd polled[3 + 4 * COMMANDS_LIMIT];
    size_t count = 0, from[COMMANDS_LIMIT + 1], index = 0;
    watch(polled, &count, source, POLLIN);
    watch(polled, &count, children, POLLIN);
    watch(polled, &count, unsent() ? sink : -1, POLLOUT);
    for (Command *each = commands; each; each = each->next) {
        from[index++] = count;
        if (each->input.size) watch(polled, &count, each->feed, POLLOUT);
        if (each->unacknowledged >= WINDOW) continue; /* the host must use it up first */
        watch(polled, &count, each->streams[0].fd, POLLIN);
        watch(polled, &count, each->streams[1].fd, POLLIN);
        watch(polled, &count, each->report_fd, POLLIN);
    }
    from[index] = count;
    if (poll(polled, count, milliseconds_left()) < 0 && errno != EINTR) quit(1);
    index = 0;
    for (Command *each = commands; each; each = each->next, index++) {
        serve_command(each, polled + from[index], from[index + 1] - from[index]);
    }
    if (polled[1].revents) {
        struct signalfd_siginfo drained[8];
        if (read(children, drained, sizeof drained) > 0) reap(commands);
    }
    if (polled[0].revents) listen_to_host();
    finish_what_is_due(folders);
    flush(sink);
}

static void open_badness(void) {
    /* before this process stops being dumpable: later it may not open it */
    badness = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    ssize_t size = badness < 0 ? 0 : pread(badness, own_badness, sizeof own_badness - 1, 0);
    if (size <= 0) badness = -1;
}

/* The host's pipes move up; 0 to 3 become /dev/null (3 is where a report pipe will go). */
static void move_pipes(void) {
    source = fcntl(0, F_DUPFD_CLOEXEC, 10);
    sink = fcntl(1, F_DUPFD_CLOEXEC, 10);
    int null = open("/dev/null", O_RDWR);
    if (source < 0 || sink < 0) quit(1);
    for (int target = 0; target < 4 && null >= 0; target++) {
        if (target != 2 && target != null) dup2(null, target);
    }
    fcntl(sink, F_SETFL, O_NONBLOCK);
}

int main(int argc, char **argv) {
    move_pipes();
    if (argc == 3 && !strcmp(argv[1], "--relay")) relay(source, sink, atoi(argv[2]));
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, 0);
    children = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (getpid() != 1) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    counters_open();
    open_badness();
    choose_secret();
    /* nobody inside may read this process's memory, or reach its descriptors */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    frame_begin('H', 0);
    frame_number('v', PROTOCOL_VERSION);
    frame_bytes('k', "static", 6);
    frame_end();
    flush(sink);
    for (;;) serve_once(argv + 1);
}
