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

enum hy_log_level { HY_LOG_DEBUG, HY_LOG_INFO, HY_LOG_WARN, HY_LOG_ERROR };

/* Names the program in each line; HOPYARD_LOG=debug|info|warn|error sets the level. */
void hy_log_init(const char *program);
void hy_log(enum hy_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define hy_debug(...) hy_log(HY_LOG_DEBUG, __VA_ARGS__)
#define hy_info(...) hy_log(HY_LOG_INFO, __VA_ARGS__)
#define hy_warn(...) hy_log(HY_LOG_WARN, __VA_ARGS__)
#define hy_error(...) hy_log(HY_LOG_ERROR, __VA_ARGS__)

#endif
