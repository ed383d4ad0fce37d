/* SPDX-License-Identifier: Apache-2.0 */
/* Previews of files: text, tables, Parquet's columns, examples of TFRecords. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "base/text.h"
#include "record/record.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/files/csv.h"
#include "web/files/served_dir.h"

#define TEXT_MAX (64u << 10)
#define TABLE_MAX (256u << 10)
#define TABLE_ROWS 100
#define CELL_MAX 200
#define FOOTER_MAX (16u << 20)
#define RECORD_MAX (8u << 20)
#define EXAMPLES 10
#define FEATURES_MAX 200
#define VALUES_SHOWN 10
#define BYTES_SHOWN 100

/* What is previewed. */
struct preview {
    const char *name;
    char *url; /* for fs.h */
    struct hy_fs_file *file;
    uint64_t size;
    uint8_t head[8]; /* the first bytes; others are 0 */
    json_t *json;
};

static void preview_done(struct preview *v)
{
    struct hy_err ignored = {0};

    if (v->file && hy_fs_close(v->file, &ignored) < 0)
        ignored.code = 0; /* nothing was written */
    free(v->url);
    json_decref(v->json);
}

#define cleanup_preview __attribute__((cleanup(preview_done)))

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n >= m && strcasecmp(name + n - m, ending) == 0;
}

static int set_kind(struct preview *v, const char *kind)
{
    return hy_json_set(v->json, "kind", json_string(kind));
}

/* Nothing to show, and why. */
static int set_binary(struct preview *v, const char *why)
{
    return set_kind(v, "binary") | hy_json_set(v->json, "note", hy_json_text(why)) ? -ENOMEM : 0;
}

