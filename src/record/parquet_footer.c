/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The footer of a Parquet file:
 *
 *     … row groups … | FileMetaData | its length, 4 bytes, little-endian | "PAR1"
 *
 * FileMetaData is a struct of Thrift's compact protocol: fields, each with a byte "difference of its number to that of
 * the field before, type" (or type, then the number), until a zero byte; integers are zigzag varints. These fields are
 * read:
 *
 *     2  list of SchemaElement: the tree of columns, depth first
 *            1 type  3 repetition  4 name  5 number of children  6 converted type  10 logical type
 *     3  number of rows
 *     4  list of RowGroup
 *     6  created by
 *
 * Everything else is skipped. Lengths and counts are checked against the bytes that are left: each element of a list
 * takes at least one byte, and each entry of a map two. So the time is proportional to the length, but for the paths
 * of columns, which repeat the names of their groups: those are limited.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "record/record.h"

#define DEPTH_MAX 32 /* of structs in structs, and of columns in columns */
#define COLUMNS_MAX 20000u
#define PATHS_MAX (4u << 20) /* bytes of all paths */

enum thrift_type { STOP, YES, NO, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID };

struct reader {
    const uint8_t *at, *end;
    const char *why; /* the first error */
};

static int fail(struct reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    r->at = r->end;
    return -EBADMSG;
}

static uint8_t read_byte(struct reader *r)
{
    if (r->at == r->end) {
        fail(r, "its metadata ends too early");
        return 0;
    }
    return *r->at++;
}

static uint64_t read_varint(struct reader *r)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = read_byte(r);

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    fail(r, "it has a number of more than 64 bits");
    return 0;
}

