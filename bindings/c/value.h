/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Arguments and answers: values of JSON, within bounds and without null. */
#ifndef ENABLE_VALUE_H
#define ENABLE_VALUE_H

#include <jansson.h>

#include "enable.h"

/* Longest body that is read or written, bytes. */
#define ENABLE_MAX_BODY (256 * 1024)
/* Deepest nesting of values. */
#define ENABLE_MAX_DEPTH 32
/* Most values in a body. */
#define ENABLE_MAX_VALUES 16384
/* Whole numbers from here on have no double of their own, which is all that some readers of JSON have. */
#define ENABLE_MAX_WHOLE (UINT64_C(1) << 53)

/* Reads a body that holds an object or an array. Returns NULL if it does not, or if memory ran out, with the reason in
 * `problem`, which is empty where jansson tells that it was memory. */
json_t *enable_value_read(const char *body, size_t length, char problem[JSON_ERROR_TEXT_LENGTH]);

/* Writes a value into a text that is to be freed. Numbers are the same in every locale, and doubles are exact.
 * ENABLE_BAD_ARGUMENT: it is beyond the bounds; ENABLE_NO_RESOURCES: memory ran out. */
enable_status enable_value_write(json_t *value, char **text);

#endif
