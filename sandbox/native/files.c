/* Files for the host. Only regular ones: opening a pipe or a device could wait for ever. */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct {
    char *path;
    Field data;
    long long offset, length, mode, uid, gid; /* -1: leave it */
    bool append;
} Request;

static Request parse(Frame frame) {
    Request request = {.mode = -1, .uid = -1, .gid = -1};
    for (Field field; next_field(&frame, &field);) switch (field.tag) {
        case 'f': free(request.path), request.path = text_of(field); break;
        case 'b': request.data = field; break;
        case 'o': request.offset = number_of(field); break;
        case 'l': request.length = number_of(field); break;
        case 'a': request.append = number_of(field) == 1; break;
        case 'u': request.uid = number_of(field); break;
        case 'g': request.gid = number_of(field); break;
        case 'm': { char *text = text_of(field); request.mode = strtol(text, 0, 8); free(text); }
    }
    return request;
}

/* As the user whose files they are, when PID 1 is another; back as PID 1 with -1. */
static void become(long long uid, long long gid) {
    setfsgid((gid_t)(gid < 0 ? getegid() : gid));
    setfsuid((uid_t)(uid < 0 ? geteuid() : uid));
}

static int open_regular(const char *path, int flags) {
    int fd = path ? open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666) : -1;
    struct stat facts;
    if (fd >= 0 && (fstat(fd, &facts) || !S_ISREG(facts.st_mode))) {
        close(fd);
        errno = S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    return fd;
}

void answer_get(Frame frame) {
    Request request = parse(frame);
    become(request.uid, request.gid);
    int fd = open_regular(request.path, O_RDONLY);
    become(-1, -1);
    if (fd < 0) {
        send_error(frame.id, errno, strerror(errno));
    } else {
        uint8_t *data = malloc((size_t)request.length + 1);
        if (!data) quit(1);
        ssize_t size = pread(fd, data, (size_t)request.length, request.offset);
        if (size < 0) {
            send_error(frame.id, errno, strerror(errno));
        } else {
            frame_begin('F', frame.id);
            frame_bytes('b', data, (size_t)size);
            frame_end();
        }
        free(data);
        close(fd);
    }
    free(request.path);
}

static void make_parents(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777); /* it may be there already; if not, open() will say why */
        *slash = '/';
    }
}

static int write_all(int fd, Field data) {
    while (data.size) {
        ssize_t wrote = write(fd, data.data, data.size);
        if (wrote < 0) return -1;
        data.data += wrote;
        data.size -= (size_t)wrote;
    }
    return 0;
}

void answer_put(Frame frame) {
    Request request = parse(frame);
    become(request.uid, request.gid);
    if (request.path && !request.append) make_parents(request.path);
    int fd = open_regular(request.path,
                          O_WRONLY | O_CREAT | (request.append ? O_APPEND : O_TRUNC));
    become(-1, -1);
    if (fd < 0 || write_all(fd, request.data) ||
        (request.mode >= 0 && fchmod(fd, (mode_t)request.mode))) {
        send_error(frame.id, errno, strerror(errno));
    } else {
        frame_begin('K', frame.id);
        frame_end();
    }
    if (fd >= 0) close(fd);
    free(request.path);
}

bool any_full(char *const *folders) {
    struct statvfs facts;
    for (; *folders; folders++) {
        if (!statvfs(*folders, &facts) && !facts.f_bavail) return true;
    }
    return false;
}
