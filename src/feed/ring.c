/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory, in host byte order:
 *
 *      0        64       128      64 KiB                  64 KiB + size
 *     +--------+--------+-- - - -+------------- - - -----+
 *     | magic, | writer | reader | messages              |
 *     | size   |        |        |                       |
 *     +--------+--------+-- - - -+------------- - - -----+
 *
 * Positions count all bytes ever sent, so they never wrap; the offset of a position
 * is its remainder by the window, a power of two. The window is the first part of
 * the memory, so that the bytes in use stay in the processor's caches. The writer
 * widens it, up to the whole memory, for a message that needs it, while the ring is
 * empty. Messages are mapped twice in a row, so that a message that starts within
 * the window is contiguous even when it extends past its end.
 *
 *     a message    u32 n, u32 kind, n bytes, up to 7 bytes of padding
 *
 * An end that is about to sleep sets its flag and checks again; an end that has
 * sent or released checks the peer's flag. Both have a full barrier in between, so
 * that at least one of them sees the other's store.
 */
#include "feed/feed.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"

#define MAGIC 0x676e6972706f6801ull /* "\1hopring" */
#define HEADER (64u << 10) /* at least a page on any machine */
#define WINDOW_FIRST (4u << 20)
#define MESSAGE_HEADER 8u
#define SPINS 20 /* checks before a wait sleeps, with a yield each: there may be fewer cores than processes */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct shared {
    uint64_t magic, size;
    _Alignas(64) _Atomic uint64_t sent; /* the end of the last message ... */
    _Atomic uint64_t window; /* of all pending messages */
    _Atomic uint32_t writer_sleeps;
    _Alignas(64) _Atomic uint64_t taken; /* ... and of the last one released */
    _Atomic uint32_t reader_sleeps, hint;
};

struct hy_ring {
    struct shared *shared;
    uint8_t *messages; /* mapped twice */
    size_t size, window;
    int socket;
    bool is_peer_gone;
    uint64_t sent, taken;       /* private copies, which the peer cannot change */
    size_t reserved, current;   /* bytes of the current message, with its header */
};

/* ---- memory ------------------------------------------------------------------------ */

static size_t round_up(size_t n)
{
    size_t size = HY_RING_MIN;

    while (size < n && size < HY_RING_MAX)
        size *= 2;
    return size;
}

static void *map_at(void *where, int fd, size_t size, off_t from)
{
    if (hy_fault_hit(HY_SEAM_SYS)) {
        errno = EIO;
        return MAP_FAILED;
    }
    return mmap(where, size, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), fd, from);
}

