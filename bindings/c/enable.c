/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "enable.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "bytes.h"
#include "http.h"
#include "server.h"
#include "utf8.h"

/* Numbers from here on have no double of their own, and XML-RPC carries large numbers as doubles. */
#define MAX_NUMBER (UINT64_C(1) << 53)
#define MAX_TIMEOUT_MS 86400000U
#define MAX_TOKEN 1024

/* One call of one server. */
struct call {
    struct server server;
    const char *method;
    unsigned timeout_ms;
    char token[MAX_TOKEN + 1];
    /* The body of the request. */
    struct bytes body;
    enable_error *error;
};

static void tell(enable_error *error, int code, const char *message)
{
    if (error == NULL)
        return;
    error->code = code;
    enable_utf8_printable(error->message, sizeof error->message, message);
}

static enable_status failed(const struct call *call, enable_status status, int code, const char *reason)
{
    char message[1024];
    const char *shown = call->server.shown;
    switch (status) {
    case ENABLE_NO_SERVER:
        snprintf(message, sizeof message, "no advice server answers at %s: %s", shown, reason);
        break;
    case ENABLE_TIMED_OUT:
        snprintf(message, sizeof message, "the advice server at %s did not answer within %u ms", shown,
                 call->timeout_ms);
        break;
    case ENABLE_REFUSED:
        snprintf(message, sizeof message, "the advice server at %s refused %s: %s", shown, call->method, reason);
        break;
    case ENABLE_BAD_ANSWER:
        snprintf(message, sizeof message, "%s did not answer %s as an advice server does: %s", shown, call->method,
                 reason);
        break;
    default:
        snprintf(message, sizeof message, "%s", enable_status_text(status));
    }
    tell(call->error, code, message);
    return status;
}

static enable_status unusable(enable_error *error, const char *message)
{
    tell(error, 0, message);
    return ENABLE_BAD_ARGUMENT;
}

/* Copies a token without the white space around it. */
static int read_token(char out[MAX_TOKEN + 1], const char *token)
{
    token += strspn(token, " \t\r\n");
    size_t length = strcspn(token, " \t\r\n");
    if (length == 0 || length > MAX_TOKEN || token[length + strspn(token + length, " \t\r\n")] != '\0')
        return 0;
    for (size_t i = 0; i < length; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return 0;
    memcpy(out, token, length);
    out[length] = '\0';
    return 1;
}

/* Adds text as XML holds it; returns 0 if XML cannot. */
static int add_escaped(struct bytes *out, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        unsigned long point;
        size_t length = enable_utf8_decode(text, left, &point);
        if (length == 0 || !enable_utf8_is_xml(point))
            return 0;
        if (point == '<')
            enable_bytes_add_text(out, "&lt;");
        else if (point == '>')
            enable_bytes_add_text(out, "&gt;");
        else if (point == '&')
            enable_bytes_add_text(out, "&amp;");
        else
            enable_bytes_add(out, text, length);
        text += length;
        left -= length;
    }
    return 1;
}

static int add_string(struct bytes *out, const char *text)
{
    enable_bytes_add_text(out, "<value><string>");
    int added = add_escaped(out, text);
    enable_bytes_add_text(out, "</string></value>");
    return added;
}

