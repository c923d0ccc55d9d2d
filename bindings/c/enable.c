/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "enable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http.h"
#include "processor.h"
#include "server.h"
#include "text.h"
#include "value.h"

#define MAX_TIMEOUT_MS 86400000U
#define MAX_TOKEN 1024
#define MAX_PATH 2048
/* Size of the question of the first version. */
#define FIRST_QUESTION (offsetof(enable_question, max_streams) + sizeof(uint64_t))

/* One call of one server. */
struct call {
    struct server server;
    const char *name;
    struct request request;
    char token[MAX_TOKEN + 1];
    /* Path and query. */
    char path[MAX_PATH];
    enable_error *error;
};

static void tell(enable_error *error, int code, const char *message)
{
    if (error == NULL)
        return;
    error->code = code;
    enable_text_printable(error->message, sizeof error->message, message);
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
                 call->request.timeout_ms);
        break;
    case ENABLE_REFUSED:
        snprintf(message, sizeof message, "the advice server at %s refused %s: %s", shown, call->name, reason);
        break;
    case ENABLE_BAD_ANSWER:
        snprintf(message, sizeof message, "%s did not answer %s as an advice server does: %s", shown, call->name,
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

/* Begins a call of the method `name`. */
static enable_status begin(struct call *call, const char *host, const char *name, const enable_options *options,
                           enable_error *error)
{
    static const enable_options defaults = {0, 0, NULL};
    memset(call, 0, sizeof *call);
    call->error = error;
    call->name = name;
    call->request.path = call->path;
    tell(error, 0, "");
    if (options == NULL)
        options = &defaults;
    call->request.timeout_ms = options->timeout_ms == 0 ? ENABLE_DEFAULT_TIMEOUT_MS : options->timeout_ms;
    if (call->request.timeout_ms > MAX_TIMEOUT_MS)
        return unusable(error, "the time-out is longer than a day");
    if (host == NULL || !enable_server_read(&call->server, host, options->port == 0 ? ENABLE_DEFAULT_PORT : options->port))
        return unusable(error, "no advice server: name a host, HOST:PORT, or http://HOST:PORT");
    if (options->token != NULL && !read_token(call->token, options->token))
        return unusable(error, "the token must be 1 to 1024 visible ASCII characters");
    call->request.token = call->token[0] == '\0' ? NULL : call->token;
    return name == NULL ? unusable(error, "the method has no name") : ENABLE_OK;
}

/* Adds to the path. */
static enable_status add(struct call *call, const char *text, size_t length)
{
    size_t used = strlen(call->path);
    if (length >= sizeof call->path - used)
        return ENABLE_BAD_ARGUMENT;
    memcpy(call->path + used, text, length);
    call->path[used + length] = '\0';
    return ENABLE_OK;
}

/* Adds text of the caller to the path, escaped. Control characters are not sent. */
static enable_status add_escaped(struct call *call, const char *text)
{
    size_t length = strlen(text);
    if (length >= MAX_PATH)
        return ENABLE_BAD_ARGUMENT;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == '\x7f')
            return ENABLE_BAD_ARGUMENT;
    char *escaped = curl_easy_escape(NULL, text, (int)length);
    if (escaped == NULL)
        return ENABLE_NO_RESOURCES;
    enable_status status = add(call, escaped, strlen(escaped));
    curl_free(escaped);
    return status;
}

/* Adds a member of the query, which is a string, a number or a boolean. */
static enable_status add_member(struct call *call, const char *name, json_t *value)
{
    char *written = NULL;
    if (json_is_object(value) || json_is_array(value))
        return ENABLE_BAD_ARGUMENT;
    enable_status status = add(call, strchr(call->path, '?') == NULL ? "?" : "&", 1);
    if (status == ENABLE_OK)
        status = add_escaped(call, name);
    if (status == ENABLE_OK)
        status = add(call, "=", 1);
    if (status == ENABLE_OK && !json_is_string(value))
        status = enable_value_write(value, &written);
    if (status == ENABLE_OK)
        status = add_escaped(call, written != NULL ? written : json_string_value(value));
    free(written);
    return status;
}

/* The code of a refusal whose body says why. The interface knows statuses of HTTP alone. */
static int code_of(long status)
{
    switch (status) {
    case 400:
        return ENABLE_FAULT_ARGUMENTS;
    case 401:
        return ENABLE_FAULT_FORBIDDEN;
    default:
        return (int)status;
    }
}

