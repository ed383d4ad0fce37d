/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed: rows from the processes of a cluster framework (Spark) into a training
 * process of the same machine, and results back, through shared memory.
 *
 *     feeder                              training process
 *     source ══ ring of row batches ════► hub ── consumer ─┬─ Python rows
 *            ◄═ ring of result batches ══                  ├─ NumPy columns
 *                                                          └─ TensorFlow tensors (batch stream)
 *
 * A feeder opens a source, a training process a hub, and both know the hub's
 * name. Each source has its own ring, so feeders never contend with each other;
 * when a ring is full its feeder waits. A row is delivered at least once: when a
 * feeder dies within a partition, the batches that it had sent are delivered,
 * and the retry of the partition sends them again.
 *
 * Ownership: the writer of a ring creates its memory, and both ends hold a
 * mapping until they close it. A consumer owns its hub. A batch that was read
 * points into its ring and is valid until the message is released.
 *
 * Trust: neither process trusts the other. What lies in shared memory can change
 * at any time, so lengths are copied before they are checked, and each offset is
 * checked where it is used. A feeder that breaks the format is dropped; the
 * others are not affected.
 *
 * Threads: rings, sources and hubs are used by one thread at a time (exceptions
 * are named below). A consumer serializes several threads; a batch stream may be
 * read by any thread. There are no threads of this part.
 */
#ifndef HY_FEED_H
#define HY_FEED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* ==== Batches: rows, column by column ================================================ */

/*
 * A batch is one message that describes itself (batch.c has the format). All rows
 * of a column share a type and a shape; or the column is ragged: its rows have any
 * number of items of that shape, and `row_ends` holds the offsets. Byte strings
 * have `value_ends`, offsets in bytes. Both are int64, and one more than what they
 * delimit, as in src/record/columns.h:
 *
 *     rows       [[1, 2], [], [3]]
 *     values     1 2 3
 *     row_ends   0 2 2 3
 *
 * How columns form a row is described by a row schema, a short text (below).
 */
#define HY_BATCH_COLUMNS_MAX 4096u
#define HY_BATCH_ROWS_MAX (1u << 30)
#define HY_BATCH_SCHEMA_MAX (64u << 10)
#define HY_BATCH_DIMS 8

/* The kinds of messages in a ring. */
enum hy_feed_kind {
    HY_FEED_BATCH = 1, /* rows; in the other direction, results */
    HY_FEED_END = 2,   /* the end of a partition; empty */
};

enum hy_dtype {
    HY_DTYPE_BOOL = 1,
    HY_DTYPE_INT8,
    HY_DTYPE_INT16,
    HY_DTYPE_INT32,
    HY_DTYPE_INT64,
    HY_DTYPE_UINT8,
    HY_DTYPE_UINT16,
    HY_DTYPE_UINT32,
    HY_DTYPE_UINT64,
    HY_DTYPE_FLOAT16,
    HY_DTYPE_FLOAT32,
    HY_DTYPE_FLOAT64,
    HY_DTYPE_BYTES,
    HY_DTYPE_STR,    /* UTF-8 */
    HY_DTYPE_PICKLE, /* all rows as one byte string; a batch with rows == 0 has as many rows as the pickle */
    HY_DTYPES,
};

/* The size of a number in bytes; 0 for types that are not numbers. */
size_t hy_dtype_size(enum hy_dtype dtype);
/* NumPy's name ("float32"), or "bytes", "str", "pickle". */
const char *hy_dtype_name(enum hy_dtype dtype);
/* 0 for an unknown name. */
enum hy_dtype hy_dtype_by_name(const char *name);

struct hy_batch_column {
    enum hy_dtype dtype;
    bool is_ragged;
    unsigned dims;
    uint64_t shape[HY_BATCH_DIMS]; /* of a row; of an item in a ragged column */
    uint64_t items;                /* in all rows of a ragged column */
    const void *values;
    size_t values_n;           /* in bytes */
    const int64_t *value_ends; /* of BYTES and STR */
    const int64_t *row_ends;   /* of a ragged column */
};

struct hy_batch {
    uint32_t rows, count;
    const char *schema; /* not NUL-terminated */
    size_t schema_n;
    struct hy_batch_column *columns;
    char *text;  /* private to hy_batch_parse: the copied schema ... */
    size_t room; /* ... and the capacity of `columns` */
};

