/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reads the body of an XML-RPC answer within bounds. */
#ifndef ENABLE_ANSWER_H
#define ENABLE_ANSWER_H

#include "value.h"

/* Longest body that is read, bytes. */
#define ENABLE_MAX_BODY (256 * 1024)
/* Deepest nesting of elements. */
#define ENABLE_MAX_DEPTH 32
/* Most elements in a body. */
#define ENABLE_MAX_ELEMENTS 16384

/*
 * Reads a body. `*fault` becomes 1 if the value is that of a fault. Returns NULL if the body is no answer, with the reason
 * in `*problem`, which is NULL if memory ran out.
 */
enable_value *enable_answer_read(const char *body, size_t length, int *fault, const char **problem);

#endif
