/* One token's attention for every turn of a launch, over caches that it also writes.
 *
 * A program of XLA calls it once a layer (see native_attention.py), with
 *
 *   query [B, H, D], key and value [B, K, D]   float32, of the token that is read in
 *   last, first [B]                            the token's place, and the first place it sees
 *   keys, values, ... of each bank [R, K, S, D]   float32, or bfloat16 as uint16
 *
 * and gets mixed [B, H, D] back, with the caches, in place. H = K * G: query head h belongs to
 * key head h / G. B is banks times R. Places past a turn's last are never read, so that the work
 * follows what turns hold and not the room that they have.
 *
 * Threads are XLA's own: whichever is free takes the next pair of turn and key head. Nobody waits
 * for a thread that has not begun.
 */

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "xla_ffi.h"

#define MOST_BANKS 1024
#define MOST_SHARE 4 /* query heads of a key head that are worked on at once */
#define LANES 16

#define INLINE static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t wide_bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t narrow_lanes __attribute__((vector_size(2 * LANES)));

struct sizes {
  int64_t rows, kv, share, size, room;
};

struct work {
  struct sizes s;
  int narrow; /* caches are bfloat16 */
  int banks;
  const float *query, *key, *value;
  const int32_t *last, *first;
  void *keys[MOST_BANKS], *values[MOST_BANKS];
  float *mixed;
  atomic_int holders; /* of this memory */
  atomic_long next, done;
  atomic_int failed;
};