static int64_t read_integer(struct reader *r)
{
    const uint64_t value = read_varint(r);

    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static const uint8_t *read_bytes(struct reader *r, uint64_t n)
{
    const uint8_t *bytes = r->at;

    if (n > (uint64_t)(r->end - r->at)) {
        fail(r, "it has a string that is longer than its metadata");
        return NULL;
    }
    r->at += n;
    return bytes;
}

static char *read_text(struct reader *r)
{
    const uint64_t n = read_varint(r);
    const uint8_t *bytes = read_bytes(r, n);

    char *text = bytes ? hy_strndup((const char *)bytes, (size_t)n) : NULL;

    if (!text)
        fail(r, "out of memory");
    return text;
}

/* The number of elements, and their type. */
static uint64_t read_list(struct reader *r, enum thrift_type *ret_type)
{
    const uint8_t byte = read_byte(r);
    const uint64_t n = byte >> 4 == 15 ? read_varint(r) : byte >> 4;

    *ret_type = byte & 15;
    if (n <= (uint64_t)(r->end - r->at))
        return n;
    fail(r, "it has a list that is longer than its metadata");
    return 0;
}

/* The type of the next field, and its number; STOP at the end of the struct. */
static enum thrift_type read_field(struct reader *r, int64_t *number)
{
    const uint8_t byte = read_byte(r);

    if ((byte & 15) == STOP)
        return STOP;
    *number = byte >> 4 ? *number + (byte >> 4) : read_integer(r);
    if (*number < 0 || *number > INT16_MAX) {
        fail(r, "it has an invalid field");
        return STOP;
    }
    return byte & 15;
}

/* ---- skipped values ------------------------------------------------------------------------ */

static void skip(struct reader *r, enum thrift_type type, int depth);

/* In a list or a map a boolean is a byte; as a field, its type is its value. */
static void skip_element(struct reader *r, enum thrift_type type, int depth)
{
    if (type == YES || type == NO)
        (void)read_byte(r);
    else
        skip(r, type, depth);
}

static void skip_map(struct reader *r, int depth)
{
    const uint64_t n = read_varint(r);
    const uint8_t types = n ? read_byte(r) : 0;

    if (n > (uint64_t)(r->end - r->at) / 2)
        fail(r, "it has a map that is longer than its metadata");
    for (uint64_t i = 0; i < n && !r->why; i++) {
        skip_element(r, types >> 4, depth);
        skip_element(r, types & 15, depth);
    }
}

static void skip_list(struct reader *r, int depth)
{
    enum thrift_type type;
    const uint64_t n = read_list(r, &type);

    for (uint64_t i = 0; i < n && !r->why; i++)
        skip_element(r, type, depth);
}

static void skip_struct(struct reader *r, int depth)
{
    enum thrift_type type;
    int64_t number = 0;

    while ((type = read_field(r, &number)) != STOP)
        skip(r, type, depth);
}

static void skip(struct reader *r, enum thrift_type type, int depth)
{
    if (depth == DEPTH_MAX) {
        fail(r, "its metadata is nested too deeply");
        return;
    }
    switch (type) {
    case YES:
    case NO:
        break;
    case I8:
        (void)read_byte(r);
        break;
    case I16:
    case I32:
    case I64:
        (void)read_varint(r);
        break;
    case DOUBLE:
        (void)read_bytes(r, 8);
        break;
    case UUID:
        (void)read_bytes(r, 16);
        break;
    case BINARY:
        (void)read_bytes(r, read_varint(r));
        break;
    case LIST:
    case SET:
        skip_list(r, depth + 1);
        break;
    case MAP:
        skip_map(r, depth + 1);
        break;
    case STRUCT:
        skip_struct(r, depth + 1);
        break;
    default:
        fail(r, "it has a value of an unknown type");
    }
}

/* ---- columns ------------------------------------------------------------------------------- */

static const char *const physical_names[] = {"boolean", "int32",  "int64",      "int96",
                                             "float",   "double", "byte array", "fixed-length byte array"};
static const char *const repetition_names[] = {"required", "optional", "repeated"};
static const char *const converted_names[] = {
    "string", "map",    "map",    "list",   "enum", "decimal", "date",  "time",  "time", "timestamp", "timestamp",
    "uint8",  "uint16", "uint32", "uint64", "int8", "int16",   "int32", "int64", "json", "bson",      "interval"};
static const char *const logical_names[] = {NULL,   "string", "map",       "list",     "enum",    "decimal",
                                            "date", "time",   "timestamp", "interval", "integer", "unknown",
                                            "json", "bson",   "uuid",      "float16"};

static const char *name_of(const char *const *names, size_t count, int64_t i)
{
    return i >= 0 && (uint64_t)i < count ? names[i] : NULL;
}

struct element {
    char *name;
    int64_t type, repetition, children, converted, logical; /* -1: missing */
};

/* A union: the number of its only field says which it is. */
static int64_t read_union(struct reader *r)
{
    int64_t number = 0, first = -1;
    enum thrift_type type;

    while ((type = read_field(r, &number)) != STOP) {
        first = first < 0 ? number : first;
        skip(r, type, 0);
    }
    return first;
}

static void read_element(struct reader *r, struct element *ret)
{
    enum thrift_type type;
    int64_t number = 0;

    *ret = (struct element){.type = -1, .repetition = -1, .converted = -1, .logical = -1};
    while ((type = read_field(r, &number)) != STOP) {
        int64_t *integer = number == 1   ? &ret->type
                           : number == 3 ? &ret->repetition
                           : number == 5 ? &ret->children
                           : number == 6 ? &ret->converted
                                         : NULL;

        if (integer && type == I32) {
            *integer = read_integer(r);
        } else if (number == 4 && type == BINARY) {
            free(hy_take(ret->name));
            ret->name = read_text(r);
        } else if (number == 10 && type == STRUCT) {
            ret->logical = read_union(r);
        } else {
            skip(r, type, 0);
        }
    }
}

/* The columns that contain the next element: how many children each still gets, and its path. */
struct parents {
    int64_t left[DEPTH_MAX];
    size_t path_length[DEPTH_MAX];
    size_t depth, all_paths; /* the length of the paths of all columns */
    struct hy_buf path;
};

static int append_name(struct parents *p, const char *name)
{
    hy_buf_cut(&p->path, p->depth ? p->path_length[p->depth - 1] : 0);
    if (p->path.len && hy_buf_append_str(&p->path, ".") < 0)
        return -ENOMEM;
    return hy_buf_append_str(&p->path, name ? name : "") < 0 ? -ENOMEM : 0;
}

static int add_leaf(struct reader *r, struct hy_parquet *f, struct parents *p, const struct element *e)
{
    const char *path = hy_buf_cstr(&p->path);
    struct hy_parquet_column c = {
        .path = path ? hy_strdup(path) : NULL,
        .type = name_of(physical_names, HY_COUNT(physical_names), e->type),
        .meaning = name_of(converted_names, HY_COUNT(converted_names), e->converted),
        .repetition = name_of(repetition_names, HY_COUNT(repetition_names), e->repetition),
    };

    p->all_paths += p->path.len;
    if (f->column_count == COLUMNS_MAX || p->all_paths > PATHS_MAX) {
        free(c.path);
        return fail(r, "it has too many columns, or too long names");
    }
    if (!c.meaning && e->logical > 0)
        c.meaning = name_of(logical_names, HY_COUNT(logical_names), e->logical);
    if (!c.path || hy_array_grow(f->columns, f->column_count) < 0) {
        free(c.path);
        return -ENOMEM;
    }
    f->columns[f->column_count++] = c;
    return 0;
}

/* The next `children` columns belong to this one. */
static int enter_group(struct reader *r, struct parents *p, int64_t children)
{
    if (children < 0 || children > r->end - r->at)
        return fail(r, "it has a column with an invalid number of children");
    if (p->depth == DEPTH_MAX)
        return fail(r, "its columns are nested too deeply");
    p->left[p->depth] = children;
    p->path_length[p->depth++] = p->path.len;
    return 0;
}

static int enter_root(struct reader *r, struct parents *p, const struct element *e)
{
    return e->children ? enter_group(r, p, e->children) : 0;
}

/* Adds a column, or enters the group of columns. */
static int add_element(struct reader *r, struct hy_parquet *f, struct parents *p, const struct element *e)
{
    int rc = p->depth ? append_name(p, e->name) : fail(r, "its columns do not form a tree");

    if (rc < 0)
        return rc;
    p->left[p->depth - 1]--;
    rc = e->children ? enter_group(r, p, e->children) : add_leaf(r, f, p, e);
    while (rc == 0 && p->depth && p->left[p->depth - 1] == 0)
        p->depth--;
    return rc;
}

/* The first element is the root: its name is not part of a column's. */
static int read_schema(struct reader *r, struct hy_parquet *f)
{
    struct parents p = {0};
    enum thrift_type type;
    const uint64_t n = read_list(r, &type);
    int rc = n && type != STRUCT ? fail(r, "its schema is not a list of columns") : 0;

    hy_buf_init(&p.path, 1u << 20);
    for (uint64_t i = 0; i < n && rc == 0 && !r->why; i++) {
        struct element e;

        read_element(r, &e);
        if (!r->why)
            rc = i == 0 ? enter_root(r, &p, &e) : add_element(r, f, &p, &e);
        free(e.name);
    }
    if (rc == 0 && !r->why && p.depth)
        rc = fail(r, "its columns do not form a tree");
    hy_buf_done(&p.path);
    return rc;
}

/* ---- the file ------------------------------------------------------------------------------------- */

static void skip_groups(struct reader *r, struct hy_parquet *f)
{
    enum thrift_type type;

    f->group_count = read_list(r, &type);
    for (uint64_t i = 0; i < f->group_count && !r->why; i++)
        skip(r, type, 0);
}

static int read_file(struct reader *r, struct hy_parquet *f)
{
    enum thrift_type type;
    int64_t number = 0;
    bool has_schema = false;
    int rc = 0;

    while (rc == 0 && (type = read_field(r, &number)) != STOP) {
        if (number == 2 && type == LIST && !has_schema) {
            rc = read_schema(r, f);
            has_schema = true;
        } else if (number == 3 && type == I64) {
            f->rows = read_integer(r);
        } else if (number == 4 && type == LIST) {
            skip_groups(r, f);
        } else if (number == 6 && type == BINARY && !f->created_by) {
            f->created_by = read_text(r);
        } else {
            skip(r, type, 0);
        }
    }
    if (rc == 0 && !has_schema)
        rc = fail(r, "it has no schema");
    if (rc == 0 && f->rows < 0)
        rc = fail(r, "it has a negative number of rows");
    return rc;
}

int hy_parquet_parse(const uint8_t *bytes, size_t n, struct hy_parquet *ret, const char **ret_why)
{
    struct reader r = {.at = bytes, .end = bytes + n};
    struct hy_parquet f = {0};
    int rc = n ? read_file(&r, &f) : fail(&r, "it has no metadata");

    if (r.why)
        rc = -EBADMSG;
    if (rc == 0) {
        *ret = f;
        return 0;
    }
    *ret_why = r.why ? r.why : "out of memory";
    hy_parquet_done(&f);
    return rc;
}

int64_t hy_parquet_footer(const uint8_t tail[8])
{
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return -EBADMSG;
    return (int64_t)hy_get_le(tail, 4);
}

void hy_parquet_done(struct hy_parquet *f)
{
    for (size_t i = 0; i < f->column_count; i++)
        free(f->columns[i].path);
    free(f->columns);
    free(f->created_by);
}