/* What the response says: on ENABLE_OK, `*answer`. */
static enable_status read_response(const struct call *call, const struct response *response, json_t **answer)
{
    char problem[JSON_ERROR_TEXT_LENGTH];
    char text[32];
    json_t *value = enable_value_read(response->body, response->length, problem);
    if (response->status >= 200 && response->status < 300) {
        *answer = value;
        if (value != NULL)
            return ENABLE_OK;
        return failed(call, problem[0] == '\0' ? ENABLE_NO_RESOURCES : ENABLE_BAD_ANSWER, 0, problem);
    }
    const char *reason = json_string_value(json_object_get(value, "error"));
    snprintf(text, sizeof text, "HTTP status %ld", response->status);
    enable_status status = reason != NULL ? failed(call, ENABLE_REFUSED, code_of(response->status), reason)
                                          : failed(call, ENABLE_REFUSED, (int)response->status, text);
    json_decref(value);
    return status;
}

/* Sends the call and reads the answer, which is a struct. */
static enable_status finish(struct call *call, json_t **answer)
{
    json_t *value = NULL;
    struct response *response = calloc(1, sizeof *response);
    if (response == NULL)
        return failed(call, ENABLE_NO_RESOURCES, 0, "");
    enable_status status = enable_http_send(&call->server, &call->request, response);
    if (status == ENABLE_OK)
        status = read_response(call, response, &value);
    else
        failed(call, status, 0, response->problem);
    free(response);
    if (status == ENABLE_OK && json_is_object(value)) {
        *answer = value;
        return ENABLE_OK;
    }
    json_decref(value);
    return status == ENABLE_OK ? failed(call, ENABLE_BAD_ANSWER, 0, "the answer is not a struct") : status;
}

/* A method of the service as the interface offers it. */
struct method {
    const char *name;
    const char *http;
    /* The resource below /api/v1, with '*' in the places of arguments. */
    const char *path;
    /* Its arguments, a letter each: s: the data server, which is not sent; p: text that belongs into the path; c: the text
     * of the member `client`; m: a struct of members; e: c or m. Members are sent as query or body. */
    const char *arguments;
    /* Least number of arguments. */
    size_t min;
    /* The member that is the result, and the one in its place where that is absent; NULL: the whole answer. */
    const char *result;
    const char *otherwise;
};

static const struct method METHODS[] = {
    {"EnableGetBufferSize", "GET", "advice", "sc", 1, "bdp_bytes", "set_buffer_bytes"},
    {"EnableGetStreams", "GET", "advice", "sc", 1, "streams", NULL},
    {"EnableGetNetInfo", "GET", "net-info", "sc", 1, NULL, NULL},
    {"EnableGetAdvice", "GET", "advice", "sm", 1, NULL, NULL},
    {"EnableGetQoS", "GET", "qos", "se", 1, NULL, NULL},
    {"EnableListHosts", "GET", "hosts?limit=500", "s", 0, "hosts", NULL},
    {"EnableAddHost", "POST", "hosts", "c", 1, "changed", NULL},
    {"EnableRemoveHost", "DELETE", "hosts/*", "p", 1, "changed", NULL},
    {"EnableSetTests", "PUT", "hosts/*/tests", "pm", 2, "changed", NULL},
    {"EnableRunTest", "POST", "hosts/*/tests/*", "pp", 2, "changed", NULL},
    {"EnableReport", "POST", "report", "m", 1, "changed", NULL},
};

/* Takes the result of a method out of its answer. */
static enable_status take_result(const struct call *call, const struct method *method, json_t *answer, json_t **result)
{
    json_t *found = answer;
    if (method->result != NULL)
        found = json_object_get(answer, method->result);
    if (found == NULL && method->otherwise != NULL)
        found = json_object_get(answer, method->otherwise);
    const char *why = json_string_value(json_object_get(answer, "why"));
    enable_status status = ENABLE_OK;
    if (found != NULL)
        *result = json_incref(found);
    else if (why != NULL)
        status = failed(call, ENABLE_REFUSED, ENABLE_FAULT_UNKNOWN_PATH, why);
    else
        status = failed(call, ENABLE_BAD_ANSWER, 0, "the answer has no result");
    json_decref(answer);
    return status;
}

/* Whether these are the arguments of a method by number and type. */
static int fits(const struct method *method, const json_t *arguments)
{
    size_t count = json_array_size(arguments);
    if (count < method->min || count > strlen(method->arguments))
        return 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *argument = json_array_get(arguments, i);
        char letter = method->arguments[i];
        int text = letter != 'm';
        int members = letter == 'm' || letter == 'e';
        if (!(text && json_is_string(argument)) && !(members && json_is_object(argument)))
            return 0;
    }
    return 1;
}

