/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An answer or a call is given up where memory runs out, without a leak and without half a value. */
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

static void an_answer_is_whole_or_absent(void)
{
    static const char answer[] = "{\"why\": \"\\u00e9\", \"rates\": [1, \"t\", \"\", null, {\"a\": null}], \"b\": 2.5}";
    char problem[JSON_ERROR_TEXT_LENGTH] = "";
    json_t *value = NULL;
    long allocations = 1;
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
}

/* Builds a report and sends it to nobody; returns 0 if it could not be built. */
static int report(enable_status *status)
{
    enable_value *arguments = enable_array();
    enable_value *told = enable_struct();
    enable_value *values = enable_struct();
    enable_value *answer = NULL;
    int complete = enable_struct_set(values, "rtt", enable_number(0.25));
    complete &= enable_struct_set(values, "streams", enable_number(4));
    complete &= enable_struct_set(told, "client", enable_string("192.0.2.7"));
    complete &= enable_struct_set(told, "values", values);
    complete &= enable_array_add(arguments, told);
    if (complete)
        *status = enable_call_values("127.0.0.1:1", "EnableReport", arguments, NULL, &answer, NULL);
    enable_value_free(arguments);
    return complete;
}

static void a_call_is_made_or_given_up(void)
{
    static const char *const client[] = {"192.0.2.7"};
    enable_value *answer;
    int built = 0;
    int made = 0;
    for (long allocations = 1; made < 3 && allocations < 1000; allocations++) {
        enable_question question = enable_new_question();
        enable_advice *advice;
        enable_status status[3] = {ENABLE_OK, ENABLE_OK, ENABLE_OK};
        question.client = client[0];
        question.bytes = 7;
        left = allocations;
        built += report(&status[0]);
        left = allocations;
        status[1] = enable_call("127.0.0.1:1", "EnableAddHost", client, 1, NULL, &answer, NULL);
        left = allocations;
        status[2] = enable_get_advice("127.0.0.1:1", &question, NULL, &advice, NULL);
        left = -1;
        made = 0;
        for (int i = 0; i < 3; i++) {
            CHECK(status[i] == ENABLE_NO_SERVER || status[i] == ENABLE_NO_RESOURCES || status[i] == ENABLE_BAD_ARGUMENT ||
                  (i == 0 && status[i] == ENABLE_OK));
            made += status[i] == ENABLE_NO_SERVER;
        }
    }
    /* The values were once complete while the memory for their text was missing. */
    CHECK(made == 3 && built > 1);
}

int main(void)
{
    json_set_alloc_funcs(allocate, free);
    an_answer_is_whole_or_absent();
    a_call_is_made_or_given_up();
    puts("test_memory: ok");
    return 0;
}
