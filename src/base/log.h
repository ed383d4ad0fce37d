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
 * A rate limit for log lines that another process can trigger at will: `burst` lines at
 * once, then one every `every_ms`. Further lines are counted, and a later line reports
 * how many were suppressed, with the first of them as an example. Used by one thread
 * only; it must have static storage.
 */
#define HY_LOG_BURST 20u
#define HY_LOG_EVERY_MS 10000

struct hy_log_limit {
    unsigned burst;   /* 0: HY_LOG_BURST */
    int64_t every_ms; /* 0: HY_LOG_EVERY_MS */

    enum hy_log_level level; /* private from here */
    bool in_use;
    unsigned left;           /* tokens: lines that may be written now */
    int64_t refilled_ms;     /* when a token was last added */
    uint64_t left_out;
    int64_t left_out_since_ms;
    char example[200];       /* the first suppressed line */
    struct hy_log_limit *next;
};

void hy_log_rate_limited(struct hy_log_limit *limit, enum hy_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Call it periodically: reports suppressed lines even if no further line follows. */
void hy_log_tick(void);
/* Reports all suppressed lines: before the process ends. */
void hy_log_flush(void);
/* For tests: resets all limits. */
void hy_log_reset(void);

/* Each use has its own limit. */
#define hy_log_limited(level, ...)                                                                                     \
    do {                                                                                                               \
        static struct hy_log_limit limit_of_this_line;                                                                 \
                                                                                                                       \
        hy_log_rate_limited(&limit_of_this_line, level, __VA_ARGS__);                                                  \
    } while (0)
#define hy_info_limited(...) hy_log_limited(HY_LOG_INFO, __VA_ARGS__)
#define hy_warn_limited(...) hy_log_limited(HY_LOG_WARN, __VA_ARGS__)

#define hy_debug(...) hy_log(HY_LOG_DEBUG, __VA_ARGS__)
#define hy_info(...) hy_log(HY_LOG_INFO, __VA_ARGS__)
#define hy_warn(...) hy_log(HY_LOG_WARN, __VA_ARGS__)
#define hy_error(...) hy_log(HY_LOG_ERROR, __VA_ARGS__)

#endif
