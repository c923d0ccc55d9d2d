/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An answer that is read while memory runs out is given up, without a leak and without half a value. */
#include "answer.h"
#include "check.h"

/* Allocations until memory runs out; negative: it does not. The linker puts these functions before the real ones. */
static long left = -1;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static int ran_out(void)
{
    if (left > 0)
        left--;
    return left == 0;
}

void *__wrap_malloc(size_t size)
{
    return ran_out() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return ran_out() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return ran_out() ? NULL : __real_realloc(memory, size);
}

int main(void)
{
    static const char answer[] =
        "<methodResponse><params><param><value><struct><member><name>why</name><value><string>&#xe9;</string></value>"
        "</member><member><name>rates</name><value><array><data><value><int>1</int></value><value>t</value><value/>"
        "<value><string/></value></data></array></value></member></struct></value></param></params></methodResponse>";
    enable_value *value = NULL;
    long allocations = 1;
    for (; value == NULL && allocations < 1000; allocations++) {
        int fault;
        const char *problem;
        left = allocations;
        value = enable_answer_read(answer, strlen(answer), &fault, &problem);
        left = -1;
        CHECK(problem == NULL);
    }
    CHECK(allocations > 20 && value != NULL);
    CHECK_TEXT(enable_value_text(enable_value_member(value, "why")), "\xc3\xa9");
    const enable_value *rates = enable_value_member(value, "rates");
    for (size_t i = 1; i < 4; i++)
        CHECK(enable_value_text(enable_value_at(rates, i)) != NULL);
    enable_value_free(value);
    puts("test_memory: ok");
    return 0;
}
