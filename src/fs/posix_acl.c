/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/posix_acl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "fs/fs.h"

#define VERSION 2u
#define NO_ID UINT32_MAX
#define HEADER_SIZE 4u
#define ENTRY_SIZE 8u

static const struct tag {
    unsigned tag;
    enum hy_fs_acl_kind kind;
    bool has_id;
} tags[] = {
    {0x01, HY_FS_ACL_USER, false}, {0x02, HY_FS_ACL_USER, true},  {0x04, HY_FS_ACL_GROUP, false},
    {0x08, HY_FS_ACL_GROUP, true}, {0x10, HY_FS_ACL_MASK, false}, {0x20, HY_FS_ACL_OTHER, false},
};

/* ---- parse ----------------------------------------------------------------------------- */

/* The position of a tag in the order of entries; -1: unknown. */
static int rank_of_tag(unsigned tag)
{
    for (size_t i = 0; i < HY_COUNT(tags); i++)
        if (tags[i].tag == tag)
            return (int)i;
    return -1;
}

static int parse_entry(const uint8_t *p, bool is_default, int *rank, struct hy_fs_acl *acl)
{
    const int next = rank_of_tag((unsigned)hy_get_le(p, 2));
    const unsigned perm = (unsigned)hy_get_le(p + 2, 2);
    const uint32_t id = (uint32_t)hy_get_le(p + 4, 4);
    char name[16];

    /* Users and groups may repeat, all others occur once. */
    if (next < 0 || perm > 7 || next < *rank || (next == *rank && !tags[next].has_id))
        return -EPROTO;
    if (tags[next].has_id && id == NO_ID)
        return -EPROTO;
    *rank = next;
    snprintf(name, sizeof name, "%" PRIu32, id);
    return hy_fs_acl_add(acl, tags[next].kind, is_default, tags[next].has_id ? name : NULL, perm);
}

/* Owner, group and others are required; with names, a mask, too. */
static int check_complete(const struct hy_fs_acl *acl, size_t first)
{
    unsigned base = 0;
    bool has_names = false, has_mask = false;

    for (size_t i = first; i < acl->count; i++) {
        has_names = has_names || acl->list[i].name;
        has_mask = has_mask || acl->list[i].kind == HY_FS_ACL_MASK;
        base += !acl->list[i].name && acl->list[i].kind != HY_FS_ACL_MASK;
    }
    return base == 3 && (has_mask || !has_names) ? 0 : -EPROTO;
}

int hy_posix_acl_parse(const uint8_t *bytes, size_t n, bool is_default, struct hy_fs_acl *acl)
{
    const size_t first = acl->count;
    int rank = -1, rc = 0;

    if (n < HEADER_SIZE || hy_get_le(bytes, 4) != VERSION || (n - HEADER_SIZE) % ENTRY_SIZE != 0)
        return -EPROTO;
    if (n == HEADER_SIZE && is_default) /* an empty default list counts as no list */
        return 0;
    for (size_t at = HEADER_SIZE; at < n && rc == 0; at += ENTRY_SIZE)
        rc = parse_entry(bytes + at, is_default, &rank, acl);
    return rc < 0 ? rc : check_complete(acl, first);
}

/* ---- format ------------------------------------------------------------------------------ */

struct packed {
    int rank;
    uint32_t id;
    unsigned perm;
};

static int by_rank_and_id(const void *a, const void *b)
{
    const struct packed *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int pack(const struct hy_fs_acl_entry *e, struct packed *ret)
{
    uint64_t id = NO_ID;

    if (e->name && (hy_parse_u64(e->name, &id) < 0 || id >= NO_ID))
        return -EINVAL;
    for (size_t i = 0; i < HY_COUNT(tags); i++) {
        if (tags[i].kind != e->kind || tags[i].has_id != (e->name != NULL))
            continue;
        *ret = (struct packed){.rank = (int)i, .id = (uint32_t)id, .perm = e->perm & 7};
        return 0;
    }
    return -EINVAL; /* a mask or others with a name */
}

static int append(struct hy_buf *b, const struct packed *list, size_t count)
{
    uint8_t bytes[ENTRY_SIZE];
    int rc;

    hy_put_le(bytes, VERSION, 4);
    rc = hy_buf_append(b, bytes, HEADER_SIZE);
    for (size_t i = 0; i < count && rc == 0; i++) {
        hy_put_le(bytes, tags[list[i].rank].tag, 2);
        hy_put_le(bytes + 2, list[i].perm, 2);
        hy_put_le(bytes + 4, list[i].id, 4);
        rc = hy_buf_append(b, bytes, ENTRY_SIZE);
    }
    return rc;
}

int hy_posix_acl_format(const struct hy_fs_acl *acl, bool is_default, struct hy_buf *b)
{
    hy_cleanup_free struct packed *list = hy_calloc(acl->count + 1, sizeof *list);
    size_t count = 0;

    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < acl->count; i++)
        if (acl->list[i].is_default == is_default && pack(&acl->list[i], &list[count++]) < 0)
            return -EINVAL;
    qsort(list, count, sizeof *list, by_rank_and_id);
    return append(b, list, count);
}