/* Makes the path of the resource. `*members` are the members to send, or NULL, and to be released. */
static enable_status add_resource(struct call *call, const struct method *method, const json_t *arguments, json_t **members)
{
    static const char root[] = "/api/v1/";
    const char *path = method->path;
    enable_status status = add(call, root, strlen(root));
    for (size_t i = 0; i < json_array_size(arguments) && status == ENABLE_OK; i++) {
        json_t *argument = json_array_get(arguments, i);
        size_t length = strcspn(path, "*");
        if (method->arguments[i] == 'p') {
            status = add(call, path, length);
            if (status == ENABLE_OK)
                status = add_escaped(call, json_string_value(argument));
            path += length + 1;
        } else if (method->arguments[i] != 's') {
            *members = json_is_object(argument) ? json_incref(argument) : json_pack("{s:O}", "client", argument);
            status = *members == NULL ? ENABLE_NO_RESOURCES : ENABLE_OK;
        }
    }
    return status == ENABLE_OK ? add(call, path, strlen(path)) : status;
}

/* Adds members to the query or makes the body of them, which is to be freed. */
static enable_status add_members(struct call *call, json_t *members, char **body)
{
    enable_status status = ENABLE_OK;
    const char *name;
    json_t *value;
    if (strcmp(call->request.method, "GET") != 0) {
        status = enable_value_write(members, body);
        call->request.body = *body;
        return status;
    }
    json_object_foreach(members, name, value) {
        status = add_member(call, name, value);
        if (status != ENABLE_OK)
            break;
    }
    return status;
}

/* Calls a method of the table. */
static enable_status call_method(struct call *call, const struct method *method, const json_t *arguments, json_t **result)
{
    json_t *members = NULL;
    json_t *answer = NULL;
    char *body = NULL;
    if (!fits(method, arguments))
        return failed(call, ENABLE_REFUSED, ENABLE_FAULT_ARGUMENTS, "it takes other arguments");
    call->request.method = method->http;
    enable_status status = add_resource(call, method, arguments, &members);
    if (status == ENABLE_OK && members != NULL)
        status = add_members(call, members, &body);
    status = status == ENABLE_OK ? finish(call, &answer) : failed(call, status, 0, "");
    json_decref(members);
    free(body);
    return status == ENABLE_OK ? take_result(call, method, answer, result) : status;
}

/* Names of the methods that can be called. */
static enable_status list_methods(const struct call *call, json_t **result)
{
    json_t *names = json_array();
    int failures = names == NULL;
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++)
        failures += json_array_append_new(names, json_string(METHODS[i].name)) != 0;
    failures += json_array_append_new(names, json_string("system.listMethods")) != 0;
    if (failures > 0) {
        json_decref(names);
        return failed(call, ENABLE_NO_RESOURCES, 0, "");
    }
    *result = names;
    return ENABLE_OK;
}

enable_status enable_call_values(const char *host, const char *method, const enable_value *arguments,
                                 const enable_options *options, enable_value **answer, enable_error *error)
{
    struct call call;
    const struct method *found = NULL;
    const json_t *values = (const json_t *)arguments;
    json_t *result = NULL;
    enable_status status = begin(&call, host, method, options, error);
    if (status != ENABLE_OK)
        return status;
    if (!json_is_array(values))
        return unusable(error, "the arguments are not an array");
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++)
        if (strcmp(METHODS[i].name, method) == 0)
            found = &METHODS[i];
    if (found != NULL)
        status = call_method(&call, found, values, &result);
    else if (strcmp(method, "system.listMethods") == 0)
        status = list_methods(&call, &result);
    else
        status = failed(&call, ENABLE_REFUSED, ENABLE_FAULT_NO_METHOD, "there is no such method");
    if (status == ENABLE_OK)
        *answer = (enable_value *)result;
    return status;
}

enable_status enable_call(const char *host, const char *method, const char *const *arguments, size_t count,
                          const enable_options *options, enable_value **answer, enable_error *error)
{
    enable_value *values = enable_array();
    int complete = values != NULL;
    for (size_t i = 0; i < count; i++)
        complete &= enable_array_add(values, enable_string(arguments[i]));
    enable_status status = complete ? enable_call_values(host, method, values, options, answer, error)
                                    : unusable(error, "an argument is not UTF-8, or memory ran out");
    enable_value_free(values);
    return status;
}

