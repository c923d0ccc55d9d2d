/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Text that is shown to people. */
#ifndef ENABLE_TEXT_H
#define ENABLE_TEXT_H

#include <stddef.h>

/* Copies as many whole characters as fit, with '?' for those that steer a terminal. In text that is not UTF-8, each byte
 * beyond ASCII is '?'. */
void enable_text_printable(char *out, size_t size, const char *text);

#endif
