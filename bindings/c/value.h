/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Answers: values of JSON, within bounds and without null. */
#ifndef ENABLE_VALUE_H
#define ENABLE_VALUE_H

#include <jansson.h>

#include "enable.h"

/* Longest body that is read, bytes. */
#define ENABLE_MAX_BODY (256 * 1024)
/* Deepest nesting of values. */
#define ENABLE_MAX_DEPTH 32
/* Most values in a body. */
#define ENABLE_MAX_VALUES 16384

/* Reads a body that holds an object or an array. Returns NULL if it does not, or if memory ran out, with the reason in
 * `problem`, which is empty where jansson tells that it was memory. */
json_t *enable_value_read(const char *body, size_t length, char problem[JSON_ERROR_TEXT_LENGTH]);

#endif
