/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests against the scripted server; with ENABLE_SERVER=HOST:PORT also against a real one. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "enable.h"

/* Long enough for a busy machine; only scenarios without an answer use it up, and they use another one. */
static const enable_options PATIENT = {0, 60000, NULL};

/* Files of a question that the scripted server answers with the question. */
#define ECHO_FILES 4242

static const char *server;

/* The outcome of a call in the words of the scenarios. */
static void describe(char out[64], enable_status status, int64_t bytes, const enable_error *error)
{
    switch (status) {
    case ENABLE_OK:
        snprintf(out, 64, "buffer=%lld", (long long)bytes);
        break;
    case ENABLE_REFUSED:
        snprintf(out, 64, "refused=%d", error->code);
        break;
    case ENABLE_BAD_ANSWER:
        strcpy(out, "bad");
        break;
    case ENABLE_TIMED_OUT:
        strcpy(out, "timeout");
        break;
    case ENABLE_NO_SERVER:
        strcpy(out, "no-server");
        break;
    default:
        strcpy(out, "unexpected");
    }
    CHECK(status == ENABLE_OK || error->message[0] != '\0');
}

static void one_scenario(const char *name, const char *expected)
{
    enable_options options = {0, 60000, NULL};
    enable_question question = enable_new_question();
    enable_error error;
    enable_value *info = NULL;
    enable_advice *advice = NULL;
    int64_t bytes = -1;
    char found[3][64];
    if (strcmp(expected, "timeout") == 0)
        options.timeout_ms = 400;
    enable_status status = enable_get_buffer_size(server, name, &options, &bytes, &error);
    describe(found[0], status, bytes, &error);
    int of_buffer = strncmp(expected, "buffer", 6) == 0 || strncmp(name, "buffer-", 7) == 0;
    question.client = name;
    for (int other = 1; other < 3 && !of_buffer; other++) {
        status = other == 1 ? enable_get_net_info(server, name, &options, &info, &error)
                            : enable_get_advice(server, &question, &options, &advice, &error);
        describe(found[other], status, 0, &error);
        CHECK(info == NULL && advice == NULL);
    }
    for (int i = 0; i < (of_buffer ? 1 : 3); i++)
        if (strcmp(found[i], expected) != 0) {
            fprintf(stderr, "scenario %s, call %d: expected %s, got %s (%s)\n", name, i, expected, found[i],
                    error.message);
            exit(1);
        }
}

static void every_scenario_has_its_outcome_for_each_call(void)
{
    FILE *table = fopen(getenv("ENABLE_SCENARIOS_JSON"), "r");
    char line[256];
    int count = 0;
    CHECK(table != NULL);
    for (; fgets(line, sizeof line, table) != NULL; count++) {
        line[strcspn(line, "\n")] = '\0';
        char *tab = strchr(line, '\t');
        CHECK(tab != NULL);
        *tab = '\0';
        one_scenario(line, tab + 1);
    }
    fclose(table);
    CHECK(count > 60);
}

static void advice_has_all_members(void)
{
    enable_advice *advice;
    CHECK(enable_get_advice(server, NULL, &PATIENT, &advice, NULL) == ENABLE_OK);
    CHECK_TEXT(advice->client, "192.0.2.7");
    CHECK(advice->set_buffer_bytes == 16000000 && advice->bdp_bytes == INT64_C(12500000000) && advice->streams == 4);
    CHECK_TEXT(advice->congestion_control, "bbr");
    CHECK(advice->pace_bps == INT64_C(10000000000) && advice->expected_bps == INT64_C(9400000000));
    CHECK(advice->p10_bps == INT64_C(7100000000) && advice->p90_bps == INT64_C(9700000000));
    CHECK(advice->rtt_seconds == 0.0825 && advice->bandwidth_bps == INT64_C(10000000000) && advice->loss == 0.00025);
    CHECK(advice->download_bps == INT64_C(10000000000) && advice->upload_bps == INT64_C(1000000000));
    CHECK_TEXT(advice->limited_by, "congestion window");
    CHECK(advice->asymmetric && advice->confidence == 0.75 && advice->age_seconds == 12.5);
    CHECK_TEXT(advice->measured_by, "192.0.2.1 (same /24)");
    CHECK_TEXT(advice->why, "round trip \xc3\x97 bandwidth, \xe2\x80\x9cmeasured\xe2\x80\x9d <today> & kept");
    enable_advice_free(advice);
}

