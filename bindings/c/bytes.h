/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A string of bytes that grows up to a bound. */
#ifndef ENABLE_BYTES_H
#define ENABLE_BYTES_H

#include <stddef.h>

struct bytes {
    /* Ends with a NUL that `length` does not count; NULL while nothing was added. */
    char *data;
    size_t length;
    size_t capacity;
    /* Memory ran out: what was added since is missing. */
    int failed;
};

/* Adds `count` bytes. */
void enable_bytes_add(struct bytes *bytes, const char *data, size_t count);
/* Adds a string. */
void enable_bytes_add_text(struct bytes *bytes, const char *text);
/* Frees the memory and makes the string empty. */
void enable_bytes_clear(struct bytes *bytes);

#endif