/* Begins a call. On failure nothing is left to be freed. */
static enable_status begin(struct call *call, const char *host, const char *method, const enable_options *options,
                           enable_error *error)
{
    static const enable_options defaults = {0, 0, NULL};
    memset(call, 0, sizeof *call);
    call->error = error;
    call->method = method;
    tell(error, 0, "");
    if (options == NULL)
        options = &defaults;
    call->timeout_ms = options->timeout_ms == 0 ? ENABLE_DEFAULT_TIMEOUT_MS : options->timeout_ms;
    if (call->timeout_ms > MAX_TIMEOUT_MS)
        return unusable(error, "the time-out is longer than a day");
    if (host == NULL || !enable_server_read(&call->server, host, options->port == 0 ? ENABLE_DEFAULT_PORT : options->port))
        return unusable(error, "no advice server: name a host, HOST:PORT, or http://HOST:PORT");
    if (options->token != NULL && !read_token(call->token, options->token))
        return unusable(error, "the token must be 1 to 1024 visible ASCII characters");
    enable_bytes_add_text(&call->body, "<?xml version=\"1.0\"?>\n<methodCall><methodName>");
    int added = method != NULL && add_escaped(&call->body, method);
    enable_bytes_add_text(&call->body, "</methodName><params>");
    if (added)
        return ENABLE_OK;
    enable_bytes_clear(&call->body);
    return unusable(error, "the name of the method cannot be sent");
}

/* Begins a call whose first arguments are the data server and, if it is not NULL, the client. */
static enable_status begin_for(struct call *call, const char *host, const char *client, const char *method,
                               const enable_options *options, enable_error *error)
{
    enable_status status = begin(call, host, method, options, error);
    if (status != ENABLE_OK)
        return status;
    enable_bytes_add_text(&call->body, "<param>");
    add_string(&call->body, call->server.host);
    enable_bytes_add_text(&call->body, "</param>");
    if (client == NULL)
        return ENABLE_OK;
    enable_bytes_add_text(&call->body, "<param>");
    int added = add_string(&call->body, client);
    enable_bytes_add_text(&call->body, "</param>");
    if (added)
        return ENABLE_OK;
    enable_bytes_clear(&call->body);
    return unusable(error, "the name of the client cannot be sent");
}

static enable_status refused(const struct call *call, const enable_value *fault)
{
    int64_t code;
    const enable_value *given = enable_value_member(fault, "faultCode");
    const char *text = enable_value_text(enable_value_member(fault, "faultString"));
    if (given == NULL || enable_value_type(given) != ENABLE_INTEGER || !enable_value_integer(given, &code) ||
        code < INT32_MIN || code > INT32_MAX || text == NULL)
        return failed(call, ENABLE_BAD_ANSWER, 0, "the fault has no code or no text");
    return failed(call, ENABLE_REFUSED, (int)code, text);
}

/* Sends the call, reads the answer and ends the call. */
static enable_status finish(struct call *call, enable_value **answer)
{
    struct bytes response = {0};
    char space[128];
    const char *reason = "";
    int http_status = 0;
    long long deadline = enable_http_now() + call->timeout_ms;
    enable_bytes_add_text(&call->body, "</params></methodCall>\n");
    enable_status status = ENABLE_NO_RESOURCES;
    if (!call->body.failed)
        status = enable_http_post(&call->server, call->token[0] == '\0' ? NULL : call->token, &call->body, deadline,
                                  &http_status, &response, &reason, space);
    if (status != ENABLE_OK) {
        failed(call, status, 0, reason);
    } else if (http_status >= 300) {
        char text[32];
        snprintf(text, sizeof text, "HTTP status %d", http_status);
        status = failed(call, ENABLE_REFUSED, http_status, text);
    } else {
        int fault;
        const char *problem;
        enable_value *value = enable_answer_read(response.data == NULL ? "" : response.data, response.length, &fault,
                                                 &problem);
        if (value == NULL) {
            status = failed(call, problem == NULL ? ENABLE_NO_RESOURCES : ENABLE_BAD_ANSWER, 0, problem);
        } else if (fault) {
            status = refused(call, value);
            enable_value_free(value);
        } else {
            *answer = value;
        }
    }
    enable_bytes_clear(&response);
    enable_bytes_clear(&call->body);
    return status;
}

/* Sends the call and reads an answer that is a struct. */
static enable_status finish_struct(struct call *call, enable_value **answer)
{
    enable_value *value = NULL;
    enable_status status = finish(call, &value);
    if (status == ENABLE_OK && enable_value_type(value) != ENABLE_STRUCT) {
        enable_value_free(value);
        return failed(call, ENABLE_BAD_ANSWER, 0, "the answer is not a struct");
    }
    if (status == ENABLE_OK)
        *answer = value;
    return status;
}

