/* Bytes: growing buffers, and frames in and out of them. */
#include "supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Buffer out;
static size_t sent, opened; /* how far `out` went to the host; where the open frame starts */

/* `data` is where the live bytes begin, `start` bytes into what was allocated. */

static void to_the_front(Buffer *buffer) {
    memmove(buffer->data - buffer->start, buffer->data, buffer->size);
    buffer->data -= buffer->start;
    buffer->capacity += buffer->start;
    buffer->start = 0;
}

void buffer_add(Buffer *buffer, const void *data, size_t size) {
    if (buffer->size + size > buffer->capacity) {
        if (buffer->start) to_the_front(buffer);
        size_t capacity = buffer->capacity ? buffer->capacity : 4096;
        while (capacity < buffer->size + size) capacity *= 2;
        buffer->data = realloc(buffer->data, capacity);
        if (!buffer->data) quit(1);
        buffer->capacity = capacity;
    }
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

void buffer_free(Buffer *buffer) {
    if (buffer->data) free(buffer->data - buffer->start);
    *buffer = (Buffer){0};
}

void buffer_drop(Buffer *buffer, size_t size) {
    buffer->data += size;
    buffer->start += size;
    buffer->size -= size;
    buffer->capacity -= size;
    if (!buffer->size && buffer->start + buffer->capacity > IDLE_CAPACITY) buffer_free(buffer);
    else if (buffer->start > buffer->size) to_the_front(buffer); /* each byte moves twice at most */
}

static uint32_t big_endian(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big_endian(uint8_t *at, uint32_t number) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(number >> (24 - 8 * i));
}

bool next_frame(const Buffer *in, Frame *frame, size_t *whole) {
    if (in->size < 4) return false;
    size_t length = big_endian(in->data);
    if (length < 5) quit(1); /* not our protocol */
    if (in->size < 4 + length) return false;
    *whole = 4 + length;
    frame->kind = in->data[4];
    frame->id = big_endian(in->data + 5);
    frame->at = in->data + 9;
    frame->end = in->data + *whole;
    return true;
}

bool next_field(Frame *frame, Field *field) {
    if (frame->end - frame->at < 5) return false;
    field->tag = frame->at[0];
    field->size = big_endian(frame->at + 1);
    field->data = frame->at + 5;
    if (field->size > (size_t)(frame->end - field->data)) return false;
    frame->at = field->data + field->size;
    return true;
}

char *text_of(Field field) {
    char *text = malloc(field.size + 1);
    if (!text) quit(1);
    memcpy(text, field.data, field.size);
    text[field.size] = 0;
    return text;
}

long long number_of(Field field) {
    char digits[24] = {0};
    memcpy(digits, field.data, field.size < 23 ? field.size : 23);
    return atoll(digits);
}

void frame_begin(uint8_t kind, uint32_t id) {
    uint8_t start[9] = {0, 0, 0, 0, kind};
    put_big_endian(start + 5, id);
    opened = out.size;
    buffer_add(&out, start, sizeof start);
}

void frame_bytes(uint8_t tag, const void *data, size_t size) {
    uint8_t start[5] = {tag};
    put_big_endian(start + 1, (uint32_t)size);
    buffer_add(&out, start, sizeof start);
    if (size) buffer_add(&out, data, size);
}

void frame_number(uint8_t tag, long long number) {
    char digits[24];
    frame_bytes(tag, digits, (size_t)snprintf(digits, sizeof digits, "%lld", number));
}

void frame_end(void) {
    put_big_endian(out.data + opened, (uint32_t)(out.size - opened - 4));
}

void send_error(uint32_t id, int code, const char *message) {
    frame_begin('E', id);
    frame_number('n', code);
    frame_bytes('m', message, strlen(message));
    frame_end();
}

size_t unsent(void) { return out.size - sent; }

void flush(int sink) {
    while (unsent()) {
        ssize_t wrote = write(sink, out.data + sent, unsent());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && errno == EAGAIN) return;
        if (wrote < 0) quit(0); /* the owner is gone */
        sent += (size_t)wrote;
    }
    buffer_drop(&out, sent);
    sent = 0;
}
