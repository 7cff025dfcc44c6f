/* The holder of a slot's network as a way out of it: connections to a port of the loopback
 * interface go, as frames over stdin and stdout, to the owner, which decides what becomes of them.
 * So a sandbox with an allow-list has no network device but the loopback, on any Docker host.
 *
 *   relay -> owner   N a connection came    B b bytes   X the client's end   A b bytes written
 *   owner -> relay                          B b bytes   X the owner's end    A b bytes used up
 *
 * The frame's id is the connection's. Each side sends at most a window ahead of the other's A.
 */
#include "supervisor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_LIMIT 128

typedef struct {
    int fd; /* -1: a free place */
    uint32_t id;
    Buffer pending;           /* for the client */
    long long unacknowledged; /* from the client, not used up by the owner */
    bool client_ended, owner_ended;
} Connection;

static Connection connections[CONNECTIONS_LIMIT];
static Buffer arrived;

static void tell(uint8_t kind, uint32_t id) {
    frame_begin(kind, id);
    frame_end();
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 64)) {
        quit(1);
    }
    return fd;
}

static Connection *find(uint32_t id) {
    for (int i = 0; i < CONNECTIONS_LIMIT; i++) {
        if (connections[i].fd >= 0 && connections[i].id == id) return &connections[i];
    }
    return 0;
}

static void drop(Connection *connection) {
    close(connection->fd);
    buffer_free(&connection->pending);
    *connection = (Connection){.fd = -1};
}

static void take_client(int listener) {
    static uint32_t ids;
    int fd = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    for (int i = 0; i < CONNECTIONS_LIMIT; i++) {
        if (connections[i].fd >= 0) continue;
        connections[i] = (Connection){.fd = fd, .id = ++ids};
        tell('N', ids);
        return;
    }
    close(fd);
}

static void hang_up(Connection *connection) {
    if (!connection->client_ended) tell('X', connection->id);
    drop(connection);
}

static void read_client(Connection *connection) {
    static uint8_t chunk[CHUNK];
    ssize_t size = read(connection->fd, chunk, sizeof chunk);
    if (size > 0) {
        frame_begin('B', connection->id);
        frame_bytes('b', chunk, (size_t)size);
        frame_end();
        connection->unacknowledged += size;
    } else if (!size) {
        connection->client_ended = true;
        tell('X', connection->id);
        if (connection->owner_ended && !connection->pending.size) drop(connection);
    } else if (errno != EAGAIN && errno != EINTR) {
        hang_up(connection);
    }
}

static void write_client(Connection *connection) {
    ssize_t size = connection->pending.size;
    if (size) size = write(connection->fd, connection->pending.data, connection->pending.size);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size < 0) {
        hang_up(connection);
        return;
    }
    buffer_drop(&connection->pending, (size_t)size);
    if (size) {
        frame_begin('A', connection->id);
        frame_number('b', size);
        frame_end();
    }
    if (!connection->pending.size && connection->owner_ended) {
        if (connection->client_ended) drop(connection);
        else shutdown(connection->fd, SHUT_WR);
    }
}

static void obey(Frame frame) {
    Connection *connection = find(frame.id);
    if (!connection) return;
    Field data = {0};
    next_field(&frame, &data);
    if (frame.kind == 'A') connection->unacknowledged -= number_of(data);
    if (frame.kind == 'B') buffer_add(&connection->pending, data.data, data.size);
    if (frame.kind == 'X') connection->owner_ended = true;
    if (frame.kind != 'A') write_client(connection);
}

static void listen_to_owner(int source) {
    static uint8_t chunk[1 << 17];
    ssize_t size = read(source, chunk, sizeof chunk);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (size <= 0) quit(0);
    buffer_add(&arrived, chunk, (size_t)size);
    size_t done = 0, whole;
    for (Frame frame;; done += whole) {
        Buffer rest = {.data = arrived.data + done, .size = arrived.size - done};
        if (!next_frame(&rest, &frame, &whole)) break;
        obey(frame);
    }
    if (done) buffer_drop(&arrived, done);
}

static short wanted(const Connection *connection) {
    bool reads = !connection->client_ended && connection->unacknowledged < WINDOW;
    return (short)((reads ? POLLIN : 0) | (connection->pending.size ? POLLOUT : 0));
}

void relay(int source, int sink, int port) {
    int listener = listen_on(port);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < CONNECTIONS_LIMIT; i++) connections[i].fd = -1;
    for (;;) {
        struct pollfd polled[3 + CONNECTIONS_LIMIT];
        int owners[3 + CONNECTIONS_LIMIT];
        nfds_t count = 3;
        polled[0] = (struct pollfd){source, POLLIN, 0};
        polled[1] = (struct pollfd){listener, POLLIN, 0};
        polled[2] = (struct pollfd){unsent() ? sink : -1, POLLOUT, 0};
        for (int i = 0; i < CONNECTIONS_LIMIT; i++) {
            if (connections[i].fd < 0 || !wanted(&connections[i])) continue;
            owners[count] = i;
            polled[count++] = (struct pollfd){connections[i].fd, wanted(&connections[i]), 0};
        }
        if (poll(polled, count, -1) < 0 && errno != EINTR) quit(1);
        for (nfds_t i = 3; i < count; i++) {
            Connection *connection = &connections[owners[i]];
            if (polled[i].revents & POLLOUT) write_client(connection);
            if (connection->fd == polled[i].fd && polled[i].revents & ~POLLOUT) {
                read_client(connection);
            }
        }
        if (polled[1].revents) take_client(listener);
        if (polled[0].revents) listen_to_owner(source);
        flush(sink);
    }
}
