/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "value.h"

#include <stdlib.h>
#include <string.h>

enable_value *enable_value_new(enable_type type)
{
    enable_value *value = calloc(1, sizeof *value);
    if (value != NULL)
        value->type = type;
    return value;
}

int enable_value_add(enable_value *value, char *name, enable_value *item)
{
    if (value->count == value->capacity) {
        size_t capacity = 2 * value->capacity + 4;
        enable_value **items = realloc(value->items, capacity * sizeof *items);
        if (items != NULL)
            value->items = items;
        char **names = realloc(value->names, capacity * sizeof *names);
        if (names != NULL)
            value->names = names;
        if (items == NULL || names == NULL) {
            free(name);
            enable_value_free(item);
            return 0;
        }
        value->capacity = capacity;
    }
    value->items[value->count] = item;
    value->names[value->count] = name;
    value->count++;
    return 1;
}

/* The nesting of a value is bounded where it is read (ENABLE_MAX_DEPTH). */
void enable_value_free(enable_value *value)
{
    if (value == NULL)
        return;
    for (size_t i = 0; i < value->count; i++) {
        enable_value_free(value->items[i]);
        free(value->names[i]);
    }
    free(value->items);
    free(value->names);
    free(value->text);
    free(value);
}

enable_type enable_value_type(const enable_value *value)
{
    return value->type;
}

size_t enable_value_count(const enable_value *value)
{
    return value == NULL ? 0 : value->count;
}

const enable_value *enable_value_at(const enable_value *value, size_t index)
{
    return value == NULL || index >= value->count ? NULL : value->items[index];
}

const char *enable_value_name(const enable_value *value, size_t index)
{
    return value == NULL || index >= value->count ? NULL : value->names[index];
}

const enable_value *enable_value_member(const enable_value *value, const char *name)
{
    if (value == NULL || value->type != ENABLE_STRUCT)
        return NULL;
    for (size_t i = 0; i < value->count; i++)
        if (strcmp(value->names[i], name) == 0)
            return value->items[i];
    return NULL;
}

const char *enable_value_text(const enable_value *value)
{
    return value == NULL ? NULL : value->text;
}

int enable_value_number(const enable_value *value, double *number)
{
    if (value == NULL || (value->type != ENABLE_INTEGER && value->type != ENABLE_DOUBLE))
        return 0;
    *number = value->type == ENABLE_INTEGER ? (double)value->integer : value->number;
    return 1;
}

int enable_value_integer(const enable_value *value, int64_t *integer)
{
    if (value == NULL)
        return 0;
    if (value->type == ENABLE_INTEGER) {
        *integer = value->integer;
        return 1;
    }
    /* 2^63 is the first double that does not fit. */
    if (value->type != ENABLE_DOUBLE || !(value->number >= -9223372036854775808.0) ||
        !(value->number < 9223372036854775808.0) || (double)(int64_t)value->number != value->number)
        return 0;
    *integer = (int64_t)value->number;
    return 1;
}

int enable_value_is_true(const enable_value *value)
{
    return value != NULL && value->type == ENABLE_BOOLEAN && value->integer != 0;
}
