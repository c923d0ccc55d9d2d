/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests of what an answer holds, of names of servers, and of what is printed. */
#include <locale.h>

#include "check.h"
#include "server.h"
#include "text.h"
#include "value.h"

static const char GOOD[] = "{\"why\": \"\\u00e9 & <\", \"rates\": [1, 2.5, true, \"text\", null], \"none\": null, "
                           "\"when\": \"2026-11-23T02:12:36Z\"}";

static enable_value *parsed(const char *body, size_t length)
{
    char problem[JSON_ERROR_TEXT_LENGTH] = "";
    /* A copy of this length, so that the sanitizer sees each byte read beyond it. */
    char *copy = malloc(length == 0 ? 1 : length);
    CHECK(copy != NULL);
    memcpy(copy, body, length);
    json_t *value = enable_value_read(copy, length, problem);
    CHECK((value == NULL) == (problem[0] != '\0'));
    free(copy);
    return (enable_value *)value;
}

static void an_answer_is_a_tree(void)
{
    enable_value *value = parsed(GOOD, strlen(GOOD));
    CHECK(value != NULL && enable_value_type(value) == ENABLE_STRUCT && enable_value_count(value) == 3);
    CHECK_TEXT(enable_value_text(enable_value_member(value, "why")), "\xc3\xa9 & <");
    CHECK_TEXT(enable_value_name(value, 1), "rates");
    const enable_value *rates = enable_value_at(value, 1);
    double number;
    int64_t integer;
    CHECK(enable_value_type(rates) == ENABLE_ARRAY && enable_value_count(rates) == 5);
    CHECK(enable_value_integer(enable_value_at(rates, 0), &integer) && integer == 1);
    CHECK(enable_value_number(enable_value_at(rates, 0), &number) && number == 1.0);
    CHECK(!enable_value_integer(enable_value_at(rates, 1), &integer));
    CHECK(enable_value_number(enable_value_at(rates, 1), &number) && number == 2.5);
    CHECK(enable_value_is_true(enable_value_at(rates, 2)) && !enable_value_is_true(enable_value_at(rates, 0)));
    CHECK_TEXT(enable_value_text(enable_value_at(rates, 3)), "text");
    CHECK_TEXT(enable_value_text(enable_value_at(rates, 4)), "");
    CHECK(enable_value_at(rates, 5) == NULL && enable_value_name(rates, 0) == NULL && enable_value_at(value, 3) == NULL);
    CHECK(enable_value_member(value, "x") == NULL && enable_value_text(NULL) == NULL && enable_value_count(NULL) == 0);
    CHECK(enable_value_member(value, "none") == NULL && enable_value_text(rates) == NULL);
    CHECK_TEXT(enable_value_text(enable_value_member(value, "when")), "2026-11-23T02:12:36Z");
    enable_value_free(value);
    enable_value_free(NULL);
}

