/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An answer that is read while memory runs out is given up, without a leak and without half a value. */
#include "check.h"
#include "value.h"

/* Allocations until memory runs out; negative: it does not. */
static long left = -1;

static void *allocate(size_t size)
{
    if (left > 0)
        left--;
    return left == 0 ? NULL : malloc(size);
}

int main(void)
{
    static const char answer[] = "{\"why\": \"\\u00e9\", \"rates\": [1, \"t\", \"\", null, {\"a\": null}], \"b\": 2.5}";
    char problem[JSON_ERROR_TEXT_LENGTH] = "";
    json_t *value = NULL;
    long allocations = 1;
    json_set_alloc_funcs(allocate, free);
    for (; value == NULL && allocations < 1000; allocations++) {
        left = allocations;
        value = enable_value_read(answer, strlen(answer), problem);
        left = -1;
    }
    CHECK(allocations > 20 && value != NULL);
    const enable_value *read = (const enable_value *)value;
    CHECK_TEXT(enable_value_text(enable_value_member(read, "why")), "\xc3\xa9");
    const enable_value *rates = enable_value_member(read, "rates");
    for (size_t i = 1; i < 4; i++)
        CHECK(enable_value_text(enable_value_at(rates, i)) != NULL);
    json_decref(value);
    puts("test_memory: ok");
    return 0;
}
