/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "text.h"

#include <jansson.h>
#include <string.h>

/* Length of a character of UTF-8 from its first byte. */
static size_t length_of(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Whether the character steers a terminal: C0, DEL, C1, line and paragraph separators, the marks and controls of direction. */
static int steers(const unsigned char *at)
{
    switch (at[0]) {
    case 0xc2:
        return at[1] < 0xa0;
    case 0xd8:
        return at[1] == 0x9c;
    case 0xe2:
        return (at[1] == 0x80 && (at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae))) ||
               (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9);
    case 0xef:
        return at[1] == 0xbb && at[2] == 0xbf;
    default:
        return at[0] < ' ' || at[0] == 0x7f;
    }
}

void enable_text_printable(char *out, size_t size, const char *text)
{
    json_t *utf8 = json_string(text);
    size_t used = 0;
    while (*text != '\0') {
        const unsigned char *at = (const unsigned char *)text;
        size_t length = utf8 == NULL ? 1 : length_of(*at);
        int hidden = utf8 == NULL ? *at >= 0x7f || *at < ' ' : steers(at);
        size_t needed = hidden ? 1 : length;
        if (used + needed >= size)
            break;
        memcpy(out + used, hidden ? "?" : text, needed);
        used += needed;
        text += length;
    }
    if (size > 0)
        out[used] = '\0';
    json_decref(utf8);
}
