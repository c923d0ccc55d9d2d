/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* Port of 1 to 5 digits; 0 if the text is none. */
static unsigned port_of(const char *text, size_t length)
{
    unsigned port = 0;
    if (length == 0 || length > 5)
        return 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    return port;
}

static int is_name(const char *host)
{
    for (const char *c = host; *c != '\0'; c++)
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') && !(*c >= '0' && *c <= '9') && *c != '.' &&
            *c != '-' && *c != '_')
            return 0;
    return *host != '\0';
}

static int is_ipv6(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET6, host, &address) == 1;
}

int enable_server_read(struct server *server, const char *text, unsigned port)
{
    char name[300];
    if (strncmp(text, "http://", 7) == 0)
        text += 7;
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '/')
        length--;
    if (length >= sizeof name)
        return 0;
    memcpy(name, text, length);
    name[length] = '\0';
    char *host = name;
    char *colon = strrchr(name, ':');
    int brackets = name[0] == '[';
    /* An IPv6 address without brackets has colons, but no port. */
    if (colon != NULL && !is_ipv6(name) && name[length - 1] != ']') {
        port = port_of(colon + 1, strlen(colon + 1));
        *colon = '\0';
    }
    if (brackets) {
        size_t end = strlen(name);
        if (name[end - 1] != ']')
            return 0;
        name[end - 1] = '\0';
        host = name + 1;
    }
    int ipv6 = is_ipv6(host);
    if (strlen(host) >= sizeof server->host || port < 1 || port > 65535 || (brackets && !ipv6) ||
        (!ipv6 && !is_name(host)))
        return 0;
    strcpy(server->host, host);
    snprintf(server->port, sizeof server->port, "%u", port & 0xffffU);
    snprintf(server->shown, sizeof server->shown, ipv6 ? "[%s]:%s" : "%s:%s", server->host, server->port);
    return 1;
}