/* The number of values in one row or item: the product of its shape. 0, or -EBADMSG on overflow. */
int hy_batch_column_item_values(const struct hy_batch_column *c, uint64_t *ret);
/* The number of values in all rows. The same. */
int hy_batch_column_values(const struct hy_batch_column *c, uint64_t rows, uint64_t *ret);
/* Whether all rows of a ragged column have the same number of items, and how many. */
bool hy_batch_column_is_uniform(const struct hy_batch_column *c, uint32_t rows, uint64_t *ret_items);

/* An upper bound of the encoded size. -EINVAL when columns are inconsistent or too many. */
int hy_batch_size(const struct hy_batch *b, size_t *ret);
/* Encodes into memory of that size, 8-byte aligned; values become 64-byte aligned. Returns the bytes used. */
size_t hy_batch_write(const struct hy_batch *b, void *room);

/* Into an empty or used batch. 0, -EBADMSG for an invalid message, -ENOMEM. Then hy_batch_done. */
int hy_batch_parse(const void *bytes, size_t n, struct hy_batch *b);
void hy_batch_done(struct hy_batch *b);

/* The i-th range; false when the offsets decrease or exceed `max`. Reads each offset once: the writer may change it. */
static inline bool hy_ends_at(const int64_t *ends, size_t i, uint64_t max, uint64_t *ret_from, uint64_t *ret_to)
{
    const int64_t from = *(const volatile int64_t *)&ends[i], to = *(const volatile int64_t *)&ends[i + 1];

    *ret_from = (uint64_t)from;
    *ret_to = (uint64_t)to;
    return from >= 0 && from <= to && (uint64_t)to <= max;
}

/* ==== Row schemas: how columns form a row ============================================ */

/*
 *     f i b s y    a Python float, int, bool, str, bytes
 *     lf li ...    lists of those, nested by the shape of the column
 *     a            a NumPy array; a NumPy scalar where the column's shape is ()
 *     (ab) [ab]    a tuple, a list
 *     {1:x f}      a dict: the length of a key, the key, its value
 *     <1:x f>      a pyspark.sql.Row, in the same form
 *     *            rows that were pickled together, as a list
 *
 * Each leaf is a column, in order of appearance: ([784 floats], 3) is "(lfi)".
 * Spaces outside of keys are ignored.
 */
#define HY_FEED_SCHEMA_NODES_MAX 8192u
#define HY_FEED_SCHEMA_DEPTH_MAX 16u

struct hy_feed_schema_node {
    char kind; /* f i b s y l a ( [ { < * */
    char element; /* of a list of values: f i b s y */
    uint32_t count; /* direct children of a tuple, list, dict or Row */
    uint32_t column; /* of a leaf */
    const char *key; /* in a dict or Row; points into the parsed text */
    size_t key_n;
};

struct hy_feed_schema {
    size_t count, room;
    uint32_t columns;
    struct hy_feed_schema_node *nodes; /* in preorder */
};

/* Into an empty or used schema; keys point into the text. 0, -EBADMSG, -ENOMEM. */
int hy_feed_schema_parse(const char *text, size_t n, struct hy_feed_schema *s);
void hy_feed_schema_done(struct hy_feed_schema *s);
/* Whether the batch's columns have the types of the leaves. 0 or -EBADMSG. */
int hy_feed_schema_check(const struct hy_feed_schema *s, const struct hy_batch *b);

/* Appends a node; NULL when out of memory or over the limit. */
struct hy_feed_schema_node *hy_feed_schema_add(struct hy_feed_schema *s, char kind);
/* As text. 0 or -Exxx. */
int hy_feed_schema_write(const struct hy_feed_schema *s, struct hy_buf *b);

/* ==== Arrow: record batches as batches =============================================== */

/*
 * By Arrow's C data interface, so that its libraries are not needed. Supported are
 * columns of numbers, bools, strings and byte strings, and lists of numbers and
 * bools, without nulls.
 */

/* The interface's structs, to the byte. */
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct hy_arrow_batch {
    struct hy_batch batch; /* without schema, which is the caller's to fill in */
    void **own; /* private: converted offsets and bools */
    uint32_t own_count;
};

