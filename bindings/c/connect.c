/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "connect.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

long long enable_http_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enable_status enable_connect_wait(int socket, short events, long long deadline)
{
    struct pollfd watched;
    watched.fd = socket;
    watched.events = events;
    for (;;) {
        long long left = deadline - enable_http_now();
        if (left <= 0)
            return ENABLE_TIMED_OUT;
        watched.revents = 0;
        int ready = poll(&watched, 1, (int)left);
        if (ready > 0)
            return ENABLE_OK;
        if (ready < 0 && errno != EINTR)
            return ENABLE_NO_RESOURCES;
    }
}

/* Connects a socket; returns 0, or an error number: ETIMEDOUT at the deadline. */
static int connect_before(int fd, const struct addrinfo *address, long long deadline)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return errno;
#ifdef SO_NOSIGPIPE
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return 0;
    /* A connection that a signal interrupts goes on in the background. */
    if (errno != EINPROGRESS && errno != EINTR)
        return errno;
    enable_status waited = enable_connect_wait(fd, ENABLE_WRITABLE, deadline);
    if (waited != ENABLE_OK)
        return waited == ENABLE_TIMED_OUT ? ETIMEDOUT : ENOMEM;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        return errno;
    return error;
}

static enable_status status_of(int error)
{
    switch (error) {
    case ETIMEDOUT:
        return ENABLE_TIMED_OUT;
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
        return ENABLE_NO_RESOURCES;
    default:
        return ENABLE_NO_SERVER;
    }
}

enable_status enable_connect(const struct server *server, long long deadline, int *connected, const char **reason,
                             char space[128])
{
    struct addrinfo hints;
    struct addrinfo *addresses = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    int resolved = getaddrinfo(server->host, server->port, &hints, &addresses);
    if (resolved != 0) {
        *reason = gai_strerror(resolved);
        return resolved == EAI_MEMORY ? ENABLE_NO_RESOURCES : ENABLE_NO_SERVER;
    }
    int left = 0;
    int timed_out = 0;
    int error = ECONNREFUSED;
    for (const struct addrinfo *address = addresses; address != NULL; address = address->ai_next)
        left++;
    for (const struct addrinfo *address = addresses; address != NULL; address = address->ai_next, left--) {
        long long now = enable_http_now();
        int fd = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
        if (fd < 0) {
            error = errno;
            continue;
        }
        /* Each address has its share of the time, so that a dead one does not use it up. */
        error = now >= deadline ? ETIMEDOUT : connect_before(fd, address, now + (deadline - now + left - 1) / left);
        if (error == 0) {
            freeaddrinfo(addresses);
            *connected = fd;
            return ENABLE_OK;
        }
        timed_out |= error == ETIMEDOUT;
        close(fd);
    }
    freeaddrinfo(addresses);
    if (strerror_r(error, space, 128) != 0)
        strcpy(space, "the connection failed");
    *reason = space;
    return timed_out ? ENABLE_TIMED_OUT : status_of(error);
}