static void a_double_that_is_whole_is_an_integer(void)
{
    static const struct {
        const char *body;
        int whole;
        int64_t value;
    } numbers[] = {{"[1.25e10]", 1, INT64_C(12500000000)}, {"[65536.0]", 1, 65536}, {"[0.5]", 0, 0},
                   {"[9223372036854775807]", 1, INT64_MAX}, {"[-1e300]", 0, 0}, {"[1e19]", 0, 0}, {"[\"1\"]", 0, 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        enable_value *value = parsed(numbers[i].body, strlen(numbers[i].body));
        int64_t integer = 0;
        CHECK(value != NULL && enable_value_integer(enable_value_at(value, 0), &integer) == numbers[i].whole);
        CHECK(integer == numbers[i].value);
        enable_value_free(value);
    }
    CHECK(parsed("[9223372036854775808]", 21) == NULL && parsed("[1e999]", 7) == NULL && parsed("[1,5]x", 6) == NULL);
}

static void every_truncation_is_malformed(void)
{
    for (size_t length = 0; length < strlen(GOOD); length++)
        CHECK(parsed(GOOD, length) == NULL);
}

static uint32_t random_state = 14;

static uint32_t next_random(uint32_t below)
{
    random_state = random_state * 1664525U + 1013904223U;
    return (random_state >> 8) % below;
}

static void changed_answers_are_read_or_malformed(void)
{
    static const char *const pieces[] = {"[", "]", "{\"a\":", "}", "null", "\\ud800", "\\u0000", "1e999", "99999999999999999999",
                                         "\"", "\xe2\x82", ",", "{\"a\":1,\"a\":2}"};
    char body[2048];
    for (int turn = 0; turn < 50000; turn++) {
        size_t length = strlen(GOOD);
        memcpy(body, GOOD, length);
        for (uint32_t change = next_random(4) + 1; change > 0 && length > 0; change--) {
            size_t at = next_random((uint32_t)length);
            const char *piece = pieces[next_random(sizeof pieces / sizeof *pieces)];
            switch (next_random(4)) {
            case 0:
                body[at] = (char)next_random(256);
                break;
            case 1:
                length = at;
                break;
            case 2:
                memmove(body + at, body + at + (length - at) / 8, length - at - (length - at) / 8);
                length -= (length - at) / 8;
                break;
            default:
                memmove(body + at + strlen(piece), body + at, length - at);
                memcpy(body + at, piece, strlen(piece));
                length += strlen(piece);
            }
        }
        enable_value_free(parsed(body, length));
    }
    for (int turn = 0; turn < 50000; turn++) {
        size_t length = 0;
        while (length < 200 && next_random(40) > 0) {
            const char *piece = pieces[next_random(sizeof pieces / sizeof *pieces)];
            memcpy(body + length, piece, strlen(piece));
            length += strlen(piece);
        }
        enable_value_free(parsed(body, length));
    }
}

/* Checks that a value is written as this text, and frees it. */
static void check_written(enable_value *value, const char *expected)
{
    char *text = NULL;
    CHECK(value != NULL && enable_value_write((json_t *)value, &text) == ENABLE_OK);
    CHECK_TEXT(text, expected);
    free(text);
    enable_value_free(value);
}

static void values_are_built_and_written(void)
{
    enable_value *outer = enable_struct();
    enable_value *array = enable_array();
    CHECK(enable_array_add(array, enable_string("\x01\"<&>\\\n")) && enable_array_add(array, enable_boolean(0)));
    CHECK(enable_struct_set(outer, "a", enable_number(1)) && enable_struct_set(outer, "\xc3\xa9", array));
    CHECK(enable_struct_set(outer, "a", enable_boolean(2)) && enable_struct_set(outer, "", enable_struct()));
    check_written(outer, "{\"a\":true,\"\xc3\xa9\":[\"\\u0001\\\"<&>\\\\\\n\",false],\"\":{}}");
    check_written(enable_number(-2.0), "-2");
    check_written(enable_number(9007199254740991.0), "9007199254740991");
    CHECK(enable_string(NULL) == NULL && enable_string("\xff") == NULL);
    CHECK(enable_number(strtod("nan", NULL)) == NULL && enable_number(-strtod("inf", NULL)) == NULL);
}

/* Each double is read as it was written, also where the decimal point is a comma. */
static void numbers_are_exact_in_each_locale(void)
{
    static const double numbers[] = {0.1, 1.0 / 3, 1e22, 5e-324, 1.7976931348623157e308, 9007199254740992.0, -0.5, 1e15, 0};
    for (int comma = 0; comma < 2; comma++) {
        if (comma && setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL)
            puts("test_value: SKIPPED the decimal comma: there is no locale de_DE.UTF-8");
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            enable_value *array = enable_array();
            char *text = NULL;
            double number;
            CHECK(enable_array_add(array, enable_number(numbers[i])));
            CHECK(enable_value_write((json_t *)array, &text) == ENABLE_OK && strchr(text, ',') == NULL);
            enable_value *read = parsed(text, strlen(text));
            CHECK(enable_value_number(enable_value_at(read, 0), &number) && number == numbers[i]);
            free(text);
            enable_value_free(read);
            enable_value_free(array);
        }
    }
    setlocale(LC_NUMERIC, "C");
}

static void a_value_that_is_not_set_is_freed(void)
{
    enable_value *text = enable_string("a");
    enable_value *outer = enable_struct();
    CHECK(!enable_struct_set(NULL, "a", enable_string("b")) && !enable_struct_set(text, "a", enable_string("b")));
    CHECK(!enable_struct_set(outer, NULL, enable_string("b")) && !enable_struct_set(outer, "\xff", enable_string("b")));
    CHECK(!enable_struct_set(outer, "a", NULL) && !enable_array_add(outer, enable_string("b")));
    CHECK(!enable_array_add(NULL, enable_string("b")) && enable_value_count(outer) == 0);
    enable_value_free(text);
    enable_value_free(outer);
}