/* To the nearest, ties to even. */
INLINE uint16_t narrowed(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* LANES numbers of a cache from `place` on. */
INLINE lanes read_lanes(const void *cache, int64_t place, int narrow) {
  lanes wide;
  if (narrow) {
    narrow_lanes held;
    memcpy(&held, (const uint16_t *)cache + place, sizeof held);
    wide_bits bits = __builtin_convertvector(held, wide_bits) << 16;
    memcpy(&wide, &bits, sizeof wide);
  } else {
    memcpy(&wide, (const float *)cache + place, sizeof wide);
  }
  return wide;
}

INLINE float sum_of(lanes v) {
  typedef float half __attribute__((vector_size(32)));
  typedef float quarter __attribute__((vector_size(16)));
  half h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
  q += __builtin_shufflevector(q, q, 2, 3, 0, 1);
  return q[0] + q[1];
}

INLINE void write_token(void *cache, int64_t place, const float *from, int64_t size, int narrow) {
  for (int64_t d = 0; d < size; d++) {
    if (narrow)
      ((uint16_t *)cache)[place + d] = narrowed(from[d]);
    else
      ((float *)cache)[place + d] = from[d];
  }
}

/* exp(x) for x <= 0, to about 2e-7 of it; 0 where that is less than a float holds. */
INLINE float exponential(float x) {
  float scaled = x * 1.44269504f;
  float whole = floorf(scaled + 0.5f);
  float f = (scaled - whole) * 0.69314718f; /* at most a third, so that six terms do */
  float value = 1.0f / 720;
  value = value * f + 1.0f / 120;
  value = value * f + 1.0f / 24;
  value = value * f + 1.0f / 6;
  value = value * f + 0.5f;
  value = value * f + 1.0f;
  value = value * f + 1.0f;
  int32_t exponent = (int32_t)(whole < -126.0f ? -127.0f : whole) + 127;
  uint32_t bits = (uint32_t)exponent << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return value * power;
}

/* `share` query heads over one key head: scores [share][count] is scratch. */
INLINE void heads(const float *query, const void *keys, const void *values, int64_t begin,
                  int64_t count, int64_t size, const int share, const int narrow, float *scores,
                  float *mixed) {
  float top[MOST_SHARE], total[MOST_SHARE];
  for (int g = 0; g < share; g++) top[g] = -3.0e38f;
  for (int64_t s = 0; s < count; s++) {
    lanes sums[MOST_SHARE] = {{0}};
    for (int64_t d = 0; d < size; d += LANES) {
      lanes k = read_lanes(keys, (begin + s) * size + d, narrow);
      for (int g = 0; g < share; g++) sums[g] += read_lanes(query, g * size + d, 0) * k;
    }
    for (int g = 0; g < share; g++) {
      float sum = sum_of(sums[g]);
      scores[g * count + s] = sum;
      top[g] = sum > top[g] ? sum : top[g];
    }
  }
  for (int g = 0; g < share; g++) {
    float sum = 0;
    for (int64_t s = 0; s < count; s++) {
      float weight = exponential(scores[g * count + s] - top[g]);
      scores[g * count + s] = weight;
      sum += weight;
    }
    total[g] = 1 / sum;
  }
  for (int64_t d = 0; d < size; d += 2 * LANES) {
    const int two = d + LANES < size; /* the size of a head may be odd, in lanes */
    lanes sums[2][MOST_SHARE] = {{{0}}};
    for (int64_t s = 0; s < count; s++) {
      const int64_t place = (begin + s) * size + d;
      lanes v = read_lanes(values, place, narrow);
      lanes next = read_lanes(values, two ? place + LANES : place, narrow);
      for (int g = 0; g < share; g++) {
        sums[0][g] += scores[g * count + s] * v;
        sums[1][g] += scores[g * count + s] * next;
      }
    }
    for (int half = 0; half <= two; half++)
      for (int g = 0; g < share; g++) {
        lanes out = sums[half][g] * total[g];
        memcpy(mixed + g * size + d + half * LANES, &out, sizeof out);
      }
  }
}

/* The compiler makes one loop for each number of heads and each type. */
#define CASE(share, narrow)                                                                   \
  case (share) * 2 + (narrow):                                                                \
    heads(query, keys, values, begin, count, size, share, narrow, scores, mixed);             \
    break;

static void some_heads(const float *query, const void *keys, const void *values, int64_t begin,
                       int64_t count, int64_t size, int share, int narrow, float *scores,
                       float *mixed) {
  switch (share * 2 + narrow) {
    CASE(1, 0) CASE(1, 1) CASE(2, 0) CASE(2, 1) CASE(3, 0) CASE(3, 1) CASE(4, 0) CASE(4, 1)
  }
}

/* One turn and one key head: its token is written, then looked back from. */
static void item(struct work *w, int64_t number, float *scores) {
  struct sizes s = w->s;
  int64_t turn = number / s.kv, head = number % s.kv;
  int64_t bank = turn / s.rows, row = turn % s.rows;
  int64_t last = w->last[turn], first = w->first[turn];
  if (last < 0) last = 0;
  if (last >= s.room) last = s.room - 1;
  if (first < 0) first = 0;
  if (first > last) first = last;
  int64_t width = w->narrow ? 2 : 4, offset = (row * s.kv + head) * s.room * s.size * width;
  char *keys = (char *)w->keys[bank] + offset, *values = (char *)w->values[bank] + offset;
  int64_t token = (turn * s.kv + head) * s.size;
  write_token(keys, last * s.size, w->key + token, s.size, w->narrow);
  write_token(values, last * s.size, w->value + token, s.size, w->narrow);
  for (int64_t g = 0; g < s.share; g += MOST_SHARE) {
    int64_t share = s.share - g < MOST_SHARE ? s.share - g : MOST_SHARE;
    int64_t place = ((turn * s.kv + head) * s.share + g) * s.size;
    some_heads(w->query + place, keys, values, first, last - first + 1, s.size, (int)share,
               w->narrow, scores, w->mixed + place);
  }
}

static void let_go(struct work *w) {
  if (atomic_fetch_sub(&w->holders, 1) == 1) free(w);
}

static void take_items(struct work *w) {
  long items = (long)(w->banks * w->s.rows * w->s.kv);
  if (atomic_load(&w->next) >= items) return;
  float *scores = malloc(sizeof(float) * MOST_SHARE * (size_t)w->s.room);
  if (!scores) atomic_store(&w->failed, 1);
  for (long number; (number = atomic_fetch_add(&w->next, 1)) < items;) {
    if (scores) item(w, number, scores);
    atomic_fetch_add(&w->done, 1);
  }
  free(scores);
}

static void task(void *data) {
  take_items(data);
  let_go(data);
}

static void *error(struct ffi_call *call, int code, const char *message) {
  struct ffi_error_args args = {.size = sizeof args, .message = message, .code = code};
  return call->api->error_create(&args);
}

static int has(const struct ffi_buffer *buffer, int type, int64_t rank) {
  return buffer->type == type && buffer->rank == rank;
}

/* What is wrong with the operands; NULL when they are as the top of this file says. */
static const char *read_operands(struct ffi_call *call, struct work *w) {
  struct ffi_buffer **in = (struct ffi_buffer **)call->arguments.buffers;
  struct ffi_buffer **out = (struct ffi_buffer **)call->results.buffers;
  int64_t caches = call->arguments.count - 5;
  if (caches < 2 || caches % 2 || caches / 2 > MOST_BANKS || call->results.count != 1 + caches)
    return "attention: a wrong number of operands";
  int type = in[5]->type;
  if (!has(in[0], FFI_F32, 3) || !has(in[1], FFI_F32, 3) || !has(in[2], FFI_F32, 3) ||
      !has(in[3], FFI_S32, 1) || !has(in[4], FFI_S32, 1) || (type != FFI_F32 && type != FFI_U16))
    return "attention: operands of a wrong type";
  w->narrow = type == FFI_U16;
  w->banks = (int)(caches / 2);
  int64_t *dims = in[5]->rank == 4 ? in[5]->dims : NULL;
  if (!dims) return "attention: a cache is not [R, K, S, D]";
  w->s = (struct sizes){.rows = dims[0], .kv = dims[1], .room = dims[2], .size = dims[3]};
  w->s.share = w->s.kv ? in[0]->dims[1] / w->s.kv : 0;
  int64_t turns = w->banks * w->s.rows;
  if (w->s.size % LANES || w->s.share < 1 || w->s.share * w->s.kv != in[0]->dims[1] ||
      in[0]->dims[0] != turns || in[0]->dims[2] != w->s.size || in[3]->dims[0] != turns)
    return "attention: operands of shapes that don't fit";
  for (int64_t i = 0; i < caches; i++) {
    struct ffi_buffer *from = in[5 + i], *to = out[1 + i];
    if (!has(from, type, 4) || memcmp(from->dims, dims, 4 * sizeof *dims))
      return "attention: caches of several shapes";
    if (to->data != from->data) { /* XLA had a use for the old one */
      size_t count = (size_t)(dims[0] * dims[1] * dims[2] * dims[3]);
      memcpy(to->data, from->data, count * (w->narrow ? 2 : 4));
    }
    (i % 2 ? w->values : w->keys)[i / 2] = to->data;
  }
  w->query = in[0]->data, w->key = in[1]->data, w->value = in[2]->data;
  w->last = in[3]->data, w->first = in[4]->data;
  w->mixed = out[0]->data;
  return NULL;
}

/* XLA asks for the version first, with a call that has no operands. */
static int answer_metadata(struct ffi_call *call) {
  struct ffi_extension *extension = call->extensions;
  if (!extension || extension->type != FFI_EXTENSION_METADATA) return 0;
  struct ffi_metadata *metadata = ((struct ffi_metadata_extension *)extension)->metadata;
  metadata->version.major = FFI_MAJOR;
  metadata->version.minor = FFI_MINOR;
  metadata->traits = 0;
  return 1;
}

void *patchgym_attend(struct ffi_call *call) {
  if (answer_metadata(call)) return NULL;
  struct work *w = calloc(1, sizeof *w);
  if (!w) return error(call, FFI_RESOURCE_EXHAUSTED, "attention: out of memory");
  atomic_init(&w->holders, 1);
  const char *wrong = read_operands(call, w);
  if (wrong) {
    free(w);
    return error(call, FFI_INVALID_ARGUMENT, wrong);
  }
  int64_t threads = 1;
  struct ffi_threads_args asked = {
      .size = sizeof asked, .context = call->context, .threads = &threads};
  if (call->api->threads(&asked)) threads = 1;
  for (int64_t i = 1; i < threads; i++) {
    struct ffi_schedule_args more = {
        .size = sizeof more, .context = call->context, .task = task, .data = w};
    atomic_fetch_add(&w->holders, 1);
    if (call->api->schedule(&more)) {
      let_go(w);
      break;
    }
  }
  take_items(w);
  long items = (long)(w->banks * w->s.rows * w->s.kv);
  while (atomic_load(&w->done) < items) sched_yield(); /* others are at their last one */
  int failed = atomic_load(&w->failed);
  let_go(w);
  return failed ? error(call, FFI_RESOURCE_EXHAUSTED, "attention: out of memory") : NULL;
}
