/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard share`: data sets that are shared between projects. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/project.h"
#include "fs/fs.h"
#include "share/share.h"
#include "view/view.h"

/* ---- the project --------------------------------------------------------------------------- */

struct project {
    struct hy_share_project share;
    struct hy_store *store;
    char *url;
};

static void project_done(struct project *p)
{
    hy_store_close(p->store);
    free(p->url);
}

#define cleanup_project __attribute__((cleanup(project_done)))

/* The directory of its files, or their URL. */
static char *find_url(const struct hy_args *args, struct hy_err *err)
{
    char *project = hy_project(args, err), *url = NULL;

    if (!project || hy_store_url_of_local_dir(project, &url, err) < 0 || url)
        free(hy_take(project));
    return url ? url : project;
}

/* With HY_STORE_READ and without a store, p->store is NULL: the project shares nothing. */
static int open_project(const struct hy_args *args, enum hy_store_mode mode, struct project *p, struct hy_err *err)
{
    int rc = (p->url = find_url(args, err)) ? hy_project_store(args, mode, &p->store, err) : err->code;

    if (rc == -ENOENT && mode == HY_STORE_READ)
        return 0;
    if (rc == 0)
        p->share = (struct hy_share_project){
            .url = p->url, .path = hy_store_dir_path(p->store), .dir = hy_store_dir_fd(p->store)};
    return rc;
}

/* The path relative to the project; free it. NULL with a message. */
static char *path_in_project(const struct project *p, const char *word, struct hy_err *err)
{
    const bool is_local = hy_url_is_local(p->url);
    hy_cleanup_free char *inside = hy_fs_join(p->url, word);
    hy_cleanup_free char *full = is_local ? realpath(word, NULL) : hy_strdup(hy_url_scheme(word) ? word : inside);
    size_t n = strlen(p->url);

    if (is_local && !full && errno == ENOENT && *word != '/' && inside)
        full = realpath(inside, NULL);
    if (!full) {
        hy_err_sys(err, -errno, "cannot share '%s'", word);
        return NULL;
    }
    for (size_t end = strlen(full); end > 1 && full[end - 1] == '/'; end--)
        full[end - 1] = '\0';
    n -= n && p->url[n - 1] == '/';
    if (strncmp(full, p->url, n) == 0 && (full[n] == '/' || full[n] == '\0'))
        return hy_strdup(full + n + (full[n] == '/'));
    hy_err_set(err, -EINVAL, "'%s' is not in the project %s; --project selects another", word, p->url);
    return NULL;
}

/* ---- output ------------------------------------------------------------------------------------ */

static int print(struct hy_out *o)
{
    int rc = hy_out_flush(o, STDOUT_FILENO);

    return rc < 0 && rc != -EPIPE ? HY_EXIT_FAILED : HY_EXIT_OK;
}

static void begin_output(struct hy_out *o)
{
    struct hy_style style;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(o, &style);
}

static const char *rights_text(bool is_writable)
{
    return is_writable ? "read and write" : "read";
}

static void note_report(const struct project *p, const char *path, const char *user, const struct hy_share_report *r)
{
    char text[512];

    if (r->is_missing) {
        hy_cleanup_free char *missing = hy_share_missing_text(&p->share, path, user);

        hy_print_note(missing ? missing : "the data set is not there");
    }

    if (r->foreign) {
        snprintf(text, sizeof text, "%llu files in it belong to other users and keep their permissions",
                 (unsigned long long)r->foreign);
        hy_print_note(text);
    }
    if (r->blocked) {
        snprintf(text, sizeof text, "%s cannot pass through %s yet; its owner can allow that: %s u%s:%s:--x %s", user,
                 r->blocked, hy_url_is_local(p->url) ? "setfacl -m" : "hdfs dfs -setfacl -m",
                 hy_url_is_local(p->url) ? "" : "ser", user, r->blocked);
        hy_print_note(text);
    }
}

/* ---- add and remove ------------------------------------------------------------------------------- */

static int print_added(const struct hy_args *args, const struct project *p, const char *path,
                       const struct hy_share_report *r)
{
    hy_cleanup_out struct hy_out out = {0};
    hy_cleanup_free char *target = hy_fs_join(p->url, path), *name = hy_share_name(p->url, path);
    hy_cleanup_free char *line = hy_share_accept_line(p->url, path);
    const char *user = hy_args_get(args, "with");
    const bool is_writable = hy_args_has(args, "write");

    begin_output(&out);
    if (hy_args_has(args, "json")) {
        hy_json_take(&out, json_pack("{s:o, s:o, s:b, s:o, s:o, s:I, s:I, s:o}", "path", hy_json_text(path), "with",
                                     hy_json_text(user), "write", (int)is_writable, "name", hy_json_text(name),
                                     "target", hy_json_text(target), "changed", (json_int_t)r->changed, "foreign",
                                     (json_int_t)r->foreign, "blocked", hy_json_text(r->blocked)));
        hy_out_str(&out, "\n");
        return print(&out);
    }
    hy_out_value(&out, user);
    hy_outf(&out, " can %s ", rights_text(is_writable));
    hy_out_value(&out, path);
    hy_outf(&out, " (%llu permissions changed). To use it in a project, %s runs there:\n",
            (unsigned long long)r->changed, user);
    hy_out_str(&out, "  ");
    hy_out_value(&out, line);
    hy_out_str(&out, "\n");
    note_report(p, path, user, r);
    return print(&out);
}

static int share_add(const struct hy_args *args)
{
    cleanup_project struct project p = {0};
    hy_cleanup_share_report struct hy_share_report r = {0};
    hy_cleanup_free char *path = NULL;
    const char *with = hy_args_get(args, "with");
    struct hy_err err = {0};
    int rc = with ? 0 : hy_err_set(&err, -EINVAL, "--with is missing: the user to share with");

    if (rc == 0)
        rc = open_project(args, HY_STORE_WRITE, &p, &err);
    if (rc == 0 && !(path = path_in_project(&p, args->words[0], &err)))
        rc = err.code ? err.code : hy_err_oom(&err);
    if (rc == 0)
        rc = hy_share_add(&p.share, path, with, hy_args_has(args, "write"), &r, &err);
    return rc < 0 ? hy_cmd_failed(args, &err) : print_added(args, &p, path, &r);
}

/* As it was shared: a data set that was removed or replaced by a link has no other path. */
static int find_given(const struct project *p, const char *word, const char *with, char **ret, struct hy_err *err)
{
    hy_cleanup_shares struct hy_shares given = {0};
    size_t n = strlen(word);
    int rc = hy_share_list(&p->share, &given, err);

    while (n > 1 && word[n - 1] == '/')
        n--;
    for (size_t i = 0; i < given.count && rc == 0 && !*ret; i++)
        if (strncmp(given.list[i].path, word, n) == 0 && !given.list[i].path[n] &&
            strcmp(given.list[i].user, with) == 0)
            *ret = hy_strdup(given.list[i].path);
    if (rc == 0 && !*ret)
        *ret = path_in_project(p, word, err);
    if (rc == 0 && !*ret)
        rc = err->code ? err->code : hy_err_oom(err);
    return rc;
}

static int remove_given(const struct hy_args *args, const struct project *p, const char *with, struct hy_err *err)
{
    hy_cleanup_share_report struct hy_share_report r = {0};
    hy_cleanup_out struct hy_out out = {0};
    hy_cleanup_free char *path = NULL;
    int rc = p->store ? 0 : hy_err_set(err, -ENOENT, "this project shares nothing");

    if (rc == 0)
        rc = find_given(p, args->words[0], with, &path, err);
    if (rc == 0)
        rc = hy_share_remove(&p->share, path, with, &r, err);
    if (rc < 0)
        return rc;
    begin_output(&out);
    hy_out_value(&out, path);
    hy_out_str(&out, " is no longer shared with ");
    hy_out_value(&out, with);
    hy_outf(&out, " (%llu permissions changed).\n", (unsigned long long)r.changed);
    note_report(p, path, with, &r);
    return print(&out);
}

static int share_remove(const struct hy_args *args)
{
    cleanup_project struct project p = {0};
    hy_cleanup_out struct hy_out out = {0};
    const char *with = hy_args_get(args, "with"), *word = args->words[0];
    struct hy_err err = {0};
    int rc = open_project(args, HY_STORE_READ, &p, &err);

    if (rc == 0 && !with && !strstr(word, "::"))
        rc = hy_err_set(&err, -EINVAL,
                        "--with is missing: the user whose access to '%s' is revoked (shares of other users have a "
                        "name such as PROJECT::DATASET)",
                        word);
    if (rc == 0 && with)
        rc = remove_given(args, &p, with, &err);
    else if (rc == 0) {
        rc = hy_share_forget(p.url, strncmp(word, "Shared/", 7) == 0 ? word + 7 : word, &err);
        begin_output(&out);
        hy_out_str(&out, "Removed from this project. You may still have access to the data.\n");
        rc = rc < 0 ? rc : print(&out);
    }
    return rc < 0 ? hy_cmd_failed(args, &err) : rc;
}

/* ---- accept ------------------------------------------------------------------------------------------ */

static int share_accept(const struct hy_args *args)
{
    hy_cleanup_free char *url = NULL, *parent = NULL, *name = NULL;
    hy_cleanup_share_entry struct hy_share_entry e = {0};
    hy_cleanup_out struct hy_out out = {0};
    const char *target = args->words[0], *as = hy_args_get(args, "as");
    struct hy_err err = {0};
    int rc = (url = find_url(args, &err)) ? 0 : err.code;

    parent = hy_url_parent(target);
    name = as ? hy_strdup(as) : parent ? hy_share_name(parent, target) : NULL;
    if (rc == 0)
        rc = name ? hy_share_accept(url, name, target, &e, &err) : hy_err_oom(&err);
    if (rc < 0)
        return hy_cmd_failed(args, &err);
    begin_output(&out);
    if (hy_args_has(args, "json"))
        hy_json_take(&out, json_pack("{s:o, s:o, s:o}", "name", hy_json_text(e.name), "target", hy_json_text(e.target),
                                     "owner", hy_json_text(e.owner)));
    else {
        hy_out_str(&out, "Shared/");
        hy_out_value(&out, e.name);
        hy_out_str(&out, " is ");
        hy_out_value(&out, e.target);
        hy_outf(&out, ", which you can %s.", rights_text(hy_fs_access(e.target, W_OK, NULL) == 0));
    }
    hy_out_str(&out, "\n");
    return print(&out);
}

/* ---- list ----------------------------------------------------------------------------------------------- */

struct listing {
    struct hy_shares given;
    struct hy_text_table *grid;
    json_t *received; /* for JSON */
    size_t count;
};

static int add_received(void *arg, const struct hy_share_entry *e, const char *why)
{
    struct listing *l = arg;
    const bool is_writable = !why && hy_fs_access(e->target, W_OK, NULL) == 0;

    l->count++;
    if (l->received)
        return json_array_append_new(l->received, hy_share_entry_json(e, why)) == 0 ? 0 : -ENOMEM;
    hy_text_table_cellf(l->grid, HY_BOLD, "Shared/%s", e->name);
    hy_text_table_cell(l->grid, why ? HY_RED : HY_PLAIN, why ? "unusable" : rights_text(is_writable));
    hy_text_table_cell(l->grid, HY_PLAIN, why ? why : e->target);
    return 0;
}

static const char *state_text(enum hy_share_state state)
{
    return state == HY_SHARE_GRANTED ? "" : state == HY_SHARE_GRANTING ? "incomplete" : "being revoked";
}

static void add_given(struct hy_text_table *g, const struct hy_share *s, int64_t now)
{
    char age[64];

    hy_text_table_cell(g, HY_BOLD, s->path);
    hy_text_table_cell(g, HY_PLAIN, s->user);
    hy_text_table_cell(g, HY_PLAIN, rights_text(s->is_writable));
    hy_text_table_cell(g, HY_DIM, hy_format_age(s->since_ms, now, age, sizeof age));
    hy_text_table_cell(g, HY_YELLOW, state_text(s->state));
}

/* NULL: out of memory. */
static json_t *given_json(const struct project *p, const struct hy_shares *given)
{
    json_t *list = json_array();
    int rc = list ? 0 : -ENOMEM;

    for (size_t i = 0; i < given->count && rc == 0; i++)
        rc = json_array_append_new(list, hy_share_json(p->url, &given->list[i]));
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

static void render(struct hy_text_table *g, size_t rows, const char *title, const char *none, struct hy_out *out)
{
    hy_out_tint(out, HY_BOLD, rows ? title : none);
    hy_out_str(out, "\n");
    if (rows)
        out->rc = hy_text_table_render(g, out, true);
}

static int list_text(const struct project *p, struct listing *l, struct hy_out *out, struct hy_err *err)
{
    hy_cleanup_text_table struct hy_text_table *given = hy_text_table_new(), *received = hy_text_table_new();
    int rc;

    if (!given || !received)
        return hy_err_oom(err);
    hy_text_table_column(given, "data set", HY_TABLE_FLEX, 0);
    hy_text_table_column(given, "with", 0, 0);
    hy_text_table_column(given, "can", 0, 0);
    hy_text_table_column(given, "since", 0, 2);
    hy_text_table_column(given, "", 0, 1);
    for (size_t i = 0; i < l->given.count; i++)
        add_given(given, &l->given.list[i], hy_clock_wall_ms());
    hy_text_table_column(received, "name", 0, 0);
    hy_text_table_column(received, "can", 0, 0);
    hy_text_table_column(received, "real path", HY_TABLE_FLEX, 0);
    l->grid = received;
    rc = hy_share_entries(p->url, add_received, l, err);
    if (rc < 0)
        return rc;
    render(given, l->given.count, "Shared with others", "Nothing is shared with others.", out);
    hy_out_str(out, "\n");
    render(received, l->count, "Shared with this project", "Nothing is shared with this project.", out);
    return 0;
}

static int list_json(const struct project *p, struct listing *l, struct hy_out *out, struct hy_err *err)
{
    json_t *given = given_json(p, &l->given);
    int rc;

    l->received = json_array();
    rc = given && l->received ? hy_share_entries(p->url, add_received, l, err) : hy_err_oom(err);
    if (rc < 0) {
        json_decref(given);
        json_decref(l->received);
        return rc == -ENOMEM ? hy_err_oom(err) : rc;
    }
    hy_json_take(out, json_pack("{s:o, s:o}", "given", given, "received", l->received));
    hy_out_str(out, "\n");
    return 0;
}

/* Completes interrupted changes, and prints a note about it. A share that cannot be completed is listed as incomplete.
 */
static int load_given(const struct project *p, struct hy_shares *ret, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc = hy_share_repair(&p->share, &why);

    if (rc > 0)
        hy_print_note("completed an interrupted change of shares");
    else if (rc < 0)
        hy_print_note(why.text);
    return hy_share_list(&p->share, ret, err);
}

static int share_list(const struct hy_args *args)
{
    cleanup_project struct project p = {0};
    hy_cleanup_out struct hy_out out = {0};
    struct listing l = {0};
    struct hy_err err = {0};
    int rc = open_project(args, HY_STORE_READ, &p, &err);

    begin_output(&out);
    if (rc == 0 && p.store)
        rc = load_given(&p, &l.given, &err);
    if (rc == 0)
        rc = hy_args_has(args, "json") ? list_json(&p, &l, &out, &err) : list_text(&p, &l, &out, &err);
    hy_shares_done(&l.given);
    return rc < 0 ? hy_cmd_failed(args, &err) : print(&out);
}

/* ---- commands ------------------------------------------------------------------------------------------------ */

static const struct hy_option add_options[] = {
    {.name = "with", .value = "USER", .help = "the user, or the directory or URL of a project of that user"},
    {.name = "write", .letter = 'w', .help = "let the user change the data, too (default: only read)"},
    {.name = "json", .help = "print JSON"},
    {0},
};

static const struct hy_option remove_options[] = {
    {.name = "with", .value = "USER", .help = "the user whose access is revoked"},
    {0},
};

static const struct hy_option accept_options[] = {
    {.name = "as", .value = "NAME", .help = "its name here, PROJECT::DATASET (default: of its parent directory)"},
    {.name = "json", .help = "print JSON"},
    {0},
};

static const struct hy_option list_options[] = {
    {.name = "json", .help = "print JSON"},
    {0},
};

#define SHARING "Commands"

static const struct hy_command commands[] = {
    {.name = "share add",
     .group = SHARING,
     .words = "PATH",
     .options = add_options,
     .min_words = 1,
     .max_words = 1,
     .run = share_add,
     .summary = "let another user read, or also write, a directory of the project",
     .about = "The user gets permissions (ACLs) for everything in the directory, also for files\n"
              "that are created later. The user can pass through the directories from the\n"
              "project down to it, but not list them. A second `add` changes --write.",
     .examples = "hopyard share add Resources/train --with bob\n"
                 "hopyard share add Resources/train --with ../churn --write"},
    {.name = "share accept",
     .group = SHARING,
     .words = "PATH",
     .options = accept_options,
     .min_words = 1,
     .max_words = 1,
     .run = share_accept,
     .summary = "use a directory that another user has shared with you",
     .about = "Creates Shared/NAME in the project, which `hopyard fs`, `hopyard.hdfs` and the\n"
              "page replace by the real path. Other programs use the real path itself.",
     .examples = "hopyard share accept --as fraud::train /home/alice/fraud/Resources/train\n"
                 "hopyard fs ls Shared/fraud::train"},
    {.name = "share list",
     .group = SHARING,
     .words = "",
     .options = list_options,
     .run = share_list,
     .summary = "list what is shared with others, and with this project"},
    {.name = "share remove",
     .group = SHARING,
     .words = "PATH|NAME",
     .options = remove_options,
     .min_words = 1,
     .max_words = 1,
     .run = share_remove,
     .summary = "revoke a user's access, or remove Shared/NAME from the project",
     .about = "Revokes only the permissions that the share has added.",
     .examples = "hopyard share remove Resources/train --with bob\nhopyard share remove fraud::train"},
    {0},
};

static const struct hy_command share = {
    .name = "share",
    .words = "COMMAND …",
    .summary = "data sets shared between projects",
    .about = "The owner shares a directory of its project with a user (add), who makes it\n"
             "available in a project under the name Shared/OWNER::NAME (accept). The owner can\n"
             "revoke it (remove).\n"
             "\n"
             "Exit status: 0 success, 1 an operation failed, 2 invalid usage.",
    .examples = "hopyard share add Resources/train --with bob\n"
                "hopyard share accept --as fraud::train /home/alice/fraud/Resources/train\n"
                "hopyard share list",
};

int hy_share_main(int argc, char **argv)
{
    return hy_subcommand_main(&share, commands, argc, argv);
}
