/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event: what TensorBoard reads, as bytes.
 *
 * An event file is a row of TFRecords (src/record), each of which holds one
 * Event message (proto/event.proto). The functions here are pure: each appends
 * one whole record to a buffer, and the caller brings the bytes to a file whose
 * name has "tfevents" in it. The folder of the file is the "run" that
 * TensorBoard shows.
 *
 * All return 0, -ENOBUFS when the buffer's maximum would be passed, or -ENOMEM;
 * then the buffer is unchanged. Times are wall time in milliseconds, as
 * hy_clock_wall_ms gives it. Text that is no UTF-8, and control characters, are
 * written \xNN: one bad byte would make TensorBoard give up the whole file.
 */
#ifndef HY_EVENT_H
#define HY_EVENT_H

#include <stdint.h>

struct hy_buf;

/* The first record of every file. */
int hy_event_version(struct hy_buf *b, int64_t wall_ms);

/*
 * A value of `tag` at a step. It is a simple_value, not the tensor that
 * TensorFlow 2 writes: TensorBoard turns the one into the other as it loads, for
 * all its tabs, while most other readers of event files (EventAccumulator's
 * Scalars, summary_iterator, PyTorch's tools) know only this one; and it takes
 * half the bytes. Both hold a float: TensorBoard itself keeps no more.
 *
 * Steps of a tag should grow: TensorBoard takes a step back for a restart and
 * drops what came after it.
 */
int hy_event_scalar(struct hy_buf *b, const char *tag, int64_t step, double value, int64_t wall_ms);

/*
 * The HParams tab: a session (a trial) begins, with its hyperparameters, and
 * ends. `params` is a JSON object: numbers, booleans and strings are what they
 * are, anything else becomes its JSON text. Sessions of one `group` are taken
 * for repetitions and their metrics averaged; "" is a group of its own. -EINVAL
 * when `params` is no JSON object.
 *
 * TensorBoard keeps the first start and the first end that it sees in a folder.
 *
 * There is no experiment record (hparam and metric infos): without one
 * TensorBoard finds parameters and metrics itself, the user's own metrics too;
 * with one it shows nothing else, and of several runs below one folder it takes
 * any one's.
 */
int hy_event_session_start(struct hy_buf *b, const char *params, const char *group, int64_t wall_ms);

enum hy_event_status { HY_EVENT_UNKNOWN, HY_EVENT_SUCCESS, HY_EVENT_FAILURE };

int hy_event_session_end(struct hy_buf *b, enum hy_event_status status, int64_t wall_ms);

#endif
