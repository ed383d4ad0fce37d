/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event: event files of TensorBoard, as bytes.
 *
 * An event file is a sequence of TFRecords (src/record), each of which holds one
 * Event message (proto/event.proto). The functions are pure: each appends one
 * record to a buffer, and the caller writes it to a file whose name contains
 * "tfevents". TensorBoard shows the directory of the file as a "run".
 *
 * All return 0, -ENOBUFS when the buffer would exceed its maximum, or -ENOMEM; on
 * failure the buffer is unchanged. Times are wall time in milliseconds, as from
 * hy_clock_wall_ms. Invalid UTF-8 and control characters are written as \xNN: one
 * bad byte would make TensorBoard ignore the whole file.
 */
#ifndef HY_EVENT_H
#define HY_EVENT_H

#include <stdint.h>

struct hy_buf;

/* The first record of every file. */
int hy_event_version(struct hy_buf *b, int64_t wall_ms);

/*
 * A value of `tag` at a step. It is a simple_value, not the tensor that TensorFlow 2
 * writes: TensorBoard converts it on load, while most other readers of event files
 * (EventAccumulator's Scalars, summary_iterator, PyTorch's tools) support only this
 * one; and it takes half the bytes. Both hold a float, the precision that
 * TensorBoard keeps.
 *
 * Steps of a tag should increase: TensorBoard interprets a decrease as a restart and
 * drops the later steps.
 */
int hy_event_scalar(struct hy_buf *b, const char *tag, int64_t step, double value, int64_t wall_ms);

/*
 * The HParams tab: start of a session (a trial) with its hyperparameters, and its
 * end. `params` is a JSON object: numbers, booleans and strings keep their type,
 * anything else becomes JSON text. Sessions of one `group` count as repetitions,
 * whose metrics are averaged; each session with "" is a separate group. -EINVAL when
 * `params` is not a JSON object.
 *
 * TensorBoard keeps the first start and the first end that it finds in a directory.
 *
 * There is no experiment record (hparam and metric infos): without one TensorBoard
 * discovers parameters and metrics, including the user's metrics; with one it shows
 * nothing else, and of several runs below one directory it uses an arbitrary one.
 */
int hy_event_session_start(struct hy_buf *b, const char *params, const char *group, int64_t wall_ms);

enum hy_event_status { HY_EVENT_UNKNOWN, HY_EVENT_SUCCESS, HY_EVENT_FAILURE };

int hy_event_session_end(struct hy_buf *b, enum hy_event_status status, int64_t wall_ms);

#endif
