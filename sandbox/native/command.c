/* One command, from fork to the frame that tells its end. */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct {
    char **argv, **variables, *folder;
    size_t words, changes;
    long long uid, gid; /* -1: as PID 1 */
    bool report;
} Plan;

static char **grown(char **list, size_t count, char *item) {
    list = realloc(list, (count + 2) * sizeof *list);
    if (!list) quit(1);
    list[count] = item;
    list[count + 1] = 0;
    return list;
}

static void add_word(Plan *plan, char *word) {
    plan->argv = grown(plan->argv, plan->words++, word);
}

static void add_variable(Plan *plan, char *variable) {
    plan->variables = grown(plan->variables, plan->changes++, variable);
}

static void stream_open(Stream *stream, long long limit) {
    stream->fd = -1;
    stream->half = limit > 1 ? (size_t)limit / 2 : 1;
}

static void parse(Frame frame, Command *command, Plan *plan) {
    long long limit = CHUNK, milliseconds = 0;
    for (Field field; next_field(&frame, &field);) switch (field.tag) {
        case 'a': add_word(plan, text_of(field)); break;
        case 'c':
            add_word(plan, strdup(access("/bin/bash", X_OK) ? "/bin/sh" : "/bin/bash"));
            add_word(plan, strdup("-c"));
            add_word(plan, text_of(field));
            break;
        case 'e': add_variable(plan, text_of(field)); break;
        case 'd': free(plan->folder), plan->folder = text_of(field); break;
        case 'i': buffer_add(&command->input, field.data, field.size); break;
        case 't': milliseconds = number_of(field); break;
        case 'l': limit = number_of(field); break;
        case 'p': plan->report = number_of(field) == 1; break;
        case 's': command->streaming = number_of(field) == 1; break;
        case 'w': command->input_open = number_of(field) == 1; break;
        case 'u': plan->uid = number_of(field); break;
        case 'g': plan->gid = number_of(field); break;
    }
    for (int i = 0; i < 2; i++) stream_open(&command->streams[i], limit);
    command->deadline = milliseconds ? command->started + 1000 * milliseconds : 0;
}

static void plan_free(Plan *plan) {
    for (size_t i = 0; i < plan->words; i++) free(plan->argv[i]);
    for (size_t i = 0; i < plan->changes; i++) free(plan->variables[i]);
    free(plan->argv), free(plan->variables), free(plan->folder);
}

/* In the child: become the command, or say why not and exit as a shell would. */
static void become(const Plan *plan, int ends[4]) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    for (int i = 0; i < 3; i++) dup2(ends[i], i);
    if (ends[3] >= 0) dup2(ends[3], 3);
    else close(3);
    setsid();
    for (size_t i = 0; i < plan->changes; i++) putenv(plan->variables[i]);
    if ((plan->gid < 0 || (!setgroups(0, 0) && !setgid((gid_t)plan->gid))) &&
        (plan->uid < 0 || !setuid((uid_t)plan->uid)) &&
        !chdir(plan->folder ? plan->folder : "/")) {
        execvp(plan->argv[0], plan->argv);
    }
    int problem = errno;
    dprintf(2, "patchgym: %s: %s\n", plan->argv[0],
            problem == ENOENT ? "command or folder not found" : strerror(problem));
    _exit(problem == ENOENT ? 127 : 126);
}

static bool open_pipes(int pipes[4][2], int count) {
    for (int i = 0; i < 4; i++) pipes[i][0] = pipes[i][1] = -1;
    for (int i = 0; i < count; i++) {
        if (pipe2(pipes[i], O_CLOEXEC)) return false;
    }
    return true;
}

static void close_pipes(int pipes[4][2]) {
    for (int i = 0; i < 4; i++) {
        for (int end = 0; end < 2; end++) {
            if (pipes[i][end] >= 0) close(pipes[i][end]);
        }
    }
}

