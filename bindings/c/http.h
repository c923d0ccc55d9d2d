/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Posts one request and reads the response, within one deadline and within bounds. */
#ifndef ENABLE_HTTP_H
#define ENABLE_HTTP_H

#include "bytes.h"
#include "enable.h"
#include "server.h"

/* Milliseconds of a clock that does not step. */
long long enable_http_now(void);

/*
 * Sends `body` to /RPC2 before the time `deadline`. On ENABLE_OK `*status` is the HTTP status, and `response` the body if the
 * status is 2xx. On other outcomes `*reason` says why; it lives as long as the program or `space`.
 */
enable_status enable_http_post(const struct server *server, const char *token, const struct bytes *body,
                               long long deadline, int *status, struct bytes *response, const char **reason,
                               char space[128]);

#endif
