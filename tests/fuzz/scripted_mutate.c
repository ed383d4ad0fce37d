/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutations of scripts: one segment at a time, so that later segments stay valid, and within a protobuf message one
 * field, with corrected lengths. Sometimes the whole input, as for other targets.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "scripted.h"

#define SEGMENTS_MAX 128
#define FIELDS_MAX 64
#define ROOM 65535u
#define DEPTH_MAX 6

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static uint64_t state;

static unsigned pick(unsigned count)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % count;
}

/* Drops bytes that do not fit: the mutation is lost. */
static void append(struct hy_buf *b, const void *bytes, size_t n)
{
    if (n)
        (void)!hy_buf_append(b, bytes, n);
}

/* ---- one message ------------------------------------------------------------------- */

struct field {
    const uint8_t *at;    /* its tag */
    size_t tag_n, n;      /* n: with the tag */
    const uint8_t *bytes; /* of a field with a length; NULL: of another type */
    size_t bytes_n;
};

static size_t take_varint(const uint8_t *at, size_t n, uint64_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < n && i < 10; i++) {
        *ret |= (uint64_t)(at[i] & 0x7f) << 7 * i;
        if (at[i] < 0x80)
            return i + 1;
    }
    return 0;
}

static void append_varint(struct hy_buf *b, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

        append(b, &byte, 1);
        value >>= 7;
    } while (value);
}

static bool take_field(const uint8_t *at, size_t n, struct field *ret)
{
    uint64_t tag, value = 0;
    size_t tag_n = take_varint(at, n, &tag), more = 0;

    if (tag_n == 0 || tag >> 3 == 0)
        return false;
    *ret = (struct field){.at = at, .tag_n = tag_n};
    if ((tag & 7) == 1 || (tag & 7) == 5)
        more = (tag & 7) == 1 ? 8 : 4;
    else if ((tag & 7) == 0 || (tag & 7) == 2)
        more = take_varint(at + tag_n, n - tag_n, &value);
    if (more == 0 || more > n - tag_n)
        return false;
    if ((tag & 7) == 2) {
        if (value > n - tag_n - more)
            return false;
        ret->bytes = at + tag_n + more;
        ret->bytes_n = (size_t)value;
        more += (size_t)value;
    }
    ret->n = tag_n + more;
    return true;
}

/* The number of fields, if the bytes are a valid message. */
static size_t split(const uint8_t *bytes, size_t n, struct field fields[FIELDS_MAX])
{
    size_t count = 0;

    while (n) {
        if (count == FIELDS_MAX || !take_field(bytes, n, &fields[count]))
            return 0;
        bytes += fields[count].n;
        n -= fields[count].n;
        count++;
    }
    return count;
}

static void mutate_bytes(const uint8_t *bytes, size_t n, struct hy_buf *out)
{
    const size_t room = n + 64 < ROOM ? n + 64 : ROOM;
    uint8_t *copy = malloc(room);

    if (!copy)
        abort();
    if (n)
        memcpy(copy, bytes, n);
    append(out, copy, LLVMFuzzerMutate(copy, n, room));
    free(copy);
}

static void append_number(struct hy_buf *out)
{
    static const uint64_t numbers[] = {0, 1, 2, 4, 512, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};

    append_varint(out, pick(2) ? pick(300) : numbers[pick(sizeof(numbers) / sizeof(numbers[0]))]);
}

static void mutate_message(const uint8_t *bytes, size_t n, struct hy_buf *out, unsigned depth);

static void mutate_field(const struct field *f, struct hy_buf *out, unsigned depth)
{
    struct hy_buf inner;

    switch (pick(8)) {
    case 0: /* removed */
        return;
    case 1: /* duplicated */
        append(out, f->at, f->n);
        append(out, f->at, f->n);
        return;
    default:
        append(out, f->at, f->tag_n);
        if (!f->bytes) {
            append_number(out);
            return;
        }
        hy_buf_init(&inner, ROOM);
        mutate_message(f->bytes, f->bytes_n, &inner, depth + 1);
        append_varint(out, inner.len);
        append(out, hy_buf_bytes(&inner), inner.len);
        hy_buf_done(&inner);
    }
}

static void mutate_message(const uint8_t *bytes, size_t n, struct hy_buf *out, unsigned depth)
{
    struct field fields[FIELDS_MAX];
    const size_t count = depth < DEPTH_MAX ? split(bytes, n, fields) : 0;
    const size_t chosen = count ? pick((unsigned)count) : 0;

    if (count == 0) {
        mutate_bytes(bytes, n, out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (i == chosen)
            mutate_field(&fields[i], out, depth);
        else
            append(out, fields[i].at, fields[i].n);
    }
}

/* ---- one segment ------------------------------------------------------------------- */

static void append_segment(struct hy_buf *out, uint8_t kind, const struct hy_buf *bytes)
{
    const uint8_t head[] = {kind, (uint8_t)bytes->len, (uint8_t)(bytes->len >> 8)};

    append(out, head, sizeof(head));
    append(out, hy_buf_bytes(bytes), bytes->len);
}

static void mutate_segment(const uint8_t *segment, size_t n, struct hy_buf *out)
{
    const unsigned how = pick(8);
    struct hy_buf bytes;

    if (how == 0) /* removed */
        return;
    if (how == 1) /* duplicated */
        append(out, segment, n);
    hy_buf_init(&bytes, ROOM);
    if (how < 3)
        append(&bytes, segment + 3, n - 3);
    else if (how < 6)
        mutate_message(segment + 3, n - 3, &bytes, 0);
    else
        mutate_bytes(segment + 3, n - 3, &bytes);
    append_segment(out, how == 2 ? (uint8_t)pick(HY_PLAY_KINDS) : segment[0], &bytes);
    hy_buf_done(&bytes);
}

/* Offsets of the segments; the last entry is the end. */
static size_t find_segments(const uint8_t *data, size_t size, size_t at, size_t begins[SEGMENTS_MAX + 1])
{
    size_t count = 0;

    while (count < SEGMENTS_MAX && size - at >= 3) {
        const size_t n = 3 + (data[at + 1] | (size_t)data[at + 2] << 8);

        begins[count++] = at;
        at = n < size - at ? at + n : size;
    }
    begins[count] = at;
    return count;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    const size_t head = size < 4 ? size : 4 + data[3] % 17u;
    size_t begins[SEGMENTS_MAX + 1], count, chosen, n;
    struct hy_buf out;

    state = seed;
    count = size > head ? find_segments(data, size, head, begins) : 0;
    if (count == 0 || pick(8) == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    if (pick(8) == 0) { /* the actions, or a fault */
        data[head > 4 && pick(4) ? 4 + pick((unsigned)head - 4) : 1] = (uint8_t)pick(256);
        return size;
    }
    chosen = pick((unsigned)count);
    hy_buf_init(&out, ROOM);
    append(&out, data, begins[chosen]);
    mutate_segment(data + begins[chosen], begins[chosen + 1] - begins[chosen], &out);
    append(&out, data + begins[chosen + 1], size - begins[chosen + 1]);
    n = out.len < max_size ? out.len : max_size;
    if (n)
        memcpy(data, hy_buf_bytes(&out), n);
    hy_buf_done(&out);
    return n;
}
