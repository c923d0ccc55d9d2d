/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Connects to a server before a deadline. */
#ifndef ENABLE_CONNECT_H
#define ENABLE_CONNECT_H

#include <poll.h>

#include "enable.h"
#include "server.h"

#define ENABLE_READABLE POLLIN
#define ENABLE_WRITABLE POLLOUT

/* Waits for events of poll(2): ENABLE_OK, ENABLE_TIMED_OUT or ENABLE_NO_RESOURCES. */
enable_status enable_connect_wait(int socket, short events, long long deadline);

/* Connects to the first address that answers. On ENABLE_OK `*connected` is a socket that does not block; otherwise
 * `*reason` says why, perhaps in `space`. */
enable_status enable_connect(const struct server *server, long long deadline, int *connected, const char **reason,
                             char space[128]);

#endif
