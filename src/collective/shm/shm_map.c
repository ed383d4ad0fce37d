/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping parts of the memfd. */
#include <errno.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "collective/shm/shm_set.h"

static void *map(int fd, uint64_t offset, size_t size)
{
    void *memory;

    if (hy_fault_hit(HY_SEAM_SYS)) {
        errno = EIO;
        return NULL;
    }
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    return memory == MAP_FAILED ? NULL : memory;
}

#ifndef __SANITIZE_THREAD__

void *hy_shm_map(int fd, uint64_t offset, size_t size)
{
    return map(fd, offset, size);
}

void hy_shm_unmap(void *memory, size_t size)
{
    munmap(memory, size);
}

#else

/*
 * ThreadSanitizer identifies memory by its address: with two mappings of the same memory it sees neither races nor
 * synchronization. So ranks that are threads of one process share one mapping there.
 */
#include <pthread.h>
#include <sys/stat.h>

#define SHARED_MAX 256

static struct shared {
    ino_t file;
    uint64_t offset;
    size_t size;
    void *memory;
    unsigned users;
} shared[SHARED_MAX];
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static struct shared *find(ino_t file, uint64_t offset, size_t size)
{
    struct shared *unused = NULL;

    for (size_t i = 0; i < SHARED_MAX; i++)
        if (shared[i].users && shared[i].file == file && shared[i].offset == offset && shared[i].size == size)
            return &shared[i];
        else if (!shared[i].users && !unused)
            unused = &shared[i];
    return unused;
}

void *hy_shm_map(int fd, uint64_t offset, size_t size)
{
    struct stat st;
    struct shared *s;
    void *memory = NULL;

    if (fstat(fd, &st) < 0)
        return NULL;
    pthread_mutex_lock(&shared_lock);
    s = find(st.st_ino, offset, size);
    if (s && !s->users)
        *s = (struct shared){st.st_ino, offset, size, map(fd, offset, size), 0};
    if (s)
        memory = s->memory;
    if (memory)
        s->users++;
    pthread_mutex_unlock(&shared_lock);
    return memory;
}

void hy_shm_unmap(void *memory, size_t size)
{
    pthread_mutex_lock(&shared_lock);
    for (size_t i = 0; i < SHARED_MAX; i++)
        if (shared[i].users && shared[i].memory == memory && --shared[i].users == 0)
            munmap(memory, size);
    pthread_mutex_unlock(&shared_lock);
}

#endif
