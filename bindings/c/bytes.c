/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

void enable_bytes_add(struct bytes *bytes, const char *data, size_t count)
{
    if (bytes->failed || count > (size_t)-1 / 4 - bytes->length) {
        bytes->failed = 1;
        return;
    }
    if (bytes->capacity < bytes->length + count + 1) {
        size_t capacity = 2 * (bytes->length + count) + 32;
        char *larger = realloc(bytes->data, capacity);
        if (larger == NULL) {
            bytes->failed = 1;
            return;
        }
        bytes->data = larger;
        bytes->capacity = capacity;
    }
    if (count > 0)
        memcpy(bytes->data + bytes->length, data, count);
    bytes->length += count;
    bytes->data[bytes->length] = '\0';
}

void enable_bytes_add_text(struct bytes *bytes, const char *text)
{
    enable_bytes_add(bytes, text, strlen(text));
}

void enable_bytes_clear(struct bytes *bytes)
{
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}
