/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The inside of a value of an answer. */
#ifndef ENABLE_VALUE_H
#define ENABLE_VALUE_H

#include "enable.h"

struct enable_value {
    enable_type type;
    /* An integer, or a boolean as 0 or 1. */
    int64_t integer;
    double number;
    /* Of a string. */
    char *text;
    /* Of an array or a struct. */
    size_t count;
    size_t capacity;
    struct enable_value **items;
    /* Names of the members of a struct. */
    char **names;
};

/* A value of this type; NULL if memory ran out. */
enable_value *enable_value_new(enable_type type);
/* Adds an item and its name (NULL in an array), and owns both from now on, also if memory ran out: then 0 is
 * returned. */
int enable_value_add(enable_value *value, char *name, enable_value *item);

#endif