/*
 * `rows` rows from `begin` on, without copying values. *ret is empty before. Call hy_arrow_batch_done
 * whatever the result. 0, -ENOTSUP for an unsupported column, -EINVAL for an invalid array or range, -ENOMEM.
 */
int hy_arrow_batch_view(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t begin, uint32_t rows,
                        struct hy_arrow_batch *ret);
void hy_arrow_batch_done(struct hy_arrow_batch *a);
/* The row schema: a tuple of all columns. 0, -EINVAL, -ENOMEM. */
int hy_arrow_schema(const struct ArrowSchema *schema, struct hy_buf *ret);

/* ==== Rings: messages from one process to another ==================================== */

/*
 * One writer, one reader. A message is contiguous: the writer reserves space, fills
 * it in place and sends it; the reader uses it in place and releases it. The ring
 * itself copies nothing.
 *
 * The memory is a memfd of sealed size, so that no reader faults on a truncated
 * one. A unix stream socket between both ends carries wakeups, and its end of file
 * reports that the peer is gone.
 */
#define HY_RING_MIN (64u << 10)
#define HY_RING_MAX (1u << 30)

struct hy_ring; /* opaque */

/*
 * The writer's end of a new ring of at least `size` bytes, and the memfd for the reader, which the caller sends and
 * closes. Takes `socket`, also on failure.
 */
int hy_ring_new(size_t size, int socket, struct hy_ring **ret, int *ret_memory, struct hy_err *err);
/* The reader's end. Takes `socket`, also on failure, but not `memory`. -EPROTO when the memory is not a ring. */
int hy_ring_open(int memory, int socket, struct hy_ring **ret, struct hy_err *err);
/* The peer sees end of file on its socket. NULL is fine. */
void hy_ring_close(struct hy_ring *r);

/* The size limit of one message. */
size_t hy_ring_message_max(const struct hy_ring *r);
/* For callers that poll several: poll for POLLIN, then hy_ring_drain_wakeups. */
int hy_ring_socket(const struct hy_ring *r);
/* Consumes wakeups after the socket was ready: 0, or -EPIPE when the peer is gone. */
int hy_ring_drain_wakeups(struct hy_ring *r);

/* ---- the writer's end ---- */

/* Space for n bytes, 8-byte aligned; NULL when the ring is full. Replaces a reservation that was not sent. */
void *hy_ring_reserve(struct hy_ring *r, size_t n);
/* Sends the first n reserved bytes. `kind` is for the caller. */
void hy_ring_send(struct hy_ring *r, uint32_t kind, size_t n);
/* Waits up to timeout_ms (-1: forever) for space for n bytes. 1, 0 on timeout, -EPIPE when the peer is gone, -EMSGSIZE
 * when n exceeds the limit. */
int hy_ring_wait_for_space(struct hy_ring *r, size_t n, int timeout_ms);
/* Arms the wakeup before a poll: true when there is still no space for n bytes, so that polling is safe. */
bool hy_ring_arm_writer(struct hy_ring *r, size_t n);
/* Waits until the reader has released everything. 1, 0 or -EPIPE. */
int hy_ring_wait_until_empty(struct hy_ring *r, int timeout_ms);
/* The reader's last hint; 0 before the first. */
uint32_t hy_ring_hint(const struct hy_ring *r);

/* ---- the reader's end ---- */

struct hy_ring_message {
    const void *bytes; /* 8-byte aligned; valid until hy_ring_release */
    size_t n;
    uint32_t kind;
};

/* The next message: 1, 0 when there is none yet, -EPROTO when the ring is corrupt. */
int hy_ring_next(struct hy_ring *r, struct hy_ring_message *ret);
void hy_ring_release(struct hy_ring *r);
/* Leaves a hint, which the writer may read at any time and without a wakeup. Its meaning is up to the caller. */
void hy_ring_set_hint(struct hy_ring *r, uint32_t hint);
/* Waits for a message. 1, 0 on timeout, -EPIPE when the peer is gone and nothing is left, -EPROTO. */
int hy_ring_wait_for_message(struct hy_ring *r, int timeout_ms);
/* Arms the wakeup before a poll: true when there is still no message, so that polling is safe. */
bool hy_ring_arm_reader(struct hy_ring *r);

/* ==== Sources: the feeder's end ====================================================== */

