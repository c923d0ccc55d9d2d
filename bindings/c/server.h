/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The name of a server. */
#ifndef ENABLE_SERVER_H
#define ENABLE_SERVER_H

struct server {
    /* Name or address, without brackets. */
    char host[254];
    /* Decimal. */
    char port[6];
    /* HOST:PORT or [ADDRESS]:PORT, for the Host field and for people. */
    char shown[264];
};

/* Reads HOST, HOST:PORT, [ADDRESS]:PORT or http://HOST:PORT; `port` is used if the name has none. Returns 0 if the text is
 * no server. */
int enable_server_read(struct server *server, const char *text, unsigned port);

#endif
