/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "http.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"
#include "connect.h"

/* Most bytes of all heads of a response: the interim ones and the last. */
#define MAX_HEAD (64 * 1024)
/* Longest line of a head. */
#define MAX_LINE 8192

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

struct wire {
    int socket;
    long long deadline;
    size_t head_bytes;
    int received;
    /* The outcome, once it is not ENABLE_OK. */
    enable_status outcome;
    const char *reason;
    size_t at;
    size_t filled;
    char buffer[8192];
};

static int fail(struct wire *wire, enable_status outcome, const char *reason)
{
    if (wire->outcome == ENABLE_OK) {
        wire->outcome = outcome;
        wire->reason = reason;
    }
    return 0;
}

/* A connection that ends before any byte of an answer is that of no server. */
static int fail_lost(struct wire *wire, const char *reason)
{
    return fail(wire, wire->received ? ENABLE_BAD_ANSWER : ENABLE_NO_SERVER, reason);
}

static int wait_for(struct wire *wire, short events)
{
    enable_status waited = enable_connect_wait(wire->socket, events, wire->deadline);
    return waited == ENABLE_OK ? 1 : fail(wire, waited, "waiting for the connection failed");
}

static int send_all(struct wire *wire, const struct bytes *bytes)
{
    for (size_t sent = 0; sent < bytes->length;) {
        ssize_t count = send(wire->socket, bytes->data + sent, bytes->length - sent, MSG_NOSIGNAL);
        if (count >= 0)
            sent += (size_t)count;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(wire, ENABLE_WRITABLE))
                return 0;
        } else if (errno != EINTR)
            return fail_lost(wire, "the connection was lost");
    }
    return 1;
}

/* Receives into the empty buffer. Returns 0 at the end of the connection and on failure. */
static int fill(struct wire *wire)
{
    /* Also where bytes are always there, the call has an end. */
    if (enable_http_now() >= wire->deadline)
        return fail(wire, ENABLE_TIMED_OUT, NULL);
    for (;;) {
        ssize_t count = recv(wire->socket, wire->buffer, sizeof wire->buffer, 0);
        if (count > 0) {
            wire->at = 0;
            wire->filled = (size_t)count;
            wire->received = 1;
            return 1;
        }
        if (count == 0)
            return 0;
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(wire, ENABLE_READABLE))
                return 0;
        } else if (errno != EINTR)
            return fail_lost(wire, "the connection was lost");
    }
}

/* Reads a line without its end. */
static int read_line(struct wire *wire, char line[MAX_LINE])
{
    size_t length = 0;
    for (;;) {
        if (wire->at == wire->filled && !fill(wire))
            return fail_lost(wire, "the connection ended before an answer");
        char c = wire->buffer[wire->at++];
        if (c == '\n')
            break;
        if (length + 1 >= MAX_LINE || ++wire->head_bytes > MAX_HEAD)
            return fail(wire, ENABLE_BAD_ANSWER, "the head of the response is too long");
        line[length++] = c == '\0' ? '?' : c;
    }
    if (length > 0 && line[length - 1] == '\r')
        length--;
    line[length] = '\0';
    return 1;
}

/* Reads `count` bytes of the body. */
static int read_body(struct wire *wire, size_t count, struct bytes *body)
{
    if (count > ENABLE_MAX_BODY - body->length)
        return fail(wire, ENABLE_BAD_ANSWER, "longer than 262144 bytes");
    while (count > 0) {
        if (wire->at == wire->filled && !fill(wire))
            return fail(wire, ENABLE_BAD_ANSWER, "the answer is cut off");
        size_t part = wire->filled - wire->at < count ? wire->filled - wire->at : count;
        enable_bytes_add(body, wire->buffer + wire->at, part);
        wire->at += part;
        count -= part;
    }
    return 1;
}

static int read_body_to_end(struct wire *wire, struct bytes *body)
{
    for (;;) {
        if (wire->at == wire->filled && !fill(wire))
            return wire->outcome == ENABLE_OK;
        if (!read_body(wire, wire->filled - wire->at, body))
            return 0;
    }
}

