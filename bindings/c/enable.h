/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libenable: network advice from an Enable server.
 *
 * An Enable server runs beside a data server and knows the paths to its clients. The functions here ask it about the
 * path between that server and this host: which buffer to set, how many streams to open, what rate to expect.
 *
 * Every function is thread-safe; the library keeps no state but the estimate of this host's processors. A call blocks its thread until the answer is there or its
 * time is up. Link with -lenable (static: also -lcurl -ljansson).
 */
#ifndef ENABLE_H
#define ENABLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ENABLE_API __attribute__((visibility("default")))
#else
#define ENABLE_API
#endif

/* TCP port of an Enable server unless its configuration names another one. */
#define ENABLE_DEFAULT_PORT 2812
/* Time that a call may take unless told otherwise, milliseconds. */
#define ENABLE_DEFAULT_TIMEOUT_MS 5000
/* A number that the server does not know. */
#define ENABLE_UNKNOWN (-1)

/* Codes of refusals (enable_error.code). Any other code is an HTTP status that is not 2xx. */
#define ENABLE_FAULT_UNKNOWN_PATH 404 /* nothing is known of this path yet; a test has been scheduled */
#define ENABLE_FAULT_FORBIDDEN 403    /* the token is missing or wrong */
#define ENABLE_FAULT_BUSY 503         /* too many requests, or too many hosts */
#define ENABLE_FAULT_NO_METHOD (-32601)
#define ENABLE_FAULT_ARGUMENTS (-32602)
#define ENABLE_FAULT_INTERNAL (-32603)

/* The outcome of a call. */
typedef enum enable_status {
    ENABLE_OK = 0,
    /* The name of the server is unknown, the connection is refused, or it ended before an answer. */
    ENABLE_NO_SERVER = 1,
    /* The server did not answer in time. */
    ENABLE_TIMED_OUT = 2,
    /* The server refused the call; the code says why. */
    ENABLE_REFUSED = 3,
    /* What came back is not an answer to the call. */
    ENABLE_BAD_ANSWER = 4,
    /* An argument cannot be used. Nothing was sent. */
    ENABLE_BAD_ARGUMENT = 5,
    /* Memory or descriptors ran out on this host. */
    ENABLE_NO_RESOURCES = 6
} enable_status;

/* Details of a failure. The caller owns it; every function takes NULL in its place. */
typedef struct enable_error {
    /* Code of a refusal; 0 for all other outcomes. */
    int code;
    /* One sentence in UTF-8, without control characters; cut if the server's text is too long. */
    char message[256];
} enable_error;

/* How to reach the server. Zero members have their default; NULL stands for all of them. */
typedef struct enable_options {
    /* Port, if the name of the server has none. Default ENABLE_DEFAULT_PORT. */
    unsigned port;
    /* Time that the whole call may take, milliseconds, at most 86400000. Default ENABLE_DEFAULT_TIMEOUT_MS. The resolver
     * has time-outs of its own (resolv.conf(5)) and is not interrupted: give an address where that matters. */
    unsigned timeout_ms;
    /* What the server wants from those who may change something. Default none. */
    const char *token;
} enable_options;

/* The way of the data of a transfer. */
typedef enum enable_direction {
    /* From the data server to the client. */
    ENABLE_DOWNLOAD = 0,
    /* From the client to the data server. */
    ENABLE_UPLOAD = 1
} enable_direction;

/*
 * What a client tells about itself and its transfer. Begin with enable_new_question; zero members are not told. Numbers are
 * below 2^53. Later versions may add members at the end: a library that does not know them refuses a question in which
 * one is not zero.
 */
typedef struct enable_question {
    /* Size of this structure where the program was compiled. */
    size_t size;
    /* Another client than this host, an IP address or a name. */
    const char *client;
    /* Bytes to transfer. */
    uint64_t bytes;
    /* The way of the data. */
    enable_direction direction;
    /* Files to transfer. */
    uint64_t files;
    /* Largest receive buffer that the client's kernel allows (the third number of tcp_rmem), bytes. */
    uint64_t max_receive_buffer;
    /* Largest send buffer that the client's kernel allows (the third number of tcp_wmem), bytes. For uploads. */
    uint64_t max_send_buffer;
    /* Largest buffer that a program may set on the client (rmem_max, for uploads wmem_max), bytes. */
    uint64_t max_set_buffer;
    /* Fastest rate at which the client's processor or disk takes data, bits per second. */
    uint64_t client_bps;
    /* Rate that the client's processors can receive, all cores together, bits per second, and its cores. They decide
     * streams. The library estimates them for a question about this host that does not tell them. */
    uint64_t processor_bps;
    uint64_t processor_cores;
    /* Not 0: the client cannot let the kernel choose its buffer, it sets one in any case. */
    int must_set_buffer;
    /* Most streams that the client can open. */
    uint64_t max_streams;
} enable_question;