/* Reads the beginning, into a buffer that has room for a NUL. */
static int read_head(struct preview *v, size_t max, char **ret, size_t *ret_n, struct hy_err *err)
{
    const size_t n = v->size < max ? (size_t)v->size : max;
    char *text = hy_malloc(n + 1);
    int64_t got = text ? hy_fs_pread(v->file, text, n, 0, err) : hy_err_oom(err);

    if (got < 0) {
        free(text);
        return (int)got;
    }
    text[got] = '\0';
    *ret = text;
    *ret_n = (size_t)got;
    return 0;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Removes a character that is incomplete at the end of the buffer. False: it is not UTF-8 text. */
static bool check_text(char *text, size_t *n, bool is_cut)
{
    for (size_t at = 0; at < *n;) {
        const size_t length = hy_utf8_len(text + at, *n - at);

        if (length == 0 && is_cut && *n - at < 4) {
            text[ *n = at] = '\0';
            return true;
        }
        if (length == 0 || text[at] == '\0')
            return false;
        at += length;
    }
    return true;
}

static int preview_text(struct preview *v, struct hy_err *err)
{
    hy_cleanup_free char *text = NULL;
    const bool is_cut = v->size > TEXT_MAX;
    size_t n = 0, mark;
    int rc = read_head(v, TEXT_MAX, &text, &n, err);

    if (rc < 0)
        return rc;
    if (!check_text(text, &n, is_cut))
        return set_binary(v, "The file is not UTF-8 text.") < 0 ? hy_err_oom(err) : 0;
    mark = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* some editors write a byte order mark */
    rc = set_kind(v, "text") | hy_json_set(v->json, "text", json_stringn(text + mark, n - mark)) |
         hy_json_set(v->json, "cut", json_boolean(is_cut));
    return rc ? hy_err_oom(err) : 0;
}

/* ---- tables ------------------------------------------------------------------------------------ */

static json_t *row_json(const struct hy_string_list *cells)
{
    json_t *row = json_array();

    for (size_t i = 0; i < cells->count; i++) {
        size_t n = strlen(cells->items[i]);
        bool is_cut = n > CELL_MAX;

        n = is_cut ? CELL_MAX : n;
        (void)check_text(cells->items[i], &n, is_cut); /* not between the bytes of a character */
        cells->items[i][n] = '\0';
        if (hy_json_append(row, hy_json_text(cells->items[i])) < 0) {
            json_decref(row);
            return NULL;
        }
    }
    return row;
}

static int add_rows(json_t *rows, const char *text, size_t n, char separator, bool is_end, size_t *ret_at)
{
    while (*ret_at < n && json_array_size(rows) < TABLE_ROWS) {
        hy_cleanup_string_list struct hy_string_list cells = {0};
        const ssize_t length = hy_csv_row(text + *ret_at, n - *ret_at, separator, is_end, &cells);

        if (length < 0 || (length > 0 && hy_json_append(rows, row_json(&cells)) < 0))
            return -ENOMEM;
        if (length == 0)
            break;
        *ret_at += (size_t)length;
    }
    return 0;
}

static int preview_table(struct preview *v, struct hy_err *err)
{
    hy_cleanup_free char *text = NULL;
    const bool is_end = v->size <= TABLE_MAX;
    size_t n = 0, at;
    char separator[2] = {0};
    json_t *rows;
    int rc = read_head(v, TABLE_MAX, &text, &n, err);

    if (rc < 0)
        return rc;
    if (!check_text(text, &n, !is_end))
        return set_binary(v, "The file is not UTF-8 text.") < 0 ? hy_err_oom(err) : 0;
    at = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    separator[0] = hy_csv_separator(text + at, n - at);
    rows = json_array();
    rc = rows ? add_rows(rows, text, n, separator[0], is_end, &at) : -ENOMEM;
    rc |= hy_json_set(v->json, "rows", rows);
    rc |= set_kind(v, "table") | hy_json_set(v->json, "separator", json_string(separator)) |
          hy_json_set(v->json, "cut", json_boolean(!is_end || at < n));
    return rc ? hy_err_oom(err) : 0;
}

/* ---- Parquet ------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static int set_columns(json_t *o, const struct hy_parquet *f)
{
    json_t *columns = json_array();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < f->column_count; i++) {
        const struct hy_parquet_column *c = &f->columns[i];

        rc = hy_json_append(columns,
                            json_pack("{s:o,s:o,s:o,s:o}", "name", hy_json_text(c->path), "type", text_or_null(c->type),
                                      "meaning", text_or_null(c->meaning), "repetition", text_or_null(c->repetition)));
    }
    return hy_json_set(o, "columns", columns) | rc;
}

/* The metadata at the end of the file; 0 and *ret NULL when there is none, with a reason. */
static int read_footer(struct preview *v, uint8_t **ret, size_t *ret_n, const char **ret_why, struct hy_err *err)
{
    uint8_t tail[8];
    int64_t got = v->size >= 12 ? hy_fs_pread(v->file, tail, 8, v->size - 8, err) : 0;
    int64_t n = got == 8 ? hy_parquet_footer(tail) : -EBADMSG;

    if (got < 0)
        return (int)got;
    *ret_why = n < 0 ? "The file does not end like a Parquet file: it is incomplete, or its metadata is encrypted."
                     : "The metadata of this Parquet file is larger than 16 MB.";
    if (n < 0 || n > FOOTER_MAX || (uint64_t)n > v->size - 12)
        return 0;
    *ret = hy_malloc((size_t)n + 1);
    if (!*ret)
        return hy_err_oom(err);
    got = hy_fs_pread(v->file, *ret, (size_t)n, v->size - 8 - (uint64_t)n, err);
    *ret_n = got < 0 ? 0 : (size_t)got;
    return got < 0 ? (int)got : 0;
}

static int preview_parquet(struct preview *v, struct hy_err *err)
{
    hy_cleanup_free uint8_t *bytes = NULL;
    hy_cleanup_free char *sentence = NULL;
    struct hy_parquet f;
    const char *why = NULL;
    size_t n = 0;
    int rc = read_footer(v, &bytes, &n, &why, err);

    if (rc < 0)
        return rc;
    if (bytes && hy_parquet_parse(bytes, n, &f, &why) < 0) {
        sentence = hy_asprintf("This Parquet file is damaged: %s.", why);
        return !sentence || set_binary(v, sentence) < 0 ? hy_err_oom(err) : 0;
    }
    if (!bytes)
        return set_binary(v, why) < 0 ? hy_err_oom(err) : 0;
    rc = set_kind(v, "parquet") | set_columns(v->json, &f) | hy_json_set(v->json, "row_count", json_integer(f.rows)) |
         hy_json_set(v->json, "row_groups", json_integer((json_int_t)f.group_count)) |
         hy_json_set(v->json, "created_by", f.created_by ? hy_json_text(f.created_by) : json_null());
    hy_parquet_done(&f);
    return rc ? hy_err_oom(err) : 0;
}

/* ---- TFRecords ---------------------------------------------------------------------------------------- */

/* The bytes as text if they are UTF-8, otherwise their length. */
static json_t *bytes_json(const uint8_t *bytes, size_t n)
{
    hy_cleanup_free char *text = n ? hy_strndup((const char *)bytes, n < BYTES_SHOWN ? n : BYTES_SHOWN) : hy_strdup("");
    size_t shown = text ? strlen(text) : 0;
    const bool is_text = text && shown == (n < BYTES_SHOWN ? n : BYTES_SHOWN) &&
                         check_text(text, &shown, n > BYTES_SHOWN);

    if (!text)
        return NULL;
    return is_text ? json_sprintf("%s%s", text, n > BYTES_SHOWN ? "…" : "") : json_sprintf("(%zu bytes)", n);
}

static json_t *value_json(const struct hy_column *c, size_t i)
{
    const uint8_t *values = hy_buf_bytes(&c->values);
    int64_t integer;
    float number;

    switch (c->kind) {
    case HY_KIND_INT64:
        memcpy(&integer, values + 8 * i, 8);
        return json_integer(integer);
    case HY_KIND_FLOAT:
        memcpy(&number, values + 4 * i, 4);
        return hy_json_number((double)number);
    default: {
        const int64_t *ends = hy_column_ends(&c->value_ends);

        return bytes_json(values + ends[i], (size_t)(ends[i + 1] - ends[i]));
    }
    }
}

static size_t value_count(const struct hy_column *c)
{
    switch (c->kind) {
    case HY_KIND_INT64:
        return c->values.len / 8;
    case HY_KIND_FLOAT:
        return c->values.len / 4;
    case HY_KIND_BYTES:
        return c->value_ends.len / 8 - 1;
    default:
        return 0;
    }
}

static json_t *feature_json(const struct hy_column *c)
{
    static const char *const kinds[] = {
        [HY_KIND_NONE] = "none", [HY_KIND_BYTES] = "bytes", [HY_KIND_FLOAT] = "float", [HY_KIND_INT64] = "int64"};
    const size_t count = value_count(c);
    json_t *values = json_array();

    for (size_t i = 0; i < count && i < VALUES_SHOWN; i++)
        if (hy_json_append(values, value_json(c, i)) < 0) {
            json_decref(values);
            return NULL;
        }
    return json_pack("{s:o,s:s,s:I,s:b,s:o}", "name", hy_json_text(c->name), "type", kinds[c->kind], "count",
                     (json_int_t)count, "is_sequence", c->has_steps, "values", values);
}

/* The features of one record; an empty array for bytes that are not an example. */
static json_t *example_json(const struct hy_record *r)
{
    struct hy_columns c;
    json_t *features = json_array();
    int rc;

    hy_columns_init(&c);
    rc = hy_example_parse(&c, r->bytes, r->n, NULL);
    if (rc < 0 || c.count == 0) {
        hy_columns_done(&c);
        hy_columns_init(&c);
        rc = hy_sequence_example_parse(&c, r->bytes, r->n, NULL);
    }
    if (rc == 0)
        rc = hy_columns_fill(&c);
    for (size_t i = 0; rc == 0 && i < c.count && i < FEATURES_MAX; i++)
        rc = hy_json_append(features, feature_json(&c.list[i]));
    hy_columns_done(&c);
    if (rc != -ENOMEM)
        return json_pack("{s:I,s:o}", "bytes", (json_int_t)r->n, "features", features);
    json_decref(features);
    return NULL;
}

static int add_examples(struct hy_records *records, json_t *examples, int *ret_next, struct hy_err *err)
{
    struct hy_record r;

    while ((*ret_next = hy_records_next(records, &r, err)) == 1 && json_array_size(examples) < EXAMPLES)
        if (hy_json_append(examples, example_json(&r)) < 0)
            return hy_err_oom(err);
    return *ret_next == -ENOMEM ? -ENOMEM : 0;
}

static int preview_records(struct preview *v, struct hy_err *err)
{
    struct hy_records *records = NULL;
    json_t *examples = json_array();
    struct hy_err damage = {0};
    int next = 0,
        rc = hy_json_set(v->json, "examples", examples) < 0 ? hy_err_oom(err) : hy_records_open(v->url, &records, err);

    if (rc < 0)
        return rc;
    hy_records_limit(records, RECORD_MAX);
    rc = add_examples(records, examples, &next, &damage);
    hy_records_close(records);
    if (rc < 0) {
        *err = damage;
        return rc;
    }
    if (next < 0 && json_array_size(examples) == 0)
        return set_binary(v, "The records are damaged, or longer than 8 MB.") < 0 ? hy_err_oom(err) : 0;
    rc = set_kind(v, "records") | hy_json_set(v->json, "cut", json_boolean(next == 1)) |
         hy_json_set(v->json, "note",
                     next < 0 ? json_string("The next record is damaged, or longer than 8 MB.") : json_null());
    return rc ? hy_err_oom(err) : 0;
}

/* ---- GET /files/preview ------------------------------------------------------------------------------------ */

static bool is_records(const struct preview *v)
{
    return ends_with(v->name, ".tfrecord") || ends_with(v->name, ".tfrecords") || strcasestr(v->name, ".tfrecord-") ||
           strcasestr(v->name, ".tfrecords.") || strcasestr(v->name, ".tfrecord.") ||
           strcasestr(v->name, ".tfrecords-");
}

static int preview(struct preview *v, struct hy_err *err)
{
    if (hy_served_dir_image_type(v->name))
        return set_kind(v, "image") < 0 ? hy_err_oom(err) : 0;
    if (ends_with(v->name, ".parquet") || memcmp(v->head, "PAR1", 4) == 0)
        return preview_parquet(v, err);
    if (is_records(v))
        return preview_records(v, err);
    if (ends_with(v->name, ".csv") || ends_with(v->name, ".tsv"))
        return preview_table(v, err);
    return preview_text(v, err);
}

static int open_preview(struct hy_served_dir *p, const char *path, struct preview *v, struct hy_err *err)
{
    hy_cleanup_free char *address = NULL;
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_served_dir_existing(p, path, &v->url, err);

    address = rc == 0 ? hy_served_dir_address(p, path) : NULL;
    if (rc == 0)
        rc = hy_fs_stat(v->url, &info, err);
    if (rc == 0)
        rc = hy_fs_open(v->url, HY_FS_READ, &v->file, err);
    if (rc < 0)
        return rc;
    v->name = hy_served_dir_name(path);
    v->size = hy_fs_size(v->file);
    v->json = json_object();
    if (hy_fs_pread(v->file, v->head, sizeof v->head, 0, err) < 0)
        return err->code;
    rc = hy_json_set(v->json, "path", hy_json_text(path)) |
         hy_json_set(v->json, "address", address ? hy_json_text(address) : NULL) |
         hy_json_set(v->json, "size", json_integer((json_int_t)v->size)) |
         hy_json_set(v->json, "modified", json_integer(info.modified_ms));
    return rc ? hy_err_oom(err) : 0;
}

static void reply_preview(struct hy_exchange *x, struct hy_served_dir *p)
{
    cleanup_preview struct preview v = {0};
    hy_cleanup_free char *path = NULL;
    struct hy_err err = {0};
    int rc;

    if (hy_served_dir_required(x, "path", &path) < 0)
        return;
    rc = open_preview(p, path, &v, &err);
    if (rc == 0)
        rc = preview(&v, &err);
    if (rc < 0)
        hy_served_dir_failure(x, p, &err);
    else
        hy_reply_json(x, json_incref(v.json));
}

void hy_api_file_preview(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};

    if (hy_served_dir_of_project(x, &p) == 0)
        reply_preview(x, &p);
}

void hy_api_trial_file_preview(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};

    if (hy_served_dir_of_trial(x, &p) == 0)
        reply_preview(x, &p);
}