static void depth_and_length_are_bounded(void)
{
    enable_value *inner = enable_array();
    char *text = NULL;
    for (int depth = 1; depth < ENABLE_MAX_DEPTH; depth++) {
        enable_value *outer = enable_array();
        CHECK(enable_array_add(outer, inner));
        inner = outer;
    }
    CHECK(enable_value_write((json_t *)inner, &text) == ENABLE_OK && strlen(text) == 2 * ENABLE_MAX_DEPTH);
    free(text);
    enable_value *outer = enable_array();
    CHECK(!enable_array_add(outer, inner));
    /* From the outside in, the depth shows when the value is written. */
    enable_value *innermost = outer;
    for (int depth = 1; depth <= ENABLE_MAX_DEPTH; depth++) {
        enable_value *next = enable_array();
        CHECK(enable_array_add(innermost, next));
        innermost = next;
    }
    CHECK(enable_value_write((json_t *)outer, &text) == ENABLE_BAD_ARGUMENT);
    enable_value_free(outer);
    enable_value *many = enable_array();
    for (int i = 0; i < ENABLE_MAX_VALUES; i++)
        CHECK(enable_array_add(many, enable_number(i)));
    CHECK(enable_value_write((json_t *)many, &text) == ENABLE_BAD_ARGUMENT);
    enable_value_free(many);
    char *longest = calloc(1, ENABLE_MAX_BODY + 1);
    CHECK(longest != NULL);
    memset(longest, 'a', ENABLE_MAX_BODY);
    enable_value *string = enable_string(longest);
    CHECK(string != NULL && enable_value_write((json_t *)string, &text) == ENABLE_BAD_ARGUMENT);
    enable_value_free(string);
    longest[ENABLE_MAX_BODY - 2] = '\0';
    string = enable_string(longest);
    CHECK(string != NULL && enable_value_write((json_t *)string, &text) == ENABLE_OK && strlen(text) == ENABLE_MAX_BODY);
    enable_value_free(string);
    free(longest);
    free(text);
}

static void a_server_is_a_host_with_or_without_port_and_scheme(void)
{
    static const char *const servers[][2] = {
        {"data.example.org", "data.example.org:2812"}, {"data:99", "data:99"}, {"http://data:99/", "data:99"},
        {"::1", "[::1]:2812"}, {"[2001:db8::1]:7", "[2001:db8::1]:7"}, {"[2001:db8::1]", "[2001:db8::1]:2812"},
        {"192.0.2.1:7", "192.0.2.1:7"},
    };
    static const char *const others[] = {"", "a b", "host:port", "host:99999", "host:0", "https://host", "host/path",
                                         "a\r\nb", "[host]:1", "[1]", "a:1:2", "[", "[]", "]", ":", "[::1", "host:",
                                         "[::1]x", "user@host", "http://", "host\n", "::1]", "[[::1]]"};
    struct server server;
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        CHECK(enable_server_read(&server, servers[i][0], 2812));
        CHECK_TEXT(server.shown, servers[i][1]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!enable_server_read(&server, others[i], 2812));
    char longest[512];
    memset(longest, 'x', sizeof longest - 1);
    for (size_t length = 250; length < sizeof longest; length++) {
        longest[length] = '\0';
        CHECK(enable_server_read(&server, longest, 2812) == (length <= 253));
        longest[length] = 'x';
    }
}

static void what_is_printed_steers_no_terminal(void)
{
    char out[16];
    enable_text_printable(out, sizeof out, "a\x1b[m\xc2\x9b\xe2\x80\xae\xef\xbb\xbf\xc3\xa9");
    CHECK_TEXT(out, "a?[m???\xc3\xa9");
    enable_text_printable(out, sizeof out, "\xd8\x9c\xe2\x81\xa6\x7f\xf0\x9f\x98\x80\xe2\x82\xac");
    CHECK_TEXT(out, "???\xf0\x9f\x98\x80\xe2\x82\xac");
    enable_text_printable(out, sizeof out, "a\x1b\xff\xc3\xa9");
    CHECK_TEXT(out, "a????");
    enable_text_printable(out, 3, "a\xc3\xa9");
    CHECK_TEXT(out, "a");
}

int main(void)
{
    an_answer_is_a_tree();
    a_double_that_is_whole_is_an_integer();
    every_truncation_is_malformed();
    changed_answers_are_read_or_malformed();
    values_are_built_and_written();
    numbers_are_exact_in_each_locale();
    a_value_that_is_not_set_is_freed();
    depth_and_length_are_bounded();
    a_server_is_a_host_with_or_without_port_and_scheme();
    what_is_printed_steers_no_terminal();
    puts("test_value: ok");
    return 0;
}
