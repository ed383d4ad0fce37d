/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard records`: inspects TFRecord files, local or on HDFS. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/fs/commands.h"
#include "record/record.h"
#include "view/view.h"

#define BATCH 1024u   /* records per batch of columns */
#define HEAD_DEFAULT 5u
#define SHOWN_VALUES 8
#define LINE_MAX_COLUMNS 60
#define NAME_MAX_COLUMNS 32

static const char *const kinds[] = {"nothing", "bytes", "float", "int64"};

/* ---- reading ------------------------------------------------------------------------- */

/* Calls `on` for each record until it returns another value than 0. Returns that value, or 0. */
typedef int on_record(void *arg, const struct hy_record *r, uint64_t at, struct hy_err *err);

static int each_record(const char *url, on_record *on, void *arg, struct hy_err *err)
{
    struct hy_records *file = NULL;
    struct hy_record r;
    int rc = hy_records_open(url, &file, err);

    while (rc == 0 && (rc = hy_records_next(file, &r, err)) > 0)
        rc = on(arg, &r, hy_records_at(file), err);
    hy_records_close(file);
    return rc;
}

/* The state of a command. */
struct inspection {
    struct hy_out out;
    uint64_t count, bytes; /* of this file */
    uint64_t files, all;   /* files so far, and their records */
    uint64_t most;         /* head: records per file */
    bool is_json;
    struct hy_columns columns;
    struct stat_of *stats; /* schema: one per column */
    size_t stat_count;
};

static void look_init(struct inspection *l, const struct hy_args *args)
{
    struct hy_style style;

    *l = (struct inspection){.is_json = hy_args_has(args, "json")};
    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&l->out, &style);
    hy_columns_init(&l->columns);
}

static int look_done(struct inspection *l, int status)
{
    const int rc = hy_out_flush(&l->out, STDOUT_FILENO);

    hy_out_done(&l->out);
    hy_columns_done(&l->columns);
    free(l->stats);
    return rc < 0 && rc != -EPIPE ? HY_EXIT_FAILED : status;
}

/* ---- count and verify -------------------------------------------------------------- */

static int count_record(void *arg, const struct hy_record *r, uint64_t at, struct hy_err *err)
{
    struct inspection *l = arg;

    (void)at;
    (void)err;
    l->count++;
    l->bytes += r->n;
    return 0;
}

static void say_count(struct inspection *l, const char *what)
{
    char count[32];

    hy_outf(&l->out, "%15s  ", hy_format_count(l->count, count, sizeof count));
    hy_out_value(&l->out, what);
    hy_out_str(&l->out, "\n");
}

static int count_file(void *arg, const char *url, struct hy_err *err)
{
    struct inspection *l = arg;
    int rc;

    l->count = l->bytes = 0;
    rc = each_record(url, count_record, l, err);
    if (rc == 0)
        say_count(l, url);
    l->all += l->count;
    l->files++;
    return rc < 0 ? rc : 0;
}

static int count(const struct hy_args *args)
{
    struct inspection l;
    int status;

    look_init(&l, args);
    status = hy_files_each_word(args, 0, count_file, &l);
    if (l.files > 1) {
        l.count = l.all;
        say_count(&l, "in all");
    }
    return look_done(&l, status);
}

static int verify_file(void *arg, const char *url, struct hy_err *err)
{
    struct inspection *l = arg;
    char n[32], size[32];
    int rc;

    l->count = l->bytes = 0;
    rc = each_record(url, count_record, l, err);
    if (rc < 0)
        return rc;
    hy_out_value(&l->out, url);
    hy_outf(&l->out, ": %s record%s, %s, all checksums are correct\n", hy_format_count(l->count, n, sizeof n),
            l->count == 1 ? "" : "s", hy_format_size(l->bytes, size, sizeof size));
    return hy_out_flush(&l->out, STDOUT_FILENO) == -EPIPE ? 1 : 0;
}

static int verify(const struct hy_args *args)
{
    struct inspection l;

    look_init(&l, args);
    return look_done(&l, hy_files_each_word(args, 0, verify_file, &l));
}

/* ---- examples ---------------------------------------------------------------------- */

/* Values [from, to) of a row; for a column with steps, of all steps. */
static void values_of(const struct hy_column *c, uint64_t row, int64_t *from, int64_t *to)
{
    const int64_t *ends = hy_column_ends(&c->row_ends);

    *from = ends[row];
    *to = ends[row + 1];
    if (c->has_steps) {
        *from = hy_column_ends(&c->step_ends)[*from];
        *to = hy_column_ends(&c->step_ends)[*to];
    }
}

static const char *bytes_of(const struct hy_column *c, int64_t value, size_t *ret_n)
{
    const int64_t *ends = hy_column_ends(&c->value_ends);

    *ret_n = (size_t)(ends[value + 1] - ends[value]);
    return (const char *)hy_buf_bytes(&c->values) + ends[value];
}

static double float_at(const struct hy_column *c, int64_t i)
{
    float value;

    memcpy(&value, hy_buf_bytes(&c->values) + i * (int64_t)sizeof value, sizeof value);
    return (double)value;
}

static int64_t int64_at(const struct hy_column *c, int64_t i)
{
    int64_t value;

    memcpy(&value, hy_buf_bytes(&c->values) + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static bool is_text(const char *bytes, size_t n)
{
    size_t length;

    for (; n && *bytes && (length = hy_utf8_len(bytes, n)) > 0; bytes += length)
        n -= length;
    return n == 0;
}

/* Prints text as text, other bytes as their count. */
static void say_bytes(struct inspection *l, const char *bytes, size_t n)
{
    char count[32];

    if (is_text(bytes, n)) {
        hy_out_str(&l->out, " '");
        hy_out_cut(&l->out, bytes, n, LINE_MAX_COLUMNS);
        hy_out_str(&l->out, "'");
    } else {
        hy_outf(&l->out, " (%s bytes)", hy_format_count(n, count, sizeof count));
    }
}

static void say_value(struct inspection *l, const struct hy_column *c, int64_t i)
{
    size_t n;
    const char *bytes;

    switch (c->kind) {
    case HY_KIND_FLOAT:
        hy_outf(&l->out, " %.6g", float_at(c, i));
        break;
    case HY_KIND_INT64:
        hy_outf(&l->out, " %" PRId64, int64_at(c, i));
        break;
    case HY_KIND_BYTES:
        bytes = bytes_of(c, i, &n);
        say_bytes(l, bytes, n);
        break;
    default:
        break;
    }
}

static int width_of_names(const struct hy_columns *c)
{
    int width = 0;

    for (size_t i = 0; i < c->count; i++) {
        const int columns = hy_columns(c->list[i].name, c->list[i].name_n);

        width = columns > width ? columns : width;
    }
    return width < NAME_MAX_COLUMNS ? width : NAME_MAX_COLUMNS;
}

static void say_feature(struct inspection *l, const struct hy_column *c, int width)
{
    int64_t from, to;

    values_of(c, 0, &from, &to);
    hy_out_str(&l->out, "  ");
    hy_out_repeat(&l->out, " ", width - hy_out_cut(&l->out, c->name, c->name_n, width));
    hy_outf(&l->out, "  %s", kinds[c->kind]);
    if (to - from != 1)
        hy_outf(&l->out, " × %" PRId64, to - from);
    hy_out_str(&l->out, " ");
    for (int64_t i = from; i < to && i < from + SHOWN_VALUES; i++)
        say_value(l, c, i);
    hy_out_str(&l->out, to - from > SHOWN_VALUES ? " …\n" : "\n");
}

static json_t *json_of_bytes(const char *bytes, size_t n)
{
    hy_cleanup_buf struct hy_buf hex;
    int rc = 0;

    hy_buf_init(&hex, SIZE_MAX / 2);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = hy_buf_printf(&hex, "%02x", (unsigned char)bytes[i]);
    return rc == 0 ? json_pack("{s:s#}", "hex", (const char *)hy_buf_bytes(&hex), (int)hex.len) : NULL;
}

static json_t *json_of_value(const struct hy_column *c, int64_t i)
{
    size_t n;
    const char *bytes;

    switch (c->kind) {
    case HY_KIND_FLOAT:
        return hy_json_number(float_at(c, i));
    case HY_KIND_INT64:
        return json_integer(int64_at(c, i));
    default:
        bytes = bytes_of(c, i, &n);
        return is_text(bytes, n) ? json_stringn(bytes, n) : json_of_bytes(bytes, n);
    }
}

static json_t *json_of_feature(const struct hy_column *c)
{
    json_t *list = json_array();
    int64_t from, to;

    values_of(c, 0, &from, &to);
    for (int64_t i = from; list && i < to; i++)
        if (json_array_append_new(list, json_of_value(c, i)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static void say_json(struct inspection *l)
{
    json_t *o = json_object();
    int rc = 0;

    for (size_t i = 0; i < l->columns.count && rc == 0; i++) {
        hy_cleanup_json json_t *name = hy_json_text(l->columns.list[i].name); /* may be any bytes */

        rc = name ? hy_json_set(o, json_string_value(name), json_of_feature(&l->columns.list[i])) : -ENOMEM;
    }
    hy_json_line_take(&l->out, rc == 0 ? o : NULL);
    if (rc < 0)
        json_decref(o);
}

/* For a record that is not an example, only its size is printed. */
static int show_record(void *arg, const struct hy_record *r, uint64_t at, struct hy_err *err)
{
    struct inspection *l = arg;
    char n[32];

    hy_columns_done(&l->columns);
    if (hy_sequence_example_parse(&l->columns, r->bytes, r->n, err) == -ENOMEM || hy_columns_fill(&l->columns) < 0)
        return hy_err_oom(err);
    if (l->is_json) {
        say_json(l);
    } else {
        hy_outf(&l->out, "record at byte %" PRIu64 ", %s bytes%s\n", at, hy_format_count(r->n, n, sizeof n),
                l->columns.rows ? "" : ", not a tf.Example");
        for (size_t i = 0; i < l->columns.count && l->columns.rows; i++)
            say_feature(l, &l->columns.list[i], width_of_names(&l->columns));
    }
    return ++l->count == l->most ? 1 : 0;
}

static int head_file(void *arg, const char *url, struct hy_err *err)
{
    struct inspection *l = arg;
    int rc;

    l->count = 0;
    rc = each_record(url, show_record, l, err);
    return rc < 0 ? rc : hy_out_flush(&l->out, STDOUT_FILENO) == -EPIPE ? 1 : 0;
}

static int head(const struct hy_args *args)
{
    const char *number = hy_args_get(args, "number");
    struct hy_err err = {0};
    struct inspection l;

    look_init(&l, args);
    l.most = HEAD_DEFAULT;
    if (number && (hy_parse_u64(number, &l.most) < 0 || l.most == 0)) {
        hy_err_set(&err, -EINVAL, "-n takes a number greater than 0, not '%s'", number);
        return look_done(&l, hy_cmd_failed(args, &err));
    }
    return look_done(&l, hy_files_each_word(args, 0, head_file, &l));
}

/* ---- schema ------------------------------------------------------------------------ */

/* Statistics of a feature over all records. */
struct stat_of {
    uint64_t present;    /* records with the feature */
    uint64_t least, most; /* number of values in a record */
};

static int stats_for(struct inspection *l, struct hy_err *err)
{
    struct stat_of *more;

    if (l->stat_count == l->columns.count)
        return 0;
    more = hy_reallocarray(l->stats, l->columns.count, sizeof *more);
    if (!more)
        return hy_err_oom(err);
    l->stats = more;
    for (; l->stat_count < l->columns.count; l->stat_count++)
        more[l->stat_count] = (struct stat_of){.least = UINT64_MAX};
    return 0;
}

static void sum_up_row(struct stat_of *s, const struct hy_column *c, uint64_t row)
{
    int64_t from, to;
    uint64_t n;

    values_of(c, row, &from, &to);
    n = (uint64_t)(to - from);
    if (n == 0)
        return;
    s->present++;
    s->least = n < s->least ? n : s->least;
    s->most = n > s->most ? n : s->most;
}

/* Adds the batch to the statistics and clears it. */
static int sum_up(struct inspection *l, struct hy_err *err)
{
    int rc = hy_columns_fill(&l->columns) < 0 ? hy_err_oom(err) : stats_for(l, err);

    for (size_t i = 0; rc == 0 && i < l->columns.count; i++)
        for (uint64_t row = 0; row < l->columns.rows; row++)
            sum_up_row(&l->stats[i], &l->columns.list[i], row);
    hy_columns_clear(&l->columns);
    return rc;
}

static int take_record(void *arg, const struct hy_record *r, uint64_t at, struct hy_err *err)
{
    struct inspection *l = arg;
    int rc = hy_sequence_example_parse(&l->columns, r->bytes, r->n, err);

    if (rc < 0)
        return hy_err_wrap(err, "the record at byte %" PRIu64, at), rc;
    l->all++;
    return l->columns.rows == BATCH ? sum_up(l, err) : 0;
}

static int schema_file(void *arg, const char *url, struct hy_err *err)
{
    int rc = each_record(url, take_record, arg, err);

    if (rc < 0 && !strstr(err->text, url))
        hy_err_wrap(err, "%s", url);
    return rc;
}

static void say_column(struct inspection *l, const struct hy_column *c, const struct stat_of *s)
{
    char values[64], present[32];

    if (s->present == 0)
        snprintf(values, sizeof values, "0");
    else if (s->least == s->most)
        snprintf(values, sizeof values, "%" PRIu64, s->most);
    else
        snprintf(values, sizeof values, "%" PRIu64 " to %" PRIu64, s->least, s->most);
    hy_outf(&l->out, "  %-8s %-16s %12s  ", kinds[c->kind], values,
            hy_format_count(s->present, present, sizeof present));
    hy_out_value(&l->out, c->name);
    hy_out_str(&l->out, c->has_steps ? " (in steps)\n" : "\n");
}

static json_t *json_of_column(const struct hy_column *c, const struct stat_of *s)
{
    return json_pack("{s:o, s:s, s:b, s:I, s:I, s:I}", "name", hy_json_text(c->name), "type", kinds[c->kind], "steps",
                     c->has_steps, "records", (json_int_t)s->present, "least", (json_int_t)(s->present ? s->least : 0),
                     "most", (json_int_t)s->most);
}

static int schema(const struct hy_args *args)
{
    struct hy_err err = {0};
    struct inspection l;
    int status;

    look_init(&l, args);
    status = hy_files_each_word(args, 0, schema_file, &l);
    if (sum_up(&l, &err) < 0)
        return look_done(&l, hy_cmd_failed(args, &err));
    if (!l.is_json)
        hy_out_tint(&l.out, HY_BOLD, "  type     values                records  feature");
    if (!l.is_json)
        hy_out_str(&l.out, "\n");
    for (size_t i = 0; i < l.columns.count; i++) {
        if (l.is_json)
            hy_json_line_take(&l.out, json_of_column(&l.columns.list[i], &l.stats[i]));
        else
            say_column(&l, &l.columns.list[i], &l.stats[i]);
    }
    return look_done(&l, status);
}

/* ---- the table --------------------------------------------------------------------- */

static const struct hy_option help_only[] = {
    {.name = "help", .letter = 'h', .help = "show this help"},
    {0},
};

static const struct hy_option head_options[] = {
    {.name = "number", .letter = 'n', .value = "N", .help = "records per file (default: 5)"},
    {.name = "json", .help = "print a JSON object per record, with all values"},
    {0},
};

static const struct hy_option json_options[] = {
    {.name = "json", .help = "print a JSON object per feature"},
    {0},
};

static const struct hy_command commands[] = {
    {.name = "records head",
     .group = "Looking",
     .words = "FILE…",
     .options = head_options,
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = head,
     .summary = "show the first records",
     .examples = "hopyard records head -n 1 train.tfrecords\nhopyard records head --json train.tfrecords | jq .label"},
    {.name = "records count",
     .group = "Looking",
     .words = "FILE…",
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = count,
     .summary = "count the records",
     .examples = "hopyard records count 'hdfs:///data/train-*.tfrecords'"},
    {.name = "records schema",
     .group = "Looking",
     .words = "FILE…",
     .options = json_options,
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = schema,
     .summary = "show the features of all records",
     .about = "Prints type, values per record, number of records with the feature, and name.",
     .examples = "hopyard records schema train.tfrecords"},
    {.name = "records verify",
     .group = "Looking",
     .words = "FILE…",
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = verify,
     .summary = "verify all checksums",
     .examples = "hopyard records verify hdfs:///data/*.tfrecords.gz"},
    {0},
};

static const struct hy_command records = {
    .name = "records",
    .words = "COMMAND FILE…",
    .summary = "inspect TFRecord files",
    .about = "A FILE is local or on HDFS, plain or compressed (gzip, zlib); *, ?, [a-z] and\n"
             "{a,b} match names. Features are those of tf.Example and tf.SequenceExample.\n"
             "\n"
             "Exit status: 0 success, 1 a file is damaged or cannot be read, 2 invalid usage.",
    .examples = "hopyard records schema train.tfrecords\nhopyard records verify 'hdfs:///data/*.tfrecords'",
};

int hy_records_main(int argc, char **argv)
{
    return hy_subcommand_main(&records, commands, argc, argv);
}
