/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why a value is not taken; NULL if it is. An empty reason: memory ran out. What is unknown is absent: members that are
 * null are removed, and an item of an array, which keeps its place, becomes an empty string. */
static const char *take(json_t *value, unsigned depth, unsigned *values)
{
    const char *problem = NULL;
    const char *name;
    json_t *inner;
    size_t index;
    void *next;
    if (depth > ENABLE_MAX_DEPTH || ++*values > ENABLE_MAX_VALUES)
        return "too many or too deeply nested values";
    json_object_foreach_safe(value, next, name, inner) {
        if (json_is_null(inner))
            json_object_del(value, name);
        else if ((problem = take(inner, depth + 1, values)) != NULL)
            return problem;
    }
    json_array_foreach(value, index, inner) {
        if (json_is_null(inner) && json_array_set_new(value, index, json_string("")) != 0)
            return "";
        if ((problem = take(json_array_get(value, index), depth + 1, values)) != NULL)
            return problem;
    }
    return NULL;
}

json_t *enable_value_read(const char *body, size_t length, char problem[JSON_ERROR_TEXT_LENGTH])
{
    json_error_t error = {0};
    unsigned values = 0;
    json_t *value = json_loadb(body, length, JSON_REJECT_DUPLICATES, &error);
    if (value == NULL) {
        int memory = json_error_code(&error) == json_error_out_of_memory;
        snprintf(problem, JSON_ERROR_TEXT_LENGTH, "%s", memory ? "" : error.text);
        return NULL;
    }
    const char *reason = take(value, 1, &values);
    if (reason == NULL)
        return value;
    snprintf(problem, JSON_ERROR_TEXT_LENGTH, "%s", reason);
    json_decref(value);
    return NULL;
}

enable_status enable_value_write(json_t *value, char **text)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    unsigned values = 0;
    if (take(value, 1, &values) != NULL)
        return ENABLE_BAD_ARGUMENT;
    size_t length = json_dumpb(value, NULL, 0, flags);
    if (length > ENABLE_MAX_BODY)
        return ENABLE_BAD_ARGUMENT;
    char *written = length == 0 ? NULL : malloc(length + 1);
    if (written == NULL || json_dumpb(value, written, length, flags) != length) {
        free(written);
        return ENABLE_NO_RESOURCES;
    }
    written[length] = '\0';
    *text = written;
    return ENABLE_OK;
}

/* A value of the interface is one of JSON. The functions of jansson that read it take it as not constant. */
static json_t *json_of(const enable_value *value)
{
    return (json_t *)value;
}

enable_value *enable_string(const char *text)
{
    return (enable_value *)json_string(text);
}

enable_value *enable_number(double number)
{
    /* Some members must be integers, which a fraction of 0 is not for every reader. */
    const double most = (double)ENABLE_MAX_WHOLE;
    int whole = number > -most && number < most && number == (double)(json_int_t)number;
    return (enable_value *)(whole ? json_integer((json_int_t)number) : json_real(number));
}

enable_value *enable_boolean(int truth)
{
    return (enable_value *)json_boolean(truth);
}

enable_value *enable_struct(void)
{
    return (enable_value *)json_object();
}

enable_value *enable_array(void)
{
    return (enable_value *)json_array();
}

/* A value that goes into another one; NULL, and the value is freed, if it is too deep for that. */
static json_t *nested(enable_value *value)
{
    unsigned values = 0;
    if (take(json_of(value), 2, &values) == NULL)
        return json_of(value);
    enable_value_free(value);
    return NULL;
}

int enable_struct_set(enable_value *structure, const char *name, enable_value *value)
{
    return json_object_set_new(json_of(structure), name, nested(value)) == 0;
}

int enable_array_add(enable_value *array, enable_value *value)
{
    return json_array_append_new(json_of(array), nested(value)) == 0;
}

void enable_value_free(enable_value *value)
{
    json_decref(json_of(value));
}

enable_type enable_value_type(const enable_value *value)
{
    switch (json_typeof(json_of(value))) {
    case JSON_OBJECT:
        return ENABLE_STRUCT;
    case JSON_ARRAY:
        return ENABLE_ARRAY;
    case JSON_INTEGER:
        return ENABLE_INTEGER;
    case JSON_REAL:
        return ENABLE_DOUBLE;
    case JSON_TRUE:
    case JSON_FALSE:
        return ENABLE_BOOLEAN;
    default:
        return ENABLE_STRING;
    }
}

size_t enable_value_count(const enable_value *value)
{
    json_t *json = json_of(value);
    return json_is_object(json) ? json_object_size(json) : json_array_size(json);
}

/* The member of a struct at an index; NULL if there is none. */
static void *member_at(const enable_value *value, size_t index)
{
    void *member = json_object_iter(json_of(value));
    for (; member != NULL && index > 0; index--)
        member = json_object_iter_next(json_of(value), member);
    return member;
}

const enable_value *enable_value_at(const enable_value *value, size_t index)
{
    void *member = member_at(value, index);
    json_t *found = member != NULL ? json_object_iter_value(member) : json_array_get(json_of(value), index);
    return (const enable_value *)found;
}

const char *enable_value_name(const enable_value *value, size_t index)
{
    void *member = member_at(value, index);
    return member == NULL ? NULL : json_object_iter_key(member);
}

const enable_value *enable_value_member(const enable_value *value, const char *name)
{
    return (const enable_value *)json_object_get(json_of(value), name);
}

const char *enable_value_text(const enable_value *value)
{
    return json_string_value(json_of(value));
}

int enable_value_number(const enable_value *value, double *number)
{
    if (!json_is_number(json_of(value)))
        return 0;
    *number = json_number_value(json_of(value));
    return 1;
}

int enable_value_integer(const enable_value *value, int64_t *integer)
{
    json_t *json = json_of(value);
    if (json_is_integer(json)) {
        *integer = json_integer_value(json);
        return 1;
    }
    /* 2^63 is the first double that does not fit. */
    double number = json_real_value(json);
    if (!json_is_real(json) || !(number >= -9223372036854775808.0) || !(number < 9223372036854775808.0) ||
        (double)(int64_t)number != number)
        return 0;
    *integer = (int64_t)number;
    return 1;
}

int enable_value_is_true(const enable_value *value)
{
    return json_is_true(json_of(value));
}
