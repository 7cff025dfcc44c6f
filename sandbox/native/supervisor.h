/* PID 1 of a sandbox, as a static program: it needs nothing of the image that it runs in.
 *
 * It speaks the protocol that ../supervisor.py documents, and makes the same promises. One thread,
 * one poll loop; nothing in it waits for a command, a file or the host.
 *
 *   main.c       start-up, the poll loop, which request goes where
 *   frames.c     bytes: buffers, frames in, frames out
 *   command.c    one command from fork to the frame that tells its end
 *   processes.c  who lives in the container, and who must die at a command's deadline
 *   files.c      reading and writing files for the host
 *   counters.c   the container's own cgroup files
 *   relay.c      another job of the same program: the way out of a network with an allow-list
 */
#ifndef PATCHGYM_SUPERVISOR_H
#define PATCHGYM_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROTOCOL_VERSION 2
#define CHUNK 65536
#define COMMANDS_LIMIT 64          /* commands in progress at one time */
#define REPORT_LIMIT (16u << 20)   /* bytes kept of a report */
#define WINDOW (1 << 20)           /* unacknowledged bytes at which a streamed command waits */
#define IDLE_CAPACITY (1u << 20)   /* a bigger buffer is given back when it is empty */
#define GRACE 50000                /* us to wait for output that background processes hold open */
#define KILL_ROUNDS 400000         /* us of picking processes one by one, before all are killed */
#define KILL_LIMIT 800000          /* us until the answer goes out even if a process is stuck */

typedef int64_t Time;              /* microseconds on the monotonic clock */
Time now(void);
void quit(int status) __attribute__((noreturn));

/* frames.c */
typedef struct {
    uint8_t *data;
    size_t size, capacity, start;
} Buffer;

void buffer_add(Buffer *buffer, const void *data, size_t size);
void buffer_drop(Buffer *buffer, size_t size); /* from the front */
void buffer_free(Buffer *buffer);

typedef struct {
    uint8_t tag;
    const uint8_t *data;
    size_t size;
} Field;

typedef struct {
    uint8_t kind;
    uint32_t id;
    const uint8_t *at, *end; /* the fields not read yet */
} Frame;

bool next_frame(const Buffer *in, Frame *frame, size_t *whole);
bool next_field(Frame *frame, Field *field);
long long number_of(Field field);
char *text_of(Field field); /* with a zero byte at its end; the caller frees it */

void frame_begin(uint8_t kind, uint32_t id);
void frame_bytes(uint8_t tag, const void *data, size_t size);
void frame_number(uint8_t tag, long long number);
void frame_end(void);
void send_error(uint32_t id, int code, const char *message);
size_t unsent(void);
void flush(int sink); /* writes what the host takes without waiting */

/* counters.c */
typedef struct {
    long long ooms, pids, cpu_us;
} Marks;

void counters_open(void);
Marks counters_read(void);
long long peak_memory(void); /* bytes, or -1 */

/* processes.c */
typedef struct {
    pid_t pid, parent, session;
    unsigned long long started; /* clock ticks since boot: tells a reused pid from the first */
} Process;

typedef struct {
    Process *all;
    size_t count;
} Processes;

typedef struct Command Command;

Processes alive(void); /* all but this process and zombies */
void processes_free(Processes *processes);
void reap(Command *commands);
int kill_tree(Command *victim, Command *commands);
void choose_secret(void);
const char *secret(void);

/* command.c */
typedef struct {
    int fd;               /* -1 when closed */
    uint8_t *head, *tail; /* the tail is a ring */
    size_t half, head_size;
    unsigned long long passed; /* bytes that went past the head */
} Stream;

struct Command {
    uint32_t id;
    unsigned long serial; /* in the cookie that its processes carry in their environment */
    pid_t pid;
    int status;
    bool ended, timed_out, cancelled, streaming;
    Time started, deadline, closing; /* 0: none */
    Stream streams[2];
    int report_fd, feed;
    bool report_cut, input_open;
    Buffer report, input;
    long long unacknowledged; /* bytes streamed to the host and not used up there */
    uint32_t input_request; /* an I frame to answer when its bytes are written; 0: none */
    Marks marks;
    Processes before;
    int killed;
    Command *next;
};

Command *command_start(Frame frame);
void command_read(Command *command, int fd);
void command_write(Command *command);
void command_input(Command *command, Frame frame);
bool command_over(const Command *command);
void command_end(Command *command, Command *all);
void command_tell(Command *command, char *const *folders); /* frees it */

/* files.c */
void answer_get(Frame frame);
void answer_put(Frame frame);
bool any_full(char *const *folders);

/* relay.c */
void relay(int source, int sink, int port) __attribute__((noreturn));

/* main.c */
void set_badness(bool child);

#endif