enable_status enable_get_buffer_size(const char *host, const char *client, const enable_options *options,
                                     int64_t *bytes, enable_error *error)
{
    const char *arguments[] = {"", client};
    enable_value *answer = NULL;
    enable_status status = enable_call(host, "EnableGetBufferSize", arguments, client == NULL ? 1 : 2, options, &answer, error);
    int64_t size;
    if (status != ENABLE_OK)
        return status;
    if (enable_value_integer(answer, &size) && size >= 0) {
        *bytes = size;
    } else {
        status = ENABLE_BAD_ANSWER;
        tell(error, 0, "the buffer in the answer is not a whole number that is 0 or more");
    }
    enable_value_free(answer);
    return status;
}

enable_status enable_get_net_info(const char *host, const char *client, const enable_options *options,
                                  enable_value **info, enable_error *error)
{
    const char *arguments[] = {"", client};
    return enable_call(host, "EnableGetNetInfo", arguments, client == NULL ? 1 : 2, options, info, error);
}

/* A question that was compiled with this header or another version of it; returns 0 if it tells what is not known here. */
static int take_question(const enable_question *question, enable_question *taken)
{
    const unsigned char *bytes = (const unsigned char *)question;
    *taken = enable_new_question();
    if (question == NULL)
        return 1;
    if (question->size < FIRST_QUESTION)
        return 0;
    for (size_t i = sizeof *taken; i < question->size; i++)
        if (bytes[i] != 0)
            return 0;
    memcpy(taken, question, question->size < sizeof *taken ? question->size : sizeof *taken);
    return 1;
}

/* Sets what a question tells in a struct; returns 0 if something cannot be sent. */
static int tell_question(enable_value *told, const enable_question *question)
{
    struct processor processor = {question->processor_bps, question->processor_cores};
    if (question->client == NULL && processor.bps == 0)
        processor = enable_own_processor();
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"bytes", question->bytes},
        {"files", question->files},
        {"max_receive_buffer", question->max_receive_buffer},
        {"max_send_buffer", question->max_send_buffer},
        {"max_set_buffer", question->max_set_buffer},
        {"client_bps", question->client_bps},
        {"processor_bps", processor.bps},
        {"processor_cores", processor.cores},
        {"max_streams", question->max_streams},
    };
    if (question->client != NULL && !enable_struct_set(told, "client", enable_string(question->client)))
        return 0;
    if (question->direction == ENABLE_UPLOAD && !enable_struct_set(told, "direction", enable_string("upload")))
        return 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value >= ENABLE_MAX_WHOLE ||
            (numbers[i].value > 0 && !enable_struct_set(told, numbers[i].name, enable_number((double)numbers[i].value))))
            return 0;
    return !question->must_set_buffer || enable_struct_set(told, "must_set_buffer", enable_boolean(1));
}

/* The arguments of EnableGetAdvice; NULL if something cannot be sent. */
static enable_value *arguments_of(const enable_question *question)
{
    enable_value *arguments = enable_array();
    enable_value *told = enable_struct();
    int complete = tell_question(told, question);
    complete &= enable_array_add(arguments, enable_string(""));
    complete &= enable_array_add(arguments, told);
    if (complete)
        return arguments;
    enable_value_free(arguments);
    return NULL;
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
           read_whole(answer, "download_bps", &advice->download_bps) &&
           read_whole(answer, "upload_bps", &advice->upload_bps) &&
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
    enable_question taken;
    enable_value *answer = NULL;
    if (!take_question(question, &taken))
        return unusable(error, "the question is not one of enable_new_question, or tells what this library does not know");
    enable_value *arguments = arguments_of(&taken);
    if (arguments == NULL)
        return unusable(error, "the client of the question is not UTF-8, a number is 2^53 or more, or memory ran out");
    enable_status status = enable_call_values(host, "EnableGetAdvice", arguments, options, &answer, error);
    enable_value_free(arguments);
    if (status != ENABLE_OK)
        return status;
    struct held_advice *held = calloc(1, sizeof *held);
    if (held != NULL && read_advice(answer, &held->advice)) {
        held->advice.size = sizeof held->advice;
        held->answer = answer;
        *advice = &held->advice;
        return ENABLE_OK;
    }
    status = held == NULL ? ENABLE_NO_RESOURCES : ENABLE_BAD_ANSWER;
    tell(error, 0, held == NULL ? enable_status_text(status) : "a member of the advice has the wrong type");
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
