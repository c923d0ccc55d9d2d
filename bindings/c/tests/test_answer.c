/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests of the parser of answers, of numbers, of names of servers, and of what is printed. */
#include <locale.h>

#include "answer.h"
#include "check.h"
#include "number.h"
#include "server.h"
#include "utf8.h"

static const char GOOD[] =
    "<?xml version='1.0'?>\n<!-- c --><methodResponse><params><param><value><struct>"
    "<member><name>why</name><value><string>&#xe9; &amp; &lt;</string></value></member>"
    "<member><name>rates</name><value><array><data><value><int>1</int></value><value><double>2.5</double></value>"
    "<value><boolean>1</boolean></value><value>text</value><value/></data></array></value></member>"
    "<member><name>when</name><value><dateTime.iso8601>20261123T02:12:36</dateTime.iso8601></value></member>"
    "</struct></value></param></params></methodResponse>\n";

static enable_value *parsed(const char *body, size_t length)
{
    int fault;
    const char *problem;
    /* A copy of this length, so that the sanitizer sees each byte read beyond it. */
    char *copy = malloc(length + 1);
    CHECK(copy != NULL);
    copy = realloc(copy, length == 0 ? 1 : length);
    CHECK(copy != NULL);
    memcpy(copy, body, length);
    enable_value *value = enable_answer_read(copy, length, &fault, &problem);
    CHECK((value == NULL) == (problem != NULL));
    free(copy);
    return value;
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
    CHECK(enable_value_count(rates) == 5);
    CHECK(enable_value_integer(enable_value_at(rates, 0), &integer) && integer == 1);
    CHECK(enable_value_number(enable_value_at(rates, 0), &number) && number == 1.0);
    CHECK(!enable_value_integer(enable_value_at(rates, 1), &integer));
    CHECK(enable_value_number(enable_value_at(rates, 1), &number) && number == 2.5);
    CHECK(enable_value_is_true(enable_value_at(rates, 2)));
    CHECK_TEXT(enable_value_text(enable_value_at(rates, 3)), "text");
    CHECK_TEXT(enable_value_text(enable_value_at(rates, 4)), "");
    CHECK(enable_value_at(rates, 5) == NULL && enable_value_name(rates, 0) == NULL);
    CHECK(enable_value_member(value, "x") == NULL && enable_value_text(NULL) == NULL && enable_value_count(NULL) == 0);
    CHECK_TEXT(enable_value_text(enable_value_member(value, "when")), "20261123T02:12:36");
    enable_value_free(value);
}

static void every_truncation_is_malformed(void)
{
    /* White space after the last element may be missing. */
    for (size_t length = 0; length < strlen(GOOD) - 1; length++)
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
    static const char *const pieces[] = {"<value>", "</value>", "<i8>99999999999999999999</i8>", "&#x", "<![CDATA[",
                                         "<!--", "<?", "/>", "<array><data>", "<name>", "&amp", "\xe2\x82", "</struct>"};
    char body[2048];
    for (int turn = 0; turn < 200000; turn++) {
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

static void numbers_are_read_in_any_locale(void)
{
    static const struct {
        const char *text;
        int valid;
        double value;
    } doubles[] = {
        {"0", 1, 0},          {"1.5", 1, 1.5},           {" -0.25\n", 1, -0.25},        {"1e3", 1, 1000},
        {"1.25e+10", 1, 12500000000.0}, {"9007199254740991", 1, 9007199254740991.0},   {"0.00025", 1, 0.00025},
        {".5", 1, 0.5},       {"5.", 1, 5},              {"0e999999999", 1, 0},         {"1e-999", 1, 0},
        {"10000000000000000000000", 1, 1e22},            {"0.0825", 1, 0.0825},         {"1e308", 1, 1e308},
        {"", 0, 0},           {".", 0, 0},               {"e5", 0, 0},                  {"1e", 0, 0},
        {"1,5", 0, 0},        {"nan", 0, 0},             {"inf", 0, 0},                 {"1e999", 0, 0},
        {"0x10", 0, 0},       {"1 2", 0, 0},             {"--1", 0, 0},                 {"1.2.3", 0, 0},
    };
    /* A decimal comma, where such a locale is installed. */
    setlocale(LC_ALL, "de_DE.UTF-8");
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        double value = 0;
        CHECK(enable_number_double(doubles[i].text, &value) == doubles[i].valid);
        double difference = value - doubles[i].value;
        CHECK(!doubles[i].valid || (difference <= 1e-15 * value && -difference <= 1e-15 * value) || difference == 0);
    }
    setlocale(LC_ALL, "C");
    int64_t integer;
    CHECK(enable_number_integer("9223372036854775807", &integer) && integer == INT64_MAX);
    CHECK(enable_number_integer("-9223372036854775808", &integer) && integer == INT64_MIN);
    CHECK(enable_number_integer(" +7\n", &integer) && integer == 7);
    CHECK(!enable_number_integer("9223372036854775808", &integer));
    CHECK(!enable_number_integer("", &integer) && !enable_number_integer("7x", &integer));
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
    enable_utf8_printable(out, sizeof out, "a\x1b[m\xc2\x9b\xe2\x80\xae\xff\xc3\xa9");
    CHECK_TEXT(out, "a?[m???\xc3\xa9");
    enable_utf8_printable(out, 3, "a\xc3\xa9");
    CHECK_TEXT(out, "a");
}

int main(void)
{
    an_answer_is_a_tree();
    every_truncation_is_malformed();
    changed_answers_are_read_or_malformed();
    numbers_are_read_in_any_locale();
    a_server_is_a_host_with_or_without_port_and_scheme();
    what_is_printed_steers_no_terminal();
    puts("test_answer: ok");
    return 0;
}
