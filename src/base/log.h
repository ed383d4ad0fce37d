/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs' log (libraries return, programs log): one line on standard
 * error where a decision is made, `key=value` for what can be searched:
 *
 *     2026-11-15T04:30:12.345Z agent warn: trial ended trial=7 attempt=1 why=memory
 *
 * Control characters are printed as '?', so that no value can forge a line.
 */
#ifndef HY_BASE_LOG_H
#define HY_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum hy_log_level { HY_LOG_DEBUG, HY_LOG_INFO, HY_LOG_WARN, HY_LOG_ERROR };

/* Names the program in each line; HOPYARD_LOG=debug|info|warn|error sets the level. */
void hy_log_init(const char *program);
void hy_log(enum hy_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * A rate limit for the lines of one place in the code, for lines that another
 * process can cause as often as it likes: `burst` lines at once, then one every
 * `every_ms`. Lines beyond that are counted, and a later line says how many were
 * left out, with the first of them as an example. Used by one thread only; it
 * must last as long as the process.
 */
#define HY_LOG_BURST 20u
#define HY_LOG_EVERY_MS 10000

struct hy_log_limit {
    unsigned burst;   /* 0: HY_LOG_BURST */
    int64_t every_ms; /* 0: HY_LOG_EVERY_MS */

    enum hy_log_level level; /* private from here */
    bool in_use;
    unsigned left;           /* lines that may be written now */
    int64_t refilled_ms;     /* when a line was last added to them */
    uint64_t left_out;
    int64_t left_out_since_ms;
    char example[200];       /* the first line that was left out */
    struct hy_log_limit *next;
};

void hy_log_within(struct hy_log_limit *limit, enum hy_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Call this now and then: it reports what was left out and is due, also when no further line comes. */
void hy_log_tick(void);
/* Reports everything that was left out: before the process ends. */
void hy_log_flush(void);
/* For tests: all limits are as new. */
void hy_log_reset(void);

/* The limit is that of the line where this is written. */
#define hy_log_limited(level, ...)                                                                           \
    do {                                                                                                     \
        static struct hy_log_limit limit_of_this_line;                                                       \
                                                                                                             \
        hy_log_within(&limit_of_this_line, level, __VA_ARGS__);                                              \
    } while (0)
#define hy_info_limited(...) hy_log_limited(HY_LOG_INFO, __VA_ARGS__)
#define hy_warn_limited(...) hy_log_limited(HY_LOG_WARN, __VA_ARGS__)

#define hy_debug(...) hy_log(HY_LOG_DEBUG, __VA_ARGS__)
#define hy_info(...) hy_log(HY_LOG_INFO, __VA_ARGS__)
#define hy_warn(...) hy_log(HY_LOG_WARN, __VA_ARGS__)
#define hy_error(...) hy_log(HY_LOG_ERROR, __VA_ARGS__)

#endif
