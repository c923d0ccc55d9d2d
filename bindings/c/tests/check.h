/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Conditions that end a test program. */
#ifndef ENABLE_CHECK_H
#define ENABLE_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_TEXT(given, expected) check_text(__FILE__, __LINE__, given, expected)

static void check_text(const char *file, int line, const char *given, const char *expected)
{
    if (given != NULL && strcmp(given, expected) == 0)
        return;
    fprintf(stderr, "%s:%d: expected <%s>, got <%s>\n", file, line, expected, given == NULL ? "NULL" : given);
    exit(1);
}

#endif