enable_status enable_get_buffer_size(const char *host, const char *client, const enable_options *options,
                                     int64_t *bytes, enable_error *error)
{
    struct call call;
    enable_value *answer = NULL;
    int64_t size;
    enable_status status = begin_for(&call, host, client, "EnableGetBufferSize", options, error);
    if (status == ENABLE_OK)
        status = finish(&call, &answer);
    if (status != ENABLE_OK)
        return status;
    if (!enable_value_integer(answer, &size) || size < 0)
        status = failed(&call, ENABLE_BAD_ANSWER, 0, "the answer is not a whole number that is 0 or more");
    else
        *bytes = size;
    enable_value_free(answer);
    return status;
}

enable_status enable_get_net_info(const char *host, const char *client, const enable_options *options,
                                  enable_value **info, enable_error *error)
{
    struct call call;
    enable_status status = begin_for(&call, host, client, "EnableGetNetInfo", options, error);
    return status == ENABLE_OK ? finish_struct(&call, info) : status;
}

enable_status enable_call(const char *host, const char *method, const char *const *arguments, size_t count,
                          const enable_options *options, enable_value **answer, enable_error *error)
{
    struct call call;
    enable_status status = begin(&call, host, method, options, error);
    if (status != ENABLE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        enable_bytes_add_text(&call.body, "<param>");
        if (arguments[i] == NULL || !add_string(&call.body, arguments[i])) {
            enable_bytes_clear(&call.body);
            return unusable(error, "an argument cannot be sent");
        }
        enable_bytes_add_text(&call.body, "</param>");
    }
    return finish(&call, answer);
}

/* Adds the members of a question that are told; returns 0 if one cannot be sent. */
static int add_question(struct bytes *out, const enable_question *question)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"bytes", question->bytes},
        {"files", question->files},
        {"max_receive_buffer", question->max_receive_buffer},
        {"max_set_buffer", question->max_set_buffer},
        {"client_bps", question->client_bps},
        {"max_streams", question->max_streams},
    };
    enable_bytes_add_text(out, "<param><value><struct>");
    if (question->client != NULL) {
        enable_bytes_add_text(out, "<member><name>client</name>");
        if (!add_string(out, question->client))
            return 0;
        enable_bytes_add_text(out, "</member>");
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char member[128];
        const char *type = numbers[i].value > INT32_MAX ? "double" : "int";
        if (numbers[i].value >= MAX_NUMBER)
            return 0;
        if (numbers[i].value == 0)
            continue;
        snprintf(member, sizeof member, "<member><name>%s</name><value><%s>%" PRIu64 "</%s></value></member>",
                 numbers[i].name, type, numbers[i].value, type);
        enable_bytes_add_text(out, member);
    }
    if (question->must_set_buffer)
        enable_bytes_add_text(out, "<member><name>must_set_buffer</name><value><boolean>1</boolean></value></member>");
    enable_bytes_add_text(out, "</struct></value></param>");
    return 1;
}

/* Advice together with the answer that holds its texts. */
struct held_advice {
    enable_advice advice;
    enable_value *answer;
};

/* The functions below read a member that may be absent, and return 0 if it has the wrong type. */

static int read_whole(const enable_value *answer, const char *name, int64_t *out)
{
    const enable_value *member = enable_value_member(answer, name);
    *out = ENABLE_UNKNOWN;
    return member == NULL || (enable_value_integer(member, out) && *out >= 0);
}

static int read_number(const enable_value *answer, const char *name, double absent, double *out)
{
    const enable_value *member = enable_value_member(answer, name);
    *out = absent;
    return member == NULL || (enable_value_number(member, out) && *out >= 0);
}

