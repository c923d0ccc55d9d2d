/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "utf8.h"

#include <string.h>

size_t enable_utf8_decode(const char *text, size_t left, unsigned long *point)
{
    static const unsigned long smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (left == 0)
        return 0;
    unsigned char first = (unsigned char)text[0];
    if (first < 0x80) {
        *point = first;
        return 1;
    }
    size_t length = first >= 0xf8 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
    if (length == 0 || length > left)
        return 0;
    unsigned long value = first & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *point = value;
    return length;
}

size_t enable_utf8_encode(unsigned long point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
        return 0;
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    out[0] = (char)((0xf00U >> length & 0xff) | point);
    return length;
}

int enable_utf8_is_xml(unsigned long point)
{
    return point == '\t' || point == '\n' || point == '\r' || (point >= ' ' && point != 0xfffe && point != 0xffff);
}

void enable_utf8_printable(char *out, size_t size, const char *text)
{
    size_t left = strlen(text);
    size_t used = 0;
    while (left > 0) {
        unsigned long point;
        size_t length = enable_utf8_decode(text, left, &point);
        /* C0, DEL, C1, line and paragraph separators, and the marks and controls of direction. */
        int steers = length == 0 || point < ' ' || (point >= 0x7f && point < 0xa0) || point == 0x61c ||
                     (point >= 0x200e && point <= 0x200f) || (point >= 0x2028 && point <= 0x202e) ||
                     (point >= 0x2066 && point <= 0x2069) || point == 0xfeff;
        size_t taken = length == 0 ? 1 : length;
        size_t needed = steers ? 1 : length;
        if (used + needed + 1 > size)
            break;
        if (steers)
            out[used] = '?';
        else
            memcpy(out + used, text, length);
        used += needed;
        text += taken;
        left -= taken;
    }
    if (size > 0)
        out[used] = '\0';
}
