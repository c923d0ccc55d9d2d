/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "number.h"

#include <float.h>

static const char *skip_space(const char *text)
{
    while (*text == ' ' || *text == '\t' || *text == '\n' || *text == '\r')
        text++;
    return text;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skips a sign and returns whether it is a minus. */
static int sign_of(const char **text)
{
    int negative = **text == '-';
    if (**text == '-' || **text == '+')
        (*text)++;
    return negative;
}

int enable_number_integer(const char *text, int64_t *integer)
{
    text = skip_space(text);
    int negative = sign_of(&text);
    if (!is_digit(*text))
        return 0;
    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    uint64_t value = 0;
    for (; is_digit(*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (limit - digit) / 10)
            return 0;
        value = value * 10 + digit;
    }
    if (*skip_space(text) != '\0')
        return 0;
    *integer = !negative ? (int64_t)value : value == limit ? INT64_MIN : -(int64_t)value;
    return 1;
}

/* value x 10^exponent */
static long double scaled(uint64_t value, long exponent)
{
    long double result = (long double)value;
    long double power = 10.0L;
    if (value == 0)
        return 0.0L;
    for (unsigned long left = exponent < 0 ? (unsigned long)-exponent : (unsigned long)exponent; left > 0; left >>= 1) {
        if (left & 1)
            result = exponent < 0 ? result / power : result * power;
        power *= power;
    }
    return result;
}

int enable_number_double(const char *text, double *number)
{
    uint64_t value = 0;
    long exponent = 0;
    int digits = 0;
    text = skip_space(text);
    int negative = sign_of(&text);
    for (int fraction = 0; is_digit(*text) || (*text == '.' && !fraction); text++) {
        if (*text == '.') {
            fraction = 1;
            continue;
        }
        digits = 1;
        /* 19 digits fit 64 bits and are more than a double holds. */
        if (value < UINT64_C(1000000000000000000)) {
            value = value * 10 + (uint64_t)(*text - '0');
            exponent -= fraction;
        } else {
            exponent += !fraction;
        }
    }
    if (!digits)
        return 0;
    if (*text == 'e' || *text == 'E') {
        long written = 0;
        text++;
        int below = sign_of(&text);
        if (!is_digit(*text))
            return 0;
        for (; is_digit(*text); text++)
            if (written < 100000)
                written = written * 10 + (*text - '0');
        exponent += below ? -written : written;
    }
    if (*skip_space(text) != '\0')
        return 0;
    /* Outside of these, every value of up to 20 digits is 0 or infinite. */
    exponent = exponent < -400 ? -400 : exponent > 400 ? 400 : exponent;
    long double result = scaled(value, exponent);
    if (!(result <= (long double)DBL_MAX))
        return 0;
    *number = negative ? -(double)result : (double)result;
    return 1;
}