/* A question that tells nothing. */
static inline enable_question enable_new_question(void)
{
    enable_question question = {0};
    question.size = sizeof question;
    return question;
}

/*
 * Advice for transfers in the direction of the question. A value that is unknown, or that is best left to the
 * kernel, is ENABLE_UNKNOWN or NULL. Later versions may add members at the end: one is there if ENABLE_HAS says so.
 */
typedef struct enable_advice {
    /* Size of this structure where the library was compiled. */
    size_t size;
    /* The client that the advice is for, an IP address. Never NULL. */
    const char *client;
    /* Socket buffer of one stream to set with SO_SNDBUF and SO_RCVBUF, bytes. ENABLE_UNKNOWN: set none, because a buffer
     * that is set ends the kernel's autotuning for the life of the connection. */
    int64_t set_buffer_bytes;
    /* Round trip x bottleneck bandwidth, bytes: what all streams together need. Programs that cannot leave the
     * buffer to the kernel set this. */
    int64_t bdp_bytes;
    /* Streams to open. */
    int64_t streams;
    /* Congestion control of the sender, by its kernel name. */
    const char *congestion_control;
    /* Pacing rate of all streams together, bits per second. */
    int64_t pace_bps;
    /* Expected goodput of a long transfer, bits per second: the median, and what nine transfers in ten and one in ten
     * exceed. */
    int64_t expected_bps;
    int64_t p10_bps;
    int64_t p90_bps;
    /* Round trip, seconds. */
    double rtt_seconds;
    /* Bandwidth of the bottleneck in the direction of the question, bits per second. */
    int64_t bandwidth_bps;
    /* Measured rate of the path to the client, and of the path from it, bits per second. */
    int64_t download_bps;
    int64_t upload_bps;
    /* Share of lost packets, 0 to 1. */
    double loss;
    /* What is expected to limit a transfer. */
    const char *limited_by;
    /* Not 0: the two directions of the path differ: one rate is at least twice the other, or the routes differ. */
    int asymmetric;
    /* How far to trust the advice, 0 (a guess) to 1. */
    double confidence;
    /* Age of the newest measurement that the advice rests on, seconds. */
    double age_seconds;
    /* Another client whose measurements stand in for this one's, and why. */
    const char *measured_by;
    /* One sentence: the reason. Never NULL. */
    const char *why;
} enable_advice;

/* Whether the library that gave `advice` knows a member of it. */
#define ENABLE_HAS(advice, member)                                                                                     \
    ((advice)->size >= offsetof(enable_advice, member) + sizeof((advice)->member))

/* The type of a value. */
typedef enum enable_type {
    ENABLE_INTEGER,
    ENABLE_DOUBLE,
    ENABLE_BOOLEAN,
    /* Also times, as their text. */
    ENABLE_STRING,
    ENABLE_ARRAY,
    ENABLE_STRUCT
} enable_type;

/* A value of an argument or an answer. */
typedef struct enable_value enable_value;

/*
 * The first argument of each call is the data server: a host, HOST:PORT, [ADDRESS]:PORT or http://HOST:PORT. Redirects
 * are not followed and proxies are not used: a proxy's path is not the caller's. A result is written only if ENABLE_OK
 * is returned.
 */

/* Best TCP buffer of the path to `client`, or to this host if that is NULL. A path that the server does not know
 * yet is ENABLE_REFUSED with the code ENABLE_FAULT_UNKNOWN_PATH. */
ENABLE_API enable_status enable_get_buffer_size(const char *host, const char *client, const enable_options *options,
                                                int64_t *bytes, enable_error *error);

/* Results of all tests of the path to `client`, or to this host if that is NULL: a struct. Free it with
 * enable_value_free. */