static void keep(Stream *stream, const uint8_t *data, size_t size) {
    size_t room = stream->half - stream->head_size;
    if (room) {
        size_t taken = size < room ? size : room;
        if (!stream->head && !(stream->head = malloc(stream->half))) quit(1);
        memcpy(stream->head + stream->head_size, data, taken);
        stream->head_size += taken;
        data += taken, size -= taken;
    }
    if (!size) return;
    if (!stream->tail && !(stream->tail = malloc(stream->half))) quit(1);
    if (size > stream->half) { /* only the end of it can stay */
        stream->passed += size - stream->half;
        data += size - stream->half;
        size = stream->half;
    }
    size_t at = stream->passed % stream->half;
    size_t first = size < stream->half - at ? size : stream->half - at;
    memcpy(stream->tail + at, data, first);
    memcpy(stream->tail, data + first, size - first);
    stream->passed += size;
}

static void not_started(Command *command, const char *why) {
    char text[160];
    int size = snprintf(text, sizeof text, "patchgym: can't start a process: %s\n", why);
    keep(&command->streams[1], (const uint8_t *)text, (size_t)size);
    command->ended = true;
    command->status = 126 << 8;
    command->input_open = false;
}

static void launch(Command *command, const Plan *plan) {
    int pipes[4][2];
    pid_t pid = -1;
    int problem = 0;
    if (open_pipes(pipes, plan->report ? 4 : 3)) {
        set_badness(true);
        pid = fork();
        problem = errno;
        if (!pid) become(plan, (int[4]){pipes[0][0], pipes[1][1], pipes[2][1], pipes[3][1]});
        set_badness(false);
    } else {
        problem = errno;
    }
    if (pid < 0) {
        close_pipes(pipes);
        not_started(command, strerror(problem));
        return;
    }
    command->pid = pid;
    command->feed = pipes[0][1];
    command->streams[0].fd = pipes[1][0];
    command->streams[1].fd = pipes[2][0];
    command->report_fd = pipes[3][0];
    int ours[] = {command->feed, pipes[1][0], pipes[2][0], pipes[3][0]};
    for (int i = 0; i < 4; i++) {
        if (ours[i] >= 0) fcntl(ours[i], F_SETFL, O_NONBLOCK);
    }
    close(pipes[0][0]);
    for (int i = 1; i < 4; i++) {
        if (pipes[i][1] >= 0) close(pipes[i][1]);
    }
    if (!command->input.size && !command->input_open) close(command->feed), command->feed = -1;
}

Command *command_start(Frame frame) {
    static unsigned long serials;
    Command *command = calloc(1, sizeof *command);
    if (!command) quit(1);
    Plan plan = {.uid = -1, .gid = -1};
    command->id = frame.id;
    command->serial = ++serials;
    command->feed = command->report_fd = -1;
    command->before = alive();
    command->marks = counters_read();
    command->started = now();
    parse(frame, command, &plan);
    char *cookie;
    if (asprintf(&cookie, "PATCHGYM_COMMAND=%s-%lu", secret(), command->serial) < 0) quit(1);
    add_variable(&plan, cookie);
    if (plan.report) add_variable(&plan, strdup("PATCHGYM_REPORT_FD=3"));
    if (plan.words) launch(command, &plan);
    else not_started(command, "no command was given");
    plan_free(&plan);
    return command;
}

static void take(Command *command, int index, const uint8_t *data, size_t size) {
    if (index == 2) {
        bool fits = command->report.size + size <= REPORT_LIMIT;
        if (fits) buffer_add(&command->report, data, size);
        else command->report_cut = true;
        return;
    }
    keep(&command->streams[index], data, size);
    if (command->streaming) {
        command->unacknowledged += (long long)size;
        frame_begin('O', command->id);
        frame_number('n', index + 1);
        frame_bytes('b', data, size);
        frame_end();
    }
}

void command_read(Command *command, int fd) {
    static uint8_t chunk[CHUNK];
    int *places[] = {&command->streams[0].fd, &command->streams[1].fd, &command->report_fd};
    for (int index = 0; index < 3; index++) {
        if (*places[index] != fd) continue;
        ssize_t size = read(fd, chunk, sizeof chunk);
        if (size > 0) take(command, index, chunk, (size_t)size);
        else if (!size || (errno != EAGAIN && errno != EINTR)) close(fd), *places[index] = -1;
        return;
    }
}

static void close_feed(Command *command) {
    if (command->feed >= 0) close(command->feed);
    command->feed = -1;
}