/*
 * A source never waits for a hub that is gone. When the hub has terminated (the
 * training needs no more rows), calls return -ESHUTDOWN, which is not a failure. A
 * source need not wait to be accepted: its batches are taken later, even when the
 * source has been closed meanwhile.
 */
#define HY_FEED_NAME_MAX 100u /* of a hub, with its NUL; 5 bytes are reserved for the hub */
#define HY_FEED_QUEUE_MAX 64u /* of a queue, with its NUL */

struct hy_feed_source; /* opaque */

struct hy_feed_source_options {
    const char *queue; /* "input" */
    size_t size; /* of the ring; a batch is at most half of it */
    bool needs_results;
};

/* 0; -ESHUTDOWN when the hub has terminated, -ECONNREFUSED when there is no hub of that name. */
int hy_feed_source_open(const char *name, const struct hy_feed_source_options *o, struct hy_feed_source **ret,
                        struct hy_err *err);
void hy_feed_source_close(struct hy_feed_source *s); /* NULL is fine */

/* The size limit of one batch. */
size_t hy_feed_source_batch_max(const struct hy_feed_source *s);
/* Sends a batch: 1; 0 when the ring is full; -EMSGSIZE when the batch exceeds the limit; -EINVAL; -ESHUTDOWN; -EPIPE
 * when the hub is gone. */
int hy_feed_source_put(struct hy_feed_source *s, const struct hy_batch *b);
/* Sends the end of a partition. The same. */
int hy_feed_source_put_end(struct hy_feed_source *s);
/* The size of the last message that found the ring full, for hy_feed_source_wait. */
size_t hy_feed_source_needed(const struct hy_feed_source *s);
/* Whether the consumer accepts pickled batches that do not declare their number of rows. */
bool hy_feed_source_may_pickle(const struct hy_feed_source *s);

/* Bits. */
enum hy_feed_source_event { HY_FEED_SOURCE_SPACE = 1, HY_FEED_SOURCE_RESULTS = 2 };

/* Waits for space for `needed` bytes (0: do not wait for space) or for results. Event bits; 0 on timeout; -ESHUTDOWN;
 * -EPIPE when the hub is gone. */
int hy_feed_source_wait(struct hy_feed_source *s, size_t needed, int timeout_ms);
/* Waits until the hub has taken all batches. 1, 0, -ESHUTDOWN, -EPIPE. */
int hy_feed_source_wait_until_taken(struct hy_feed_source *s, int timeout_ms);

/* The next batch of results, not parsed: 1, 0 when there is none yet, -EPROTO. */
int hy_feed_source_next(struct hy_feed_source *s, struct hy_ring_message *ret);
void hy_feed_source_release(struct hy_feed_source *s);

/* ==== Hubs: the training process's end =============================================== */

/*
 * A hub listens at its name. Each feeder connects for one queue ("input"), and
 * batches of a queue are taken from its feeders in turn. Connections from users
 * other than this one and root are closed.
 *
 * One thread at a time, except for hy_feed_hub_end and hy_feed_hub_wake.
 */
#define HY_FEED_HUB_FEEDERS_MAX 1024u

struct hy_feed_hub; /* opaque */

/* 0; -EADDRINUSE when another hub has the name. */
int hy_feed_hub_open(const char *name, struct hy_feed_hub **ret, struct hy_err *err);
/* Feeders get -EPIPE. NULL is fine. */
void hy_feed_hub_close(struct hy_feed_hub *h);

enum hy_feed_hub_event {
    HY_FEED_HUB_TIMEOUT, /* timeout */
    HY_FEED_HUB_MESSAGE,
    HY_FEED_HUB_OTHER, /* the caller's descriptor is readable */
    HY_FEED_HUB_OVER, /* terminated; or ended, and every feeder has finished and was read to the end */
    HY_FEED_HUB_WOKEN, /* by hy_feed_hub_wake */
};

/* Waits for a message of the queue, and for `other` (-1: none) to become readable. An event, or -Exxx. */
int hy_feed_hub_wait(struct hy_feed_hub *h, const char *queue, int other, int timeout_ms);

struct hy_feed_hub_message {
    uint64_t feeder; /* a number, never reused */
    bool needs_results;
    bool is_end; /* the end of a partition; there is no batch */
    struct hy_batch *batch; /* the hub's, valid until hy_feed_hub_release */
};

