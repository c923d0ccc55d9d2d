/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Longest head of a response, bytes. */
#define MAX_HEAD (16 * 1024)
#define MAX_URL 4096

static pthread_once_t started = PTHREAD_ONCE_INIT;

static void start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static size_t take_field(char *data, size_t size, size_t count, void *to)
{
    struct response *response = to;
    (void)data;
    response->head += size * count;
    if (response->head <= MAX_HEAD)
        return size * count;
    response->problem = "the head of the response is too long";
    return 0;
}

static size_t take_body(char *data, size_t size, size_t count, void *to)
{
    struct response *response = to;
    if (size * count > sizeof response->body - response->length) {
        response->problem = "longer than 262144 bytes";
        return 0;
    }
    memcpy(response->body + response->length, data, size * count);
    response->length += size * count;
    return size * count;
}

/* Sets all that a request needs; 0 if memory ran out. */
static int prepare(CURL *curl, const struct server *server, const struct request *request, struct response *response,
                   struct curl_slist **fields)
{
    char url[MAX_URL];
    char authorization[2048];
    const char *wanted[3];
    size_t count = 0;
    if (request->body != NULL)
        wanted[count++] = "Content-Type: application/json";
    if (request->token != NULL) {
        snprintf(authorization, sizeof authorization, "Authorization: Bearer %s", request->token);
        wanted[count++] = authorization;
    }
    /* Without it, libcurl would wait for an interim status before it sends a body. */
    wanted[count++] = "Expect:";
    for (size_t i = 0; i < count; i++) {
        struct curl_slist *longer = curl_slist_append(*fields, wanted[i]);
        if (longer == NULL)
            return 0;
        *fields = longer;
    }
    snprintf(url, sizeof url, "http://%s%s", server->shown, request->path);
    if (request->body != NULL || strcmp(request->method, "POST") == 0)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body == NULL ? "" : request->body);
    /* No signal, as other threads run; no proxy, whatever the environment says; no resource above the one that is meant, if
     * an argument is `..`. */
    return curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *fields) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_USERAGENT, "libenable/0.1.0") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)ENABLE_MAX_BODY) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, response->reason) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_field) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_HEADERDATA, response) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEDATA, response) == CURLE_OK;
}

static enable_status outcome(CURLcode result, long status, long system_error)
{
    if (system_error == EMFILE || system_error == ENFILE)
        return ENABLE_NO_RESOURCES;
    switch (result) {
    case CURLE_OK:
        return ENABLE_OK;
    case CURLE_OPERATION_TIMEDOUT:
        return ENABLE_TIMED_OUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
        return ENABLE_NO_SERVER;
    case CURLE_RECV_ERROR:
        return status == 0 ? ENABLE_NO_SERVER : ENABLE_BAD_ANSWER;
    case CURLE_FAILED_INIT:
        return ENABLE_NO_RESOURCES;
    case CURLE_OUT_OF_MEMORY:
        /* Before version 8.6, also a field of more than 100 KiB. */
        return status == 0 ? ENABLE_NO_RESOURCES : ENABLE_BAD_ANSWER;
    default:
        return ENABLE_BAD_ANSWER;
    }
}

enable_status enable_http_send(const struct server *server, const struct request *request, struct response *response)
{
    struct curl_slist *fields = NULL;
    long system_error = 0;
    pthread_once(&started, start);
    CURL *curl = curl_easy_init();
    CURLcode result = CURLE_FAILED_INIT;
    if (curl != NULL && prepare(curl, server, request, response, &fields)) {
        result = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &response->status);
        curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &system_error);
        /* The status says enough, whatever is wrong with the page that explains it. */
        if (result != CURLE_OPERATION_TIMEDOUT && response->status >= 300)
            result = CURLE_OK;
    }
    curl_easy_cleanup(curl);
    curl_slist_free_all(fields);
    if (response->problem == NULL)
        response->problem = response->reason[0] != '\0' ? response->reason : curl_easy_strerror(result);
    return outcome(result, response->status, system_error);
}