static int read_chunks(struct wire *wire, struct bytes *body)
{
    char line[MAX_LINE];
    for (;;) {
        if (!read_line(wire, line))
            return 0;
        /* The bound of a head is for heads: each chunk adds to the body, which has its own. */
        wire->head_bytes = 0;
        size_t digits = strspn(line, "0123456789abcdefABCDEF");
        if (digits == 0 || digits > 6 || strchr("; \t", line[digits]) == NULL)
            return fail(wire, ENABLE_BAD_ANSWER, "an invalid chunk");
        size_t size = 0;
        for (size_t i = 0; i < digits; i++) {
            char c = line[i];
            size = size * 16 + (size_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        if (size == 0)
            break;
        if (!read_body(wire, size, body) || !read_line(wire, line))
            return 0;
        if (line[0] != '\0')
            return fail(wire, ENABLE_BAD_ANSWER, "an invalid chunk");
    }
    do {
        if (!read_line(wire, line))
            return 0;
    } while (line[0] != '\0');
    return 1;
}

/* What the fields of a head say of the body. */
struct framing {
    /* LLONG_MAX: up to the end of the connection. */
    long long length;
    int chunked;
};

static int read_field(struct wire *wire, const char *line, struct framing *framing)
{
    const char *colon = strchr(line, ':');
    if (colon == NULL)
        return fail(wire, ENABLE_BAD_ANSWER, "not an HTTP response");
    size_t name = (size_t)(colon - line);
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t length = strcspn(value, " \t");
    if (value[length + strspn(value + length, " \t")] != '\0')
        length = 0;
    if (name == 14 && strncasecmp(line, "Content-Length", name) == 0) {
        if (length == 0 || length > 9 || strspn(value, "0123456789") != length || framing->length != LLONG_MAX)
            return fail(wire, ENABLE_BAD_ANSWER, "an invalid Content-Length");
        framing->length = 0;
        for (size_t i = 0; i < length; i++)
            framing->length = framing->length * 10 + (value[i] - '0');
    } else if (name == 17 && strncasecmp(line, "Transfer-Encoding", name) == 0) {
        if (length != 7 || strncasecmp(value, "chunked", 7) != 0 || framing->chunked)
            return fail(wire, ENABLE_BAD_ANSWER, "an unknown Transfer-Encoding");
        framing->chunked = 1;
    }
    return 1;
}

/* Reads a head and returns its status; 0 on failure. */
static int read_head(struct wire *wire, struct framing *framing)
{
    char line[MAX_LINE];
    framing->length = LLONG_MAX;
    framing->chunked = 0;
    if (!read_line(wire, line))
        return 0;
    if (strncmp(line, "HTTP/1.", 7) != 0 || line[7] < '0' || line[7] > '9' || line[8] != ' ' || line[9] < '1' ||
        line[9] > '5' || strspn(line + 10, "0123456789") < 2 || (line[12] != ' ' && line[12] != '\0'))
        return fail(wire, ENABLE_BAD_ANSWER, "not an HTTP response");
    int status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    for (;;) {
        if (!read_line(wire, line))
            return 0;
        if (line[0] == '\0')
            return status;
        if (status >= 200 && status < 300 && !read_field(wire, line, framing))
            return 0;
    }
}

static int read_response(struct wire *wire, int *status, struct bytes *body)
{
    struct framing framing;
    do
        *status = read_head(wire, &framing);
    while (*status >= 100 && *status < 200);
    if (*status == 0)
        return 0;
    if (*status >= 300)
        return 1;
    if (framing.chunked)
        return read_chunks(wire, body);
    if (*status == 204)
        return 1;
    if (framing.length == LLONG_MAX)
        return read_body_to_end(wire, body);
    return read_body(wire, (size_t)framing.length, body);
}

static void write_request(struct bytes *request, const struct server *server, const char *token,
                          const struct bytes *body)
{
    char length[32];
    snprintf(length, sizeof length, "%lu", (unsigned long)body->length);
    enable_bytes_add_text(request, "POST /RPC2 HTTP/1.1\r\nHost: ");
    enable_bytes_add_text(request, server->shown);
    enable_bytes_add_text(request, "\r\nUser-Agent: libenable/0.1.0\r\nContent-Type: text/xml\r\nConnection: close\r\n");
    if (token != NULL) {
        enable_bytes_add_text(request, "Authorization: Bearer ");
        enable_bytes_add_text(request, token);
        enable_bytes_add_text(request, "\r\n");
    }
    enable_bytes_add_text(request, "Content-Length: ");
    enable_bytes_add_text(request, length);
    enable_bytes_add_text(request, "\r\n\r\n");
    enable_bytes_add(request, body->data, body->length);
}

enable_status enable_http_post(const struct server *server, const char *token, const struct bytes *body,
                               long long deadline, int *status, struct bytes *response, const char **reason,
                               char space[128])
{
    struct wire wire;
    struct bytes request = {0};
    write_request(&request, server, token, body);
    if (request.failed) {
        enable_bytes_clear(&request);
        return ENABLE_NO_RESOURCES;
    }
    memset(&wire, 0, sizeof wire);
    wire.deadline = deadline;
    enable_status connected = enable_connect(server, deadline, &wire.socket, reason, space);
    if (connected == ENABLE_OK) {
        if (send_all(&wire, &request) && read_response(&wire, status, response) && response->failed)
            fail(&wire, ENABLE_NO_RESOURCES, NULL);
        close(wire.socket);
        connected = wire.outcome;
        *reason = wire.reason;
    }
    enable_bytes_clear(&request);
    return connected;
}
