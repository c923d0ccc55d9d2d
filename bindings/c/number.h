/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reads numbers without the locale, which belongs to the whole program. */
#ifndef ENABLE_NUMBER_H
#define ENABLE_NUMBER_H

#include <stdint.h>

/* Reads a decimal integer with white space around it; returns 0 if the text is none or does not fit. */
int enable_number_integer(const char *text, int64_t *integer);
/* Reads a decimal number with white space around it, within a unit of its last place; returns 0 if the text is none or not
 * finite. Whole numbers below 2^53 are exact. */
int enable_number_double(const char *text, double *number);

#endif
