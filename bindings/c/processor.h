/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The rate that the processors of this host can receive: a cheap estimate that goes with a question. */
#ifndef ENABLE_PROCESSOR_H
#define ENABLE_PROCESSOR_H

#include <stdint.h>

struct processor {
    /* Rate of all cores together, bits per second; 0: unknown. */
    uint64_t bps;
    uint64_t cores;
};

/* The estimate for this host. The first call of a process measures for some milliseconds. */
struct processor enable_own_processor(void);

#endif
