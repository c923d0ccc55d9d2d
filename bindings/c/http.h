/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* One request and its response, within a time and within bounds. */
#ifndef ENABLE_HTTP_H
#define ENABLE_HTTP_H

#include <curl/curl.h>

#include "enable.h"
#include "server.h"
#include "value.h"

struct request {
    /* GET, POST, PUT or DELETE. */
    const char *method;
    /* Path and query, escaped. */
    const char *path;
    /* JSON; NULL: none. */
    const char *body;
    /* NULL: none. */
    const char *token;
    unsigned timeout_ms;
};

struct response {
    /* Status of HTTP. */
    long status;
    size_t length;
    char body[ENABLE_MAX_BODY];
    /* Bytes of the fields. */
    size_t head;
    /* Why there is no response. */
    const char *problem;
    char reason[CURL_ERROR_SIZE];
};

/* Sends a request. On ENABLE_OK there is a response of any status; the body is whole if that is below 300. */
enable_status enable_http_send(const struct server *server, const struct request *request, struct response *response);

#endif