ENABLE_API enable_status enable_get_net_info(const char *host, const char *client, const enable_options *options,
                                             enable_value **info, enable_error *error);

/* Advice for a transfer; `question` may be NULL. A question about this host tells what its processors can receive. For a path that the server does not know yet the confidence is 0,
 * and `why` says so. Free it with enable_advice_free. */
ENABLE_API enable_status enable_get_advice(const char *host, const enable_question *question,
                                           const enable_options *options, enable_advice **advice, enable_error *error);

/* Calls a method with exactly these arguments, an array of values, as the service names it in XML-RPC:
 * EnableGetBufferSize, EnableGetStreams and EnableGetNetInfo (data server [, client]), EnableGetAdvice (data server
 * [, struct]), EnableGetQoS (data server [, client or struct]), EnableListHosts ([data server]), EnableAddHost and
 * EnableRemoveHost (client), EnableSetTests (client, struct), EnableRunTest (client, test), EnableReport (struct).
 * system.listMethods has the names; others are ENABLE_REFUSED with the code ENABLE_FAULT_NO_METHOD. The arguments stay the
 * caller's. Free the answer with enable_value_free. */
ENABLE_API enable_status enable_call_values(const char *host, const char *method, const enable_value *arguments,
                                            const enable_options *options, enable_value **answer, enable_error *error);

/* The same for a method whose arguments are all strings. */
ENABLE_API enable_status enable_call(const char *host, const char *method, const char *const *arguments, size_t count,
                                     const enable_options *options, enable_value **answer, enable_error *error);

/* The meaning of an outcome in a few words. */
ENABLE_API const char *enable_status_text(enable_status status);

/* Frees advice; NULL is allowed. */
ENABLE_API void enable_advice_free(enable_advice *advice);

/*
 * Values for enable_call_values. Each of these functions returns NULL if memory ran out. The caller frees a value, unless a
 * struct or an array has taken it over.
 */

/* A string; NULL also if the text is not UTF-8. */
ENABLE_API enable_value *enable_string(const char *text);
/* An integer if the number is whole and below 2^53, else a double; NULL also if it is not finite. */
ENABLE_API enable_value *enable_number(double number);
/* True unless `truth` is 0. */
ENABLE_API enable_value *enable_boolean(int truth);
/* A struct without members. */
ENABLE_API enable_value *enable_struct(void);
/* An array without items. */
ENABLE_API enable_value *enable_array(void);
/* Sets a member of a struct, in place of one of the same name, and returns 1. Returns 0 if an argument is NULL or of the
 * wrong type, the name is not UTF-8, the value nests too deeply (32 with the struct), or memory ran out. The value is
 * taken over in any case: if it is not set, it has been freed. */
ENABLE_API int enable_struct_set(enable_value *structure, const char *name, enable_value *value);
/* The same for an item at the end of an array. */
ENABLE_API int enable_array_add(enable_value *array, enable_value *value);

/* Frees a value with all it holds; NULL is allowed. */
ENABLE_API void enable_value_free(enable_value *value);

/* The type of a value, which is not NULL. The functions below take NULL as a value of no type. */
ENABLE_API enable_type enable_value_type(const enable_value *value);
/* Items of an array or members of a struct; 0 for all others. */
ENABLE_API size_t enable_value_count(const enable_value *value);
/* An item of an array or the value of a member of a struct; NULL if there is none. */
ENABLE_API const enable_value *enable_value_at(const enable_value *value, size_t index);
/* Name of a member of a struct; NULL if there is none. */
ENABLE_API const char *enable_value_name(const enable_value *value, size_t index);
/* The value of the member of this name; NULL if there is none. */
ENABLE_API const enable_value *enable_value_member(const enable_value *value, const char *name);
/* The text of a string in UTF-8; NULL for all others. */
ENABLE_API const char *enable_value_text(const enable_value *value);
/* Writes an integer or a double and returns 1; returns 0 for all others. */
ENABLE_API int enable_value_number(const enable_value *value, double *number);
/* Writes an integer, or a double that is whole, and returns 1; returns 0 for all others. */
ENABLE_API int enable_value_integer(const enable_value *value, int64_t *integer);
/* 1 for a boolean that is true; 0 for all others. */
ENABLE_API int enable_value_is_true(const enable_value *value);

#ifdef __cplusplus
}
#endif

#endif