/* The next message of the queue: 1, 0 when there is none yet, -Exxx. Release it before the feeder's next. */
int hy_feed_hub_next(struct hy_feed_hub *h, const char *queue, struct hy_feed_hub_message *ret);
void hy_feed_hub_release(struct hy_feed_hub *h, uint64_t feeder);
/* Whether the feeder may send pickled batches that do not declare their number of rows; at first it may not. */
void hy_feed_hub_accept_pickles(struct hy_feed_hub *h, uint64_t feeder, bool accept);
/* Disconnects a feeder whose batch the caller has found to be invalid. */
void hy_feed_hub_drop(struct hy_feed_hub *h, uint64_t feeder);
/* How many feeders were dropped because they were invalid or another user's. */
uint64_t hy_feed_hub_dropped(const struct hy_feed_hub *h);

/* Sends results to a feeder: 1; 0 when its ring has no space for *ret_needed bytes; -EPIPE when it is gone; -EMSGSIZE
 * when they exceed the limit; -EINVAL. */
int hy_feed_hub_put(struct hy_feed_hub *h, uint64_t feeder, const struct hy_batch *results, size_t *ret_needed);
/* Waits for that space. 1, 0 on timeout, -EPIPE. */
int hy_feed_hub_wait_for_space(struct hy_feed_hub *h, uint64_t feeder, size_t needed, int timeout_ms);
/* The size limit of one batch of results; 0 when the feeder is gone. */
size_t hy_feed_hub_result_max(struct hy_feed_hub *h, uint64_t feeder);

/* Declares that no feeders will connect after those that have already. From any thread. */
void hy_feed_hub_end(struct hy_feed_hub *h);
/* Interrupts a wait. From any thread. */
void hy_feed_hub_wake(struct hy_feed_hub *h);
/* Discards pending batches; feeders, also those that connect later, get -ESHUTDOWN as long as the hub is open. */
int hy_feed_hub_terminate(struct hy_feed_hub *h, struct hy_err *err);

/* ==== Batch cursors: a batch that is used row by row ================================= */

#define HY_BATCH_ROWS_UNKNOWN UINT32_MAX

struct hy_batch_cursor {
    const struct hy_batch *batch; /* NULL: none */
    struct hy_feed_schema schema;
    uint32_t rows; /* of the batch; HY_BATCH_ROWS_UNKNOWN until an undeclared pickle has been loaded */
    uint32_t next; /* row */
    uint64_t number; /* set by the owner to identify the batch */
};

/* The batch must outlive the cursor. 0; -EBADMSG, -ENOMEM: the cursor is empty. */
int hy_batch_cursor_begin(struct hy_batch_cursor *c, const struct hy_batch *b);
void hy_batch_cursor_end(struct hy_batch_cursor *c);

static inline bool hy_batch_cursor_is_done(const struct hy_batch_cursor *c)
{
    return !c->batch || c->next == c->rows;
}

/* Pickled rows have no columns. */
static inline bool hy_batch_cursor_is_pickled(const struct hy_batch_cursor *c)
{
    return c->schema.nodes[0].kind == '*';
}

/* ==== Signatures: the columns that a dataset expects ================================= */

#define HY_SIGNATURE_NAME_MAX 64u

struct hy_signature_column {
    char name[HY_SIGNATURE_NAME_MAX]; /* for messages */
    enum hy_dtype dtype; /* BYTES for any kind of string */
    bool is_ragged;
    int dims; /* of a row; of an item in a ragged column; -1: any */
    int64_t shape[HY_BATCH_DIMS]; /* -1: any */
};

struct hy_signature {
    char *text; /* the row schema; leaves are "a" */
    struct hy_feed_schema schema; /* the same, parsed */
    bool allows_extra; /* rows may have more columns behind the expected ones, and other names */
    uint32_t count; /* of columns */
    struct hy_signature_column *columns;
    char *seen; /* private: the schema of the last batch, and the index of each expected column in it */
    size_t seen_n;
    uint32_t *indexes;
};

/* Copies its arguments. 0, -EINVAL when schema and columns are inconsistent, -ENOMEM. */
int hy_signature_init(struct hy_signature *sig, const char *text, bool allows_extra,
                      const struct hy_signature_column *columns, uint32_t count);
void hy_signature_done(struct hy_signature *sig);

/* ==== Gathering: rows of several batches as contiguous columns ======================= */