static void absent_members_are_unknown(void)
{
    enable_question question = enable_new_question();
    enable_advice *advice;
    question.client = "sparse";
    CHECK(enable_get_advice(server, &question, &PATIENT, &advice, NULL) == ENABLE_OK);
    CHECK(advice->set_buffer_bytes == ENABLE_UNKNOWN && advice->bdp_bytes == ENABLE_UNKNOWN);
    CHECK(advice->streams == ENABLE_UNKNOWN && advice->congestion_control == NULL);
    CHECK(advice->pace_bps == ENABLE_UNKNOWN && advice->expected_bps == ENABLE_UNKNOWN);
    CHECK(advice->p10_bps == ENABLE_UNKNOWN && advice->p90_bps == ENABLE_UNKNOWN);
    CHECK(advice->rtt_seconds == ENABLE_UNKNOWN && advice->bandwidth_bps == ENABLE_UNKNOWN);
    CHECK(advice->download_bps == ENABLE_UNKNOWN && advice->upload_bps == ENABLE_UNKNOWN);
    CHECK(advice->loss == ENABLE_UNKNOWN && advice->limited_by == NULL && !advice->asymmetric);
    CHECK(advice->confidence == 0 && advice->age_seconds == ENABLE_UNKNOWN && advice->measured_by == NULL);
    CHECK_TEXT(advice->why, "nothing is known yet");
    enable_advice_free(advice);
    enable_advice_free(NULL);
}

static void a_member_of_the_wrong_type_is_a_bad_answer(void)
{
    enable_question question = enable_new_question();
    enable_advice *advice;
    question.client = "wrong-type";
    CHECK(enable_get_advice(server, &question, &PATIENT, &advice, NULL) == ENABLE_BAD_ANSWER);
}

static void the_question_and_the_token_arrive(void)
{
    enable_options options = {0, 60000, " a-token\n"};
    enable_question question = {sizeof question, "echo", UINT64_C(1000000000000), ENABLE_UPLOAD, 3, 6291456, 4194304,
                                212992, UINT64_C(10000000000), UINT64_C(40000000000), 4, 1, 8};
    enable_advice *advice;
    CHECK(enable_get_advice(server, &question, &options, &advice, NULL) == ENABLE_OK);
    CHECK_TEXT(advice->why, "{\"authorization\":\"Bearer a-token\",\"request\":\"GET /api/v1/advice?client=echo&direction=upload"
                            "&bytes=1000000000000&files=3&max_receive_buffer=6291456&max_send_buffer=4194304&max_set_buffer=212992"
                            "&client_bps=10000000000&processor_bps=40000000000&processor_cores=4&max_streams=8"
                            "&must_set_buffer=true HTTP/1.1\"}");
    enable_advice_free(advice);
}

/* A question about this host tells its processors; `?` in the answer is the rest of the query. */
static void a_question_about_this_host_tells_its_processors(void)
{
    enable_question question = enable_new_question();
    enable_advice *advice;
    unsigned long long bps = 0, cores = 0;
    question.files = ECHO_FILES;
    CHECK(enable_get_advice(server, &question, &PATIENT, &advice, NULL) == ENABLE_OK);
    const char *told = strstr(advice->why, "&processor_bps=");
    CHECK(told != NULL && sscanf(told, "&processor_bps=%llu&processor_cores=%llu", &bps, &cores) == 2);
    CHECK(cores >= 1 && bps / cores >= 10000000ULL && bps / cores <= 400000000000ULL);
    CHECK(advice->size == sizeof *advice && ENABLE_HAS(advice, client) && ENABLE_HAS(advice, why));
    enable_advice_free(advice);
}

/* A program that was compiled with another version of the header. */
static void questions_of_other_versions_are_taken_as_far_as_they_are_known(void)
{
    struct {
        enable_question question;
        uint64_t later;
    } larger = {enable_new_question(), 0};
    enable_question *question = &larger.question;
    enable_advice *advice;
    enable_error error;
    question->client = "sparse";
    question->size = sizeof larger;
    CHECK(enable_get_advice(server, question, &PATIENT, &advice, NULL) == ENABLE_OK);
    enable_advice_free(advice);
    larger.later = 1;
    CHECK(enable_get_advice(server, question, &PATIENT, &advice, &error) == ENABLE_BAD_ARGUMENT);
    CHECK(strstr(error.message, "does not know") != NULL);
    question->size = 0;
    CHECK(enable_get_advice(server, question, &PATIENT, &advice, &error) == ENABLE_BAD_ARGUMENT);
}