static int read_string(const enable_value *answer, const char *name, const char *absent, const char **out)
{
    const enable_value *member = enable_value_member(answer, name);
    *out = member == NULL ? absent : enable_value_text(member);
    return member == NULL || *out != NULL;
}

static int read_flag(const enable_value *answer, const char *name, int *out)
{
    const enable_value *member = enable_value_member(answer, name);
    *out = enable_value_is_true(member);
    return member == NULL || enable_value_type(member) == ENABLE_BOOLEAN;
}

static int read_advice(const enable_value *answer, enable_advice *advice)
{
    return read_string(answer, "client", "", &advice->client) &&
           read_whole(answer, "set_buffer_bytes", &advice->set_buffer_bytes) &&
           read_whole(answer, "bdp_bytes", &advice->bdp_bytes) && read_whole(answer, "streams", &advice->streams) &&
           read_string(answer, "congestion_control", NULL, &advice->congestion_control) &&
           read_whole(answer, "pace_bps", &advice->pace_bps) &&
           read_whole(answer, "expected_bps", &advice->expected_bps) &&
           read_whole(answer, "p10_bps", &advice->p10_bps) && read_whole(answer, "p90_bps", &advice->p90_bps) &&
           read_number(answer, "rtt_seconds", ENABLE_UNKNOWN, &advice->rtt_seconds) &&
           read_whole(answer, "bandwidth_bps", &advice->bandwidth_bps) &&
           read_number(answer, "loss", ENABLE_UNKNOWN, &advice->loss) &&
           read_string(answer, "limited_by", NULL, &advice->limited_by) &&
           read_flag(answer, "asymmetric", &advice->asymmetric) &&
           read_number(answer, "confidence", 0, &advice->confidence) &&
           read_number(answer, "age_seconds", ENABLE_UNKNOWN, &advice->age_seconds) &&
           read_string(answer, "measured_by", NULL, &advice->measured_by) &&
           read_string(answer, "why", "", &advice->why);
}

enable_status enable_get_advice(const char *host, const enable_question *question, const enable_options *options,
                                enable_advice **advice, enable_error *error)
{
    struct call call;
    enable_value *answer = NULL;
    enable_status status = begin_for(&call, host, NULL, "EnableGetAdvice", options, error);
    if (status != ENABLE_OK)
        return status;
    if (question != NULL && !add_question(&call.body, question)) {
        enable_bytes_clear(&call.body);
        return unusable(error, "the client of the question cannot be sent, or a number is 2^53 or more");
    }
    status = finish_struct(&call, &answer);
    if (status != ENABLE_OK)
        return status;
    struct held_advice *held = calloc(1, sizeof *held);
    if (held != NULL && read_advice(answer, &held->advice)) {
        held->answer = answer;
        *advice = &held->advice;
        return ENABLE_OK;
    }
    status = held == NULL ? ENABLE_NO_RESOURCES : ENABLE_BAD_ANSWER;
    failed(&call, status, 0, "a member of the advice has the wrong type");
    free(held);
    enable_value_free(answer);
    return status;
}

void enable_advice_free(enable_advice *advice)
{
    /* The advice is the first member of what was allocated. */
    struct held_advice *held = (struct held_advice *)advice;
    if (held == NULL)
        return;
    enable_value_free(held->answer);
    free(held);
}

const char *enable_status_text(enable_status status)
{
    switch (status) {
    case ENABLE_OK:
        return "answered";
    case ENABLE_NO_SERVER:
        return "no advice server answers";
    case ENABLE_TIMED_OUT:
        return "the advice server did not answer in time";
    case ENABLE_REFUSED:
        return "the advice server refused the call";
    case ENABLE_BAD_ANSWER:
        return "the answer is not that of an advice server";
    case ENABLE_BAD_ARGUMENT:
        return "an argument cannot be used";
    case ENABLE_NO_RESOURCES:
        return "memory or descriptors ran out";
    }
    return "unknown outcome";
}