/*
 * With a signature, numbers are cast to its types while they are copied. Without
 * one the first batch sets types and shapes, and a batch that differs is left
 * alone. A batch is gathered whole or, after an error, not at all.
 */

/* Where values are put. */
struct hy_gather_sink {
    /* Grows a column's memory to n bytes and keeps its contents; NULL on failure. Without `grow` the gathered columns
     * own their memory, aligned for TensorFlow, and `take` and `drop` (or the C library) provide it. */
    void *(*grow)(void *context, uint32_t column, size_t n);
    void *context;
    void *(*take)(size_t n);
    void (*drop)(void *memory);
    /* Strings as foreign objects of text_size bytes, which may be moved; 0: as bytes with offsets. */
    size_t text_size;
    void (*put_text)(void *to, const char *text, size_t n);
    void (*drop_text)(void *text);
};

struct hy_gathered_column {
    struct hy_batch_column like; /* only type and shape are set */
    void *values; /* NULL: none yet */
    size_t values_n, room; /* in bytes */
    struct hy_buf value_ends, row_ends;
    size_t kept, value_ends_kept, row_ends_kept; /* private: lengths to roll back to */
};

struct hy_gathered {
    struct hy_gather_sink sink; /* set by the caller before anything else */
    uint32_t count;
    char *schema; /* of a row, when there is no signature */
    size_t schema_n;
    uint64_t rows;
    struct hy_gathered_column *columns;
};

/* Begins with the columns of a signature. 0 or -ENOMEM. */
int hy_gather_begin(struct hy_gathered *g, const struct hy_signature *sig);
/*
 * Appends up to `max` rows at the cursor; `sig` is NULL without a signature. The number of rows; 0 when the batch
 * differs from the first and there is no signature; -EINVAL with a message when it does not match the signature;
 * -EBADMSG when it is invalid; -ENOMEM.
 */
int64_t hy_gather(struct hy_gathered *g, struct hy_batch_cursor *r, struct hy_signature *sig, uint64_t max,
                  struct hy_err *err);
void hy_gathered_done(struct hy_gathered *g);

/* ==== Consumers: a hub that several threads use ====================================== */

/*
 * One thread takes rows, as Python objects, NumPy columns or tensors, and the next
 * call continues within a batch wherever the previous one stopped. Other threads
 * may enter meanwhile, to return results, terminate or close: they wake the thread
 * that takes rows, which yields to them.
 *
 * A consumer also records which feeder each taken row came from, oldest first:
 * results are returned in that order.
 */
#define HY_CONSUMER_QUEUES 16

struct hy_feed_queue {
    char name[HY_FEED_QUEUE_MAX]; /* "": unused */
    struct hy_feed_hub_message message;
    bool accepts_pickles; /* set by the caller: undeclared pickles are acceptable */
    bool has_batch; /* `message` holds a batch, and `cursor` the position in it */
    struct hy_batch_cursor cursor;
};

struct hy_outstanding {
    uint64_t feeder, rows;
};

/* Feeds the rows of a pickle again, from row `first` on, as columns where possible. 0 or -Exxx. */
typedef int hy_requeue_fn(void *context, const char *queue, const void *pickle, size_t n, uint32_t first);

struct hy_consumer {
    /* read-only, for the thread that has entered */
    struct hy_feed_hub *hub; /* NULL: closed */
    struct hy_feed_queue queues[HY_CONSUMER_QUEUES];
    bool is_terminated;
    atomic_bool is_interrupted; /* the thread that takes rows leaves at the next opportunity */
    /* public: results that are outstanding; the caller that returns them advances outstanding_first */
    struct hy_outstanding *outstanding;
    size_t outstanding_first, outstanding_count, outstanding_room;
    /* public: for callers that take columns after rows were taken; NULL: such pickles are an error */
    hy_requeue_fn *requeue;
    void *requeue_context;
    /* private */
    uint64_t messages;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_entered, has_taker; /* a thread has entered; one of them takes rows */
    unsigned waiting, users;
};

/* Takes the hub, also on failure. NULL when out of memory. */
struct hy_consumer *hy_consumer_new(struct hy_feed_hub *hub);
struct hy_consumer *hy_consumer_ref(struct hy_consumer *c);
void hy_consumer_unref(struct hy_consumer *c); /* NULL is fine; no thread may have entered when the last goes */