static void net_info_is_a_tree(void)
{
    enable_value *info;
    int64_t rate;
    CHECK(enable_get_net_info(server, NULL, &PATIENT, &info, NULL) == ENABLE_OK);
    CHECK_TEXT(enable_value_text(enable_value_member(info, "note")), "na\xc3\xafve \xe2\x80\x9cpath\xe2\x80\x9d");
    const enable_value *tests = enable_value_member(info, "tests");
    const enable_value *bottleneck = enable_value_member(tests, "bottleneck");
    CHECK(enable_value_integer(enable_value_member(bottleneck, "bandwidth_bps"), &rate));
    CHECK(rate == INT64_C(10000000000));
    const enable_value *hops = enable_value_member(enable_value_member(tests, "route"), "hops");
    CHECK(enable_value_count(hops) == 2);
    CHECK_TEXT(enable_value_text(enable_value_at(hops, 1)), "198.51.100.1");
    enable_value_free(info);
}

static void each_method_with_text_arguments_can_be_called(const char *host)
{
    enable_value *methods;
    enable_error error;
    int found = 0;
    CHECK(enable_call(host, "system.listMethods", NULL, 0, &PATIENT, &methods, &error) == ENABLE_OK);
    for (size_t i = 0; i < enable_value_count(methods); i++)
        found += strcmp(enable_value_text(enable_value_at(methods, i)), "EnableGetAdvice") == 0;
    CHECK(found == 1);
    enable_value_free(methods);
    static const char *const data_server[] = {"data", "192.0.2.7", "x"};
    CHECK(enable_call(host, "EnableGetQoS", data_server, 2, &PATIENT, &methods, &error) == ENABLE_OK);
    CHECK(enable_value_type(methods) == ENABLE_STRUCT && enable_value_text(enable_value_member(methods, "class")) != NULL);
    enable_value_free(methods);
    CHECK(enable_call(host, "EnableListHosts", NULL, 0, &PATIENT, &methods, &error) == ENABLE_OK);
    CHECK(enable_value_type(methods) == ENABLE_ARRAY);
    enable_value_free(methods);
    CHECK(enable_call(host, "EnableGetStreams", data_server, 3, &PATIENT, &methods, &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_ARGUMENTS);
    CHECK(enable_call(host, "EnableNoSuchMethod", NULL, 0, &PATIENT, &methods, &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_NO_METHOD);
}

static void a_change_needs_the_token(void)
{
    static const char *const client[] = {"192.0.2.1"};
    enable_options options = {0, 60000, "a-token"};
    enable_error error;
    enable_value *value;
    CHECK(enable_call(server, "EnableAddHost", client, 1, &options, &value, &error) == ENABLE_OK);
    CHECK(enable_value_is_true(value));
    enable_value_free(value);
    CHECK(enable_call(server, "EnableAddHost", client, 1, &PATIENT, &value, &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_FORBIDDEN);
    CHECK(enable_call(server, "EnableRemoveHost", client, 1, &options, &value, &error) == ENABLE_OK);
    CHECK(enable_value_is_true(value));
    enable_value_free(value);
    static const char *const parent[] = {".."};
    CHECK(enable_call(server, "EnableRemoveHost", parent, 1, &options, &value, &error) == ENABLE_OK);
    CHECK(enable_value_is_true(value));
    enable_value_free(value);
    static const char *const test[] = {"192.0.2.1", "ping/x"};
    CHECK(enable_call(server, "EnableRunTest", test, 2, &options, &value, &error) == ENABLE_OK);
    CHECK(enable_value_is_true(value));
    enable_value_free(value);
}

/* The answer of a method that takes two arguments, or one if the first is NULL. */
static enable_value *answer_of(const char *host, const char *method, const char *text, enable_value *value,
                               const enable_options *options)
{
    enable_value *arguments = enable_array();
    enable_value *answer = NULL;
    enable_error error;
    CHECK(text == NULL || enable_array_add(arguments, enable_string(text)));
    CHECK(enable_array_add(arguments, value));
    enable_status status = enable_call_values(host, method, arguments, options, &answer, &error);
    if (status != ENABLE_OK)
        fprintf(stderr, "%s\n", error.message);
    CHECK(status == ENABLE_OK);
    enable_value_free(arguments);
    return answer;
}

/* The same for a change. */
static void change(const char *host, const char *method, const char *text, enable_value *value,
                   const enable_options *options)
{
    enable_value *answer = answer_of(host, method, text, value, options);
    CHECK(enable_value_is_true(answer));
    enable_value_free(answer);
}

/* The client of the test below. */
#define CLIENT "192.0.2.9"

/* The results of the client's tests, with the detail that was reported: the service writes it a moment later. */
static enable_value *info_with_detail(const char *host, const enable_value **detail)
{
    static const struct timespec moment = {0, 50000000};
    for (int turn = 0;; turn++) {
        enable_value *info;
        CHECK(turn < 1200);
        CHECK(enable_get_net_info(host, CLIENT, &PATIENT, &info, NULL) == ENABLE_OK);
        *detail = enable_value_member(enable_value_member(enable_value_member(info, "tests"), "transfer"), "detail");
        if (*detail != NULL)
            return info;
        enable_value_free(info);
        nanosleep(&moment, NULL);
    }
}

static void a_report_is_read_back(const char *host, const enable_options *options)
{
    static const char note[] = "<a> & \"b\" \\ \n\xc3\xa9\xf0\x9f\x98\x80";
    enable_value *report = enable_struct();
    enable_value *values = enable_struct();
    enable_value *detail = enable_struct();
    enable_value *hops = enable_array();
    const enable_value *read;
    int64_t whole;
    double number;
    CHECK(enable_struct_set(values, "rtt", enable_number(0.1)) && enable_struct_set(values, "loss", enable_number(0.02)));
    CHECK(enable_array_add(hops, enable_string("192.0.2.1")) && enable_array_add(hops, enable_number(9e15)));
    CHECK(enable_array_add(hops, enable_number(1.0 / 3)) && enable_array_add(hops, enable_boolean(7)));
    CHECK(enable_struct_set(detail, note, enable_string(note)) && enable_struct_set(detail, "hops", hops));
    CHECK(enable_struct_set(report, "client", enable_string(CLIENT)) && enable_struct_set(report, "values", values));
    CHECK(enable_struct_set(report, "detail", detail));
    change(host, "EnableReport", NULL, report, options);
    enable_value *info = info_with_detail(host, &read);
    CHECK(enable_value_number(enable_value_member(enable_value_member(info, "rtt"), "latest"), &number) && number == 0.1);
    CHECK_TEXT(enable_value_text(enable_value_member(read, note)), note);
    const enable_value *items = enable_value_member(read, "hops");
    CHECK_TEXT(enable_value_text(enable_value_at(items, 0)), "192.0.2.1");
    CHECK(enable_value_integer(enable_value_at(items, 1), &whole) && whole == INT64_C(9000000000000000));
    CHECK(enable_value_number(enable_value_at(items, 2), &number) && number == 1.0 / 3);
    CHECK(enable_value_is_true(enable_value_at(items, 3)));
    enable_value_free(info);
}

static void chosen_tests_are_listed(const char *host, const enable_options *options)
{
    enable_value *tests = enable_struct();
    enable_value *hosts;
    int found = 0;
    CHECK(enable_struct_set(tests, "ping", enable_string("600s")) && enable_struct_set(tests, "route", enable_boolean(1)));
    change(host, "EnableSetTests", CLIENT, tests, options);
    CHECK(enable_call(host, "EnableListHosts", NULL, 0, &PATIENT, &hosts, NULL) == ENABLE_OK);
    for (size_t i = 0; i < enable_value_count(hosts); i++) {
        const enable_value *listed = enable_value_at(hosts, i);
        const enable_value *chosen = enable_value_member(listed, "tests");
        if (strcmp(enable_value_text(enable_value_member(listed, "client")), CLIENT) != 0)
            continue;
        CHECK_TEXT(enable_value_text(enable_value_member(chosen, "ping")), "600s");
        found += enable_value_count(chosen) == 2 && enable_value_is_true(enable_value_member(chosen, "route"));
    }
    CHECK(found == 1);
    enable_value_free(hosts);
}

/* The path loses packets, by the report above: a reservation helps the rate that is told. */
static void a_rate_is_told(const char *host)
{
    for (int told = 0; told < 2; told++) {
        enable_value *need = enable_struct();
        CHECK(enable_struct_set(need, "client", enable_string(CLIENT)));
        CHECK(enable_struct_set(need, "purpose", enable_string("streaming")));
        CHECK(told == 0 || enable_struct_set(need, "rate_bps", enable_number(8e8)));
        enable_value *answer = answer_of(host, "EnableGetQoS", "data", need, &PATIENT);
        CHECK(enable_value_is_true(enable_value_member(answer, "reservation_helps")) == told);
        enable_value_free(answer);
    }
}

static void structs_are_passed(const char *host, const char *token)
{
    enable_options options = {0, 60000, token};
    a_report_is_read_back(host, &options);
    chosen_tests_are_listed(host, &options);
    a_rate_is_told(host);
    change(host, "EnableRemoveHost", NULL, enable_string(CLIENT), &options);
}

/* The outcome of a method whose first argument is "data", and which is not answered. */
static enable_status outcome_of(const char *method, enable_value *value, enable_error *error)
{
    enable_value *arguments = enable_array();
    enable_value *answer = NULL;
    CHECK(enable_array_add(arguments, enable_string("data")) && enable_array_add(arguments, value));
    enable_status status = enable_call_values(server, method, arguments, &PATIENT, &answer, error);
    CHECK(answer == NULL);
    enable_value_free(arguments);
    return status;
}

static void arguments_that_do_not_fit_are_refused_here(void)
{
    enable_value *tests = enable_struct();
    enable_value *answer;
    enable_error error;
    CHECK(outcome_of("EnableGetAdvice", enable_string("192.0.2.1"), &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_ARGUMENTS);
    CHECK(outcome_of("EnableGetNetInfo", enable_struct(), &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_ARGUMENTS);
    CHECK(outcome_of("EnableGetQoS", enable_number(8e8), &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_ARGUMENTS);
    /* The query has no room for a struct in a struct. */
    CHECK(enable_struct_set(tests, "client", enable_struct()));
    CHECK(outcome_of("EnableGetQoS", tests, &error) == ENABLE_BAD_ARGUMENT);
    CHECK(enable_call_values(server, "EnableListHosts", NULL, &PATIENT, &answer, &error) == ENABLE_BAD_ARGUMENT);
    CHECK(enable_call_values(server, NULL, NULL, &PATIENT, &answer, &error) == ENABLE_BAD_ARGUMENT);
}

static void a_refusal_is_shown_without_control_characters(void)
{
    enable_error error;
    int64_t bytes;
    CHECK(enable_get_buffer_size(server, "refused-arguments", &PATIENT, &bytes, &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_ARGUMENTS);
    CHECK(strstr(error.message, "refused EnableGetBufferSize: no client <a> & \xe2\x80\x9c""b\xe2\x80\x9d ?31m"));
}

static void nobody_listening_and_nobody_answering_are_told_apart(void)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    enable_options options = {0, 100, NULL};
    enable_error error;
    int64_t bytes;
    char name[64];
    int silent = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(silent, (struct sockaddr *)&address, sizeof address) == 0 && listen(silent, 1) == 0);
    CHECK(getsockname(silent, (struct sockaddr *)&address, &length) == 0);
    options.port = ntohs(address.sin_port);
    CHECK(enable_get_buffer_size("127.0.0.1", NULL, &options, &bytes, &error) == ENABLE_TIMED_OUT);
    CHECK(strstr(error.message, "within 100 ms") != NULL);
    close(silent);
    snprintf(name, sizeof name, "http://127.0.0.1:%u", options.port);
    CHECK(enable_get_buffer_size(name, NULL, &PATIENT, &bytes, &error) == ENABLE_NO_SERVER);
    CHECK(strstr(error.message, "no advice server answers at 127.0.0.1:") != NULL);
}

static void arguments_that_cannot_be_used_are_refused_here(void)
{
    enable_options options = {0, 60000, "a\r\nX-Field: b"};
    enable_question question = enable_new_question();
    enable_advice *advice;
    int64_t bytes;
    CHECK(enable_get_buffer_size("a b", NULL, NULL, &bytes, NULL) == ENABLE_BAD_ARGUMENT);
    CHECK(enable_get_buffer_size(NULL, NULL, NULL, &bytes, NULL) == ENABLE_BAD_ARGUMENT);
    CHECK(enable_get_buffer_size(server, NULL, &options, &bytes, NULL) == ENABLE_BAD_ARGUMENT);
    CHECK(enable_get_buffer_size(server, "a\x01", &PATIENT, &bytes, NULL) == ENABLE_BAD_ARGUMENT);
    CHECK(enable_get_buffer_size(server, "a\xff", &PATIENT, &bytes, NULL) == ENABLE_BAD_ARGUMENT);
    question.bytes = UINT64_C(1) << 53;
    CHECK(enable_get_advice(server, &question, &PATIENT, &advice, NULL) == ENABLE_BAD_ARGUMENT);
    options.token = NULL;
    options.timeout_ms = 86400001;
    CHECK(enable_get_buffer_size(server, NULL, &options, &bytes, NULL) == ENABLE_BAD_ARGUMENT);
    options.timeout_ms = 0;
    options.port = 65536;
    CHECK(enable_get_buffer_size("127.0.0.1", NULL, &options, &bytes, NULL) == ENABLE_BAD_ARGUMENT);
}

static void *ask_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        advice_has_all_members();
        net_info_is_a_tree();
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void)
{
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_often, NULL) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void a_real_server_takes_structs(const char *host, const char *token_file)
{
    char token[1024] = "";
    FILE *file = fopen(token_file, "r");
    CHECK(file != NULL && fgets(token, sizeof token, file) != NULL);
    fclose(file);
    structs_are_passed(host, token);
}

static void a_real_server_conforms(const char *host)
{
    static const char *const client[] = {"192.0.2.1"};
    enable_advice *advice;
    enable_value *value;
    enable_error error;
    int64_t bytes = 0;
    enable_status status = enable_get_advice(host, NULL, &PATIENT, &advice, &error);
    if (status != ENABLE_OK)
        fprintf(stderr, "%s\n", error.message);
    CHECK(status == ENABLE_OK);
    CHECK(advice->client[0] != '\0' && advice->why[0] != '\0' && advice->confidence >= 0 && advice->confidence <= 1);
    enable_advice_free(advice);
    status = enable_get_buffer_size(host, NULL, &PATIENT, &bytes, &error);
    CHECK(status == ENABLE_OK ? bytes > 0 : status == ENABLE_REFUSED && error.code == ENABLE_FAULT_UNKNOWN_PATH);
    status = enable_get_net_info(host, NULL, &PATIENT, &value, &error);
    CHECK(status == ENABLE_OK || (status == ENABLE_REFUSED && error.code == ENABLE_FAULT_UNKNOWN_PATH));
    if (status == ENABLE_OK)
        enable_value_free(value);
    each_method_with_text_arguments_can_be_called(host);
    CHECK(enable_call(host, "EnableRemoveHost", client, 1, &PATIENT, &value, &error) == ENABLE_REFUSED);
    CHECK(error.code == ENABLE_FAULT_FORBIDDEN);
}

int main(void)
{
    server = getenv("ENABLE_SCRIPTED");
    CHECK(server != NULL);
    every_scenario_has_its_outcome_for_each_call();
    advice_has_all_members();
    absent_members_are_unknown();
    a_question_about_this_host_tells_its_processors();
    questions_of_other_versions_are_taken_as_far_as_they_are_known();
    a_member_of_the_wrong_type_is_a_bad_answer();
    the_question_and_the_token_arrive();
    net_info_is_a_tree();
    each_method_with_text_arguments_can_be_called(server);
    a_change_needs_the_token();
    structs_are_passed(server, "a-token");
    arguments_that_do_not_fit_are_refused_here();
    a_refusal_is_shown_without_control_characters();
    nobody_listening_and_nobody_answering_are_told_apart();
    arguments_that_cannot_be_used_are_refused_here();
    threads_do_not_disturb_each_other();
    if (getenv("ENABLE_SERVER") != NULL)
        a_real_server_conforms(getenv("ENABLE_SERVER"));
    else
        puts("test_calls: SKIPPED the real server: ENABLE_SERVER is not set");
    if (getenv("ENABLE_SERVER") != NULL && getenv("ENABLE_TOKEN_FILE") != NULL)
        a_real_server_takes_structs(getenv("ENABLE_SERVER"), getenv("ENABLE_TOKEN_FILE"));
    else
        puts("test_calls: SKIPPED changes at the real server: ENABLE_SERVER or ENABLE_TOKEN_FILE is not set");
    puts("test_calls: ok");
    return 0;
}
