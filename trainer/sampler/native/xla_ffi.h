/* What of XLA's foreign function interface (its C interface, version 0.x) attention.c needs.
 *
 * XLA promises that structures only grow at their ends, and asks a handler for the version that it
 * was written for before it is ever called: see answer_metadata in attention.c. Fields that are not
 * used here are kept as plain addresses.
 */

#ifndef PATCHGYM_XLA_FFI_H
#define PATCHGYM_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

enum { FFI_MAJOR = 0, FFI_MINOR = 1 };
enum { FFI_U16 = 7, FFI_F32 = 11, FFI_S32 = 4 };
enum { FFI_INVALID_ARGUMENT = 3, FFI_RESOURCE_EXHAUSTED = 8 };
enum { FFI_EXTENSION_METADATA = 1 };

struct ffi_extension {
  size_t size;
  int type;
  struct ffi_extension *next;
};

struct ffi_version {
  size_t size;
  struct ffi_extension *extensions;
  int major, minor;
};

struct ffi_metadata {
  size_t size;
  struct ffi_version version;
  uint32_t traits;
  int64_t state_type;
};

struct ffi_metadata_extension {
  struct ffi_extension base;
  struct ffi_metadata *metadata;
};

struct ffi_buffer {
  size_t size;
  struct ffi_extension *extensions;
  int type;
  void *data;
  int64_t rank;
  int64_t *dims;
};

struct ffi_error_args {
  size_t size;
  struct ffi_extension *extensions;
  const char *message;
  int code;
};

struct ffi_schedule_args {
  size_t size;
  struct ffi_extension *extensions;
  void *context;
  void (*task)(void *);
  void *data;
};

struct ffi_threads_args {
  size_t size;
  struct ffi_extension *extensions;
  void *context;
  int64_t *threads;
};

struct ffi_api {
  size_t size;
  struct ffi_extension *extensions;
  struct ffi_version version;
  void *internal;
  void *(*error_create)(struct ffi_error_args *);
  void *unused[10]; /* messages, registration, streams, types, states, device memory */
  void *(*schedule)(struct ffi_schedule_args *);
  void *(*threads)(struct ffi_threads_args *);
};

struct ffi_operands {
  size_t size;
  struct ffi_extension *extensions;
  int64_t count;
  int *kinds;
  void **buffers;
};

struct ffi_call {
  size_t size;
  struct ffi_extension *extensions;
  const struct ffi_api *api;
  void *context;
  int stage;
  struct ffi_operands arguments, results;
};

#endif