/* Enters, to take rows or for another purpose. 0, -EAGAIN on timeout, -EBUSY when another thread takes rows, -ESHUTDOWN
 * when it is closed. The functions below require it unless marked "from any thread". */
int hy_consumer_enter(struct hy_consumer *c, bool takes_rows, int timeout_ms);
void hy_consumer_leave(struct hy_consumer *c, bool takes_rows);
/* Waits until no thread takes rows, or for timeout_ms. From any thread. */
void hy_consumer_wait_idle(struct hy_consumer *c, int timeout_ms);

/* The queue of that name, created if need be; NULL when the name is too long or there are too many. From any thread. */
struct hy_feed_queue *hy_consumer_queue(struct hy_consumer *c, const char *name);

enum hy_consumer_event {
    HY_CONSUMER_ROWS, /* the queue holds a batch */
    HY_CONSUMER_PARTITION, /* the end of one */
    HY_CONSUMER_END, /* there will be no more rows */
    HY_CONSUMER_OTHER, /* as HY_FEED_HUB_OTHER */
    HY_CONSUMER_TIMEOUT, /* timeout */
};

/* Waits until the queue holds a batch; with `stop_at_partition`, or a partition has ended. An event, or -Exxx. */
int hy_consumer_next(struct hy_consumer *c, struct hy_feed_queue *q, bool stop_at_partition, int other, int timeout_ms);
/* Accounts for rows that were taken by the cursor; releases a batch that is used up. 0 or -ENOMEM. */
int hy_consumer_advance(struct hy_consumer *c, struct hy_feed_queue *q, uint64_t rows);
/* Discards the batch; `is_invalid`: because it is invalid, so that its feeder is dropped, too. */
void hy_consumer_discard(struct hy_consumer *c, struct hy_feed_queue *q, bool is_invalid);

/* As hy_feed_hub_end. From any thread, also after close. */
void hy_consumer_end(struct hy_consumer *c);
/* Makes the thread that takes rows return HY_CONSUMER_END. From any thread; the next two clear the request. */
void hy_consumer_interrupt(struct hy_consumer *c);
int hy_consumer_terminate(struct hy_consumer *c, struct hy_err *err);
void hy_consumer_close(struct hy_consumer *c);

/* ==== Batch streams: batches of a fixed number of rows, by handle ==================== */

/*
 * For a TensorFlow op, which has only a number written into its graph. No call
 * blocks for long, so that no thread of TensorFlow is held forever: the next call,
 * by any thread, continues a batch that is incomplete. Rows that a dropped iterator
 * has begun with are thus not lost.
 */
struct hy_batch_stream; /* opaque */

struct hy_batch_stream_options {
    const char *queue;
    uint64_t rows; /* of a batch */
    bool stop_at_partition; /* a batch ends with its partition */
    bool drop_remainder; /* drop the last batch when it is incomplete */
};

/* Takes the signature, also on failure. 0, -EINVAL, -ENOMEM. */
int hy_batch_stream_new(struct hy_consumer *c, const struct hy_batch_stream_options *o, struct hy_signature *sig,
                        struct hy_batch_stream **ret);
/* Its handle, which is never reused. */
int64_t hy_batch_stream_handle(const struct hy_batch_stream *b);
/* Whether HY_BATCH_STREAM_END has been returned. */
bool hy_batch_stream_is_over(const struct hy_batch_stream *b);
/* Calls with its handle return HY_BATCH_STREAM_END from now on. NULL is fine. */
void hy_batch_stream_free(struct hy_batch_stream *b);

enum hy_batch_stream_event { HY_BATCH_STREAM_TIMEOUT, HY_BATCH_STREAM_ROWS, HY_BATCH_STREAM_END };

/*
 * The next batch, from any thread, within about 100 ms. `sink` is the same in every call. An event; or -EINVAL with a
 * message when rows do not match the signature: they stay in the queue, and rows before them are returned first, as an
 * incomplete batch. *ret is empty before; then it has the columns, without values unless the event is
 * HY_BATCH_STREAM_ROWS, and no columns for an unknown handle. Then hy_gathered_done.
 */
int hy_batch_stream_next(int64_t handle, const struct hy_gather_sink *sink, struct hy_gathered *ret,
                         struct hy_err *err);

#endif
