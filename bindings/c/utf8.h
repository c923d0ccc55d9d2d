/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* UTF-8 as XML and terminals want it. */
#ifndef ENABLE_UTF8_H
#define ENABLE_UTF8_H

#include <stddef.h>

/* Length of the character at `text`, 1 to 4, and its code point; 0 if it is not UTF-8 or `left` is 0. */
size_t enable_utf8_decode(const char *text, size_t left, unsigned long *point);
/* Writes a code point and returns its length, 1 to 4; 0 if it is none. */
size_t enable_utf8_encode(unsigned long point, char out[4]);
/* Whether XML 1.0 can hold the character. */
int enable_utf8_is_xml(unsigned long point);
/* Copies as many whole characters as fit, with '?' for those that steer a terminal and for bytes that are not UTF-8. */
void enable_utf8_printable(char *out, size_t size, const char *text);

#endif
