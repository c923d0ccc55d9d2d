/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Prints the advice for transfers from a data server: example HOST */
#include <enable.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    enable_options options = {0};
    enable_question question = enable_new_question();
    enable_advice *advice;
    enable_error error;

    if (argc != 2) {
        fprintf(stderr, "usage: %s HOST\n", argv[0]);
        return 2;
    }
    options.timeout_ms = 2000;
    question.bytes = UINT64_C(100000000000);
    if (enable_get_advice(argv[1], &question, &options, &advice, &error) != ENABLE_OK) {
        /* A program goes on here with the settings of the system. */
        fprintf(stderr, "%s\n", error.message);
        return 5;
    }
    if (advice->streams != ENABLE_UNKNOWN)
        printf("streams: %" PRId64 "\n", advice->streams);
    if (advice->set_buffer_bytes != ENABLE_UNKNOWN)
        printf("buffer: %" PRId64 " bytes\n", advice->set_buffer_bytes);
    else
        printf("buffer: left to the kernel\n");
    if (advice->expected_bps != ENABLE_UNKNOWN)
        printf("expected rate: %.1f Mbit/s\n", (double)advice->expected_bps / 1e6);
    printf("confidence: %.2f\n", advice->confidence);
    enable_advice_free(advice);
    return 0;
}