/* Reserves the address range of both mappings first, so that no other mapping gets in between. */
static int map_twice(struct hy_ring *r, int fd)
{
    uint8_t *room = mmap(NULL, 2 * r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (room == MAP_FAILED)
        return -errno;
    r->messages = room;
    if (map_at(room, fd, r->size, HEADER) == MAP_FAILED || map_at(room + r->size, fd, r->size, HEADER) == MAP_FAILED)
        return -errno;
    return 0;
}

static int map_all(struct hy_ring *r, int fd)
{
    void *shared = map_at(NULL, fd, HEADER, 0);

    if (shared == MAP_FAILED)
        return -errno;
    r->shared = shared;
    return map_twice(r, fd);
}

void hy_ring_close(struct hy_ring *r)
{
    if (!r)
        return;
    if (r->messages)
        munmap(r->messages, 2 * r->size);
    if (r->shared)
        munmap(r->shared, HEADER);
    if (r->socket >= 0)
        close(r->socket);
    free(r);
}

static struct hy_ring *ring_new(size_t size, int socket)
{
    struct hy_ring *r = hy_calloc(1, sizeof *r);

    if (r) {
        r->size = size;
        r->socket = socket;
    } else {
        close(socket);
    }
    return r;
}

static void set_window(struct hy_ring *r, size_t window)
{
    r->window = window;
    atomic_store_explicit(&r->shared->window, window, memory_order_relaxed); /* published by the release of `sent` */
}

static int create_memory(struct hy_ring *r)
{
    hy_cleanup_close int fd = HY_SYS(memfd_create("hopyard-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    int rc;

    if (fd < 0 || HY_SYS(ftruncate(fd, (off_t)(HEADER + r->size))) < 0 || HY_SYS(fcntl(fd, F_ADD_SEALS, SEALS)) < 0)
        return -errno;
    rc = map_all(r, fd);
    if (rc < 0)
        return rc;
    r->shared->magic = MAGIC;
    r->shared->size = r->size;
    set_window(r, r->size < WINDOW_FIRST ? r->size : WINDOW_FIRST);
    return hy_take_fd(fd);
}

int hy_ring_new(size_t size, int socket, struct hy_ring **ret, int *ret_memory, struct hy_err *err)
{
    struct hy_ring *r = ring_new(round_up(size), socket);
    int fd = r ? create_memory(r) : -ENOMEM;

    if (fd < 0) {
        hy_ring_close(r);
        return hy_err_sys(err, fd, "cannot create a ring of %zu bytes", round_up(size));
    }
    *ret = r;
    *ret_memory = fd;
    return 0;
}

/* The size of messages in a sealed memfd; 0 when it is not sealed or not a valid size. */
static size_t checked_size(int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || HY_SYS(fstat(fd, &st)) < 0 || st.st_size <= (off_t)HEADER)
        return 0;
    return round_up((size_t)st.st_size - HEADER) == (size_t)st.st_size - HEADER ? (size_t)st.st_size - HEADER : 0;
}

int hy_ring_open(int memory, int socket, struct hy_ring **ret, struct hy_err *err)
{
    const size_t size = checked_size(memory);
    struct hy_ring *r = ring_new(size, socket);
    int rc = !r ? -ENOMEM : size ? map_all(r, memory) : -EPROTO;

    if (rc == 0 && (r->shared->magic != MAGIC || r->shared->size != size))
        rc = -EPROTO;
    if (rc < 0) {
        hy_ring_close(r);
        return rc == -EPROTO ? hy_err_set(err, rc, "the received memory is not a ring")
                             : hy_err_sys(err, rc, "cannot open a ring");
    }
    *ret = r;
    return 0;
}

size_t hy_ring_message_max(const struct hy_ring *r)
{
    return r->size / 2 - MESSAGE_HEADER;
}

int hy_ring_socket(const struct hy_ring *r)
{
    return r->socket;
}

/* ---- wakeups ----------------------------------------------------------------------- */

/* After a change of a position: the peer may sleep because of the previous one. */
static void wake_peer(struct hy_ring *r, _Atomic uint32_t *sleeps)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(sleeps, memory_order_relaxed) && atomic_exchange(sleeps, 0))
        /* A full socket holds a wakeup already, and the next wait finds a closed one. */
        (void)!send(r->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void set_sleeping(_Atomic uint32_t *sleeps)
{
    atomic_store_explicit(sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

int hy_ring_drain_wakeups(struct hy_ring *r)
{
    char bytes[64];
    ssize_t n;

    do
        n = recv(r->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    while (n == (ssize_t)sizeof bytes || (n < 0 && errno == EINTR));
    if (n == 0 || (n < 0 && errno != EAGAIN))
        r->is_peer_gone = true;
    return r->is_peer_gone ? -EPIPE : 0;
}

typedef int is_ready(struct hy_ring *r, size_t n);

static int64_t remaining_ms(int64_t end)
{
    const int64_t left = end - hy_clock_ms();

    return end < 0 ? -1 : left > 0 ? left : 0;
}

/* Spins, then sleeps until it is ready. Readiness has precedence over a peer that is gone. */
static int wait_until(struct hy_ring *r, is_ready *ready, size_t n, _Atomic uint32_t *sleeps, int timeout_ms)
{
    const int64_t end = timeout_ms < 0 ? -1 : hy_clock_ms() + timeout_ms;
    int rc;

    for (int i = 0; i < SPINS; i++) {
        if ((rc = ready(r, n)) != 0)
            return rc;
        sched_yield();
    }
    for (;;) {
        struct pollfd p = {.fd = r->socket, .events = POLLIN};

        set_sleeping(sleeps);
        if ((rc = ready(r, n)) != 0 || r->is_peer_gone)
            return rc ? rc : -EPIPE;
        rc = poll(&p, 1, (int)remaining_ms(end));
        if (rc < 0 && errno != EINTR)
            return -errno;
        if (rc == 0)
            return ready(r, n);
        if (rc > 0)
            hy_ring_drain_wakeups(r);
    }
}

/* ---- the writer -------------------------------------------------------------------- */

static size_t framed_size(size_t n)
{
    return (MESSAGE_HEADER + n + 7) & ~(size_t)7;
}

/* An impossible position of the reader is ignored. */
static size_t free_bytes(struct hy_ring *r)
{
    const uint64_t taken = atomic_load_explicit(&r->shared->taken, memory_order_acquire);

    if (taken >= r->taken && taken <= r->sent)
        r->taken = taken;
    return r->window - (size_t)(r->sent - r->taken);
}

static int is_empty(struct hy_ring *r, size_t n)
{
    (void)n;
    return free_bytes(r) == r->window;
}

/* Two messages of the largest size fit into the window, so that one is written while the other is read. */
static bool needs_wider_window(const struct hy_ring *r, size_t n)
{
    return framed_size(n) > r->window / 2 && r->window < r->size;
}

static int has_space(struct hy_ring *r, size_t n)
{
    return needs_wider_window(r, n) ? is_empty(r, n) : free_bytes(r) >= framed_size(n);
}

void *hy_ring_reserve(struct hy_ring *r, size_t n)
{
    if (n > hy_ring_message_max(r) || !has_space(r, n))
        return NULL;
    while (needs_wider_window(r, n))
        set_window(r, 2 * r->window);
    r->reserved = framed_size(n);
    return r->messages + r->sent % r->window + MESSAGE_HEADER;
}

void hy_ring_send(struct hy_ring *r, uint32_t kind, size_t n)
{
    const uint32_t head[2] = {(uint32_t)n, kind};

    assert(framed_size(n) <= r->reserved);
    memcpy(r->messages + r->sent % r->window, head, sizeof head);
    r->sent += framed_size(n);
    r->reserved = 0;
    atomic_store_explicit(&r->shared->sent, r->sent, memory_order_release);
    wake_peer(r, &r->shared->reader_sleeps);
}

int hy_ring_wait_for_space(struct hy_ring *r, size_t n, int timeout_ms)
{
    if (n > hy_ring_message_max(r))
        return -EMSGSIZE;
    return wait_until(r, has_space, n, &r->shared->writer_sleeps, timeout_ms);
}

bool hy_ring_arm_writer(struct hy_ring *r, size_t n)
{
    set_sleeping(&r->shared->writer_sleeps);
    return has_space(r, n) == 0;
}

int hy_ring_wait_until_empty(struct hy_ring *r, int timeout_ms)
{
    return wait_until(r, is_empty, 0, &r->shared->writer_sleeps, timeout_ms);
}

uint32_t hy_ring_hint(const struct hy_ring *r)
{
    return atomic_load_explicit(&r->shared->hint, memory_order_relaxed);
}

/* ---- the reader -------------------------------------------------------------------- */

/* -EPROTO when they exceed the ring. */
static int pending_bytes(struct hy_ring *r, size_t *ret)
{
    const uint64_t sent = atomic_load_explicit(&r->shared->sent, memory_order_acquire);

    r->window = atomic_load_explicit(&r->shared->window, memory_order_relaxed);
    if (r->window > r->size || r->window & (r->window - 1) || sent < r->taken || sent - r->taken > r->window)
        return -EPROTO;
    *ret = (size_t)(sent - r->taken);
    return 0;
}

int hy_ring_next(struct hy_ring *r, struct hy_ring_message *ret)
{
    uint32_t head[2];
    size_t pending;
    int rc = pending_bytes(r, &pending);

    if (rc < 0 || pending == 0)
        return rc;
    memcpy(head, r->messages + r->taken % r->window, sizeof head);
    if (pending < MESSAGE_HEADER || head[0] > hy_ring_message_max(r) || framed_size(head[0]) > pending)
        return -EPROTO;
    r->current = framed_size(head[0]);
    *ret = (struct hy_ring_message){
        .bytes = r->messages + r->taken % r->window + MESSAGE_HEADER, .n = head[0], .kind = head[1]};
    return 1;
}

/* Wakes the writer only when half of the window is free, which is enough for any message: a wakeup for each message
 * would cost more than copying it. */
void hy_ring_release(struct hy_ring *r)
{
    const uint64_t sent = atomic_load_explicit(&r->shared->sent, memory_order_relaxed);

    r->taken += r->current;
    r->current = 0;
    atomic_store_explicit(&r->shared->taken, r->taken, memory_order_release);
    if (sent - r->taken <= r->window / 2)
        wake_peer(r, &r->shared->writer_sleeps);
}

void hy_ring_set_hint(struct hy_ring *r, uint32_t hint)
{
    if (atomic_load_explicit(&r->shared->hint, memory_order_relaxed) != hint)
        atomic_store_explicit(&r->shared->hint, hint, memory_order_relaxed);
}

static int has_message(struct hy_ring *r, size_t n)
{
    size_t pending;
    int rc = pending_bytes(r, &pending);

    (void)n;
    return rc < 0 ? rc : pending > 0;
}

int hy_ring_wait_for_message(struct hy_ring *r, int timeout_ms)
{
    return wait_until(r, has_message, 0, &r->shared->reader_sleeps, timeout_ms);
}

bool hy_ring_arm_reader(struct hy_ring *r)
{
    set_sleeping(&r->shared->reader_sleeps);
    return has_message(r, 0) == 0;
}