void command_write(Command *command) {
    size_t size = command->input.size < CHUNK ? command->input.size : CHUNK;
    ssize_t wrote = size ? write(command->feed, command->input.data, size) : 0;
    if (wrote < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool broken = wrote < 0;
    buffer_drop(&command->input, broken ? command->input.size : (size_t)wrote);
    if (command->input.size) return;
    if (command->input_request) {
        if (broken) send_error(command->input_request, EPIPE, "the command does not read its stdin");
        else frame_begin('K', command->input_request), frame_end();
        command->input_request = 0;
    }
    if (broken || !command->input_open) close_feed(command);
}

void command_input(Command *command, Frame frame) {
    uint32_t request = frame.id;
    for (Field field; next_field(&frame, &field);) {
        if (field.tag == 'i') buffer_add(&command->input, field.data, field.size);
        if (field.tag == 'z' && number_of(field) == 1) command->input_open = false;
    }
    if (command->feed < 0 || command->input_request) {
        buffer_drop(&command->input, command->input.size);
        send_error(request, EPIPE, "the command does not read its stdin");
        return;
    }
    command->input_request = request;
    command_write(command);
}

bool command_over(const Command *command) {
    return command->ended && command->streams[0].fd < 0 && command->streams[1].fd < 0 &&
           command->report_fd < 0;
}

/* What was written before the end; a pipe holds no more than 16 chunks. */
static void drain(Command *command) {
    int fds[] = {command->streams[0].fd, command->streams[1].fd, command->report_fd};
    for (int i = 0; i < 3; i++) {
        for (int round = 0; fds[i] >= 0 && round < 16; round++) command_read(command, fds[i]);
        if (i < 2 && command->streams[i].fd >= 0) close(command->streams[i].fd);
    }
    if (command->report_fd >= 0) close(command->report_fd);
}

static void tell_stream(const Stream *stream, int index) {
    size_t size = stream->passed < stream->half ? (size_t)stream->passed : stream->half;
    size_t at = stream->passed > stream->half ? stream->passed % stream->half : 0;
    Buffer tail = {0};
    buffer_add(&tail, stream->tail ? stream->tail + at : (uint8_t *)"", size - at);
    buffer_add(&tail, stream->tail ? stream->tail : (uint8_t *)"", at);
    frame_bytes((uint8_t)('1' + index), stream->head, stream->head_size);
    frame_bytes((uint8_t)('3' + index), tail.data, tail.size);
    frame_number((uint8_t)('5' + index), (long long)(stream->passed - size));
    buffer_free(&tail);
}

static void tell(const Command *command, char *const *folders) {
    Marks marks = counters_read();
    frame_begin('D', command->id);
    if (command->ended && WIFEXITED(command->status)) {
        frame_number('x', WEXITSTATUS(command->status));
    } else if (command->ended && !command->killed) {
        frame_number('s', WTERMSIG(command->status));
    }
    if (command->timed_out) frame_number('T', 1);
    if (command->cancelled) frame_number('C', 1);
    frame_number('O', marks.ooms - command->marks.ooms);
    frame_number('L', marks.pids - command->marks.pids);
    frame_number('F', any_full(folders));
    frame_number('R', command->report_cut);
    frame_number('w', now() - command->started);
    frame_number('u', marks.cpu_us - command->marks.cpu_us);
    if (peak_memory() >= 0) frame_number('m', peak_memory());
    frame_number('k', command->killed);
    for (int i = 0; i < 2; i++) tell_stream(&command->streams[i], i);
    frame_bytes('r', command->report.data, command->report.size);
    frame_end();
}

/* Nothing of it that must die lives on, and all that it wrote is here. */
void command_end(Command *command, Command *all) {
    if (command->timed_out || command->cancelled) command->killed = kill_tree(command, all);
    drain(command);
    close_feed(command);
}

void command_tell(Command *command, char *const *folders) {
    if (command->input_request) {
        send_error(command->input_request, EPIPE, "the command has ended");
    }
    tell(command, folders);
    for (int i = 0; i < 2; i++) free(command->streams[i].head), free(command->streams[i].tail);
    buffer_free(&command->report);
    buffer_free(&command->input);
    processes_free(&command->before);
    free(command);
}
