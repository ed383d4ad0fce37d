/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styles, temporary directories, and updates as a driver sends them, for the
 * suites of view and cli.
 */
#ifndef HY_TESTS_VIEW_FIXTURE_H
#define HY_TESTS_VIEW_FIXTURE_H

#include "support.h"

#include <math.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "view/json_values.h"
#include "view/out.h"
#include "wire/proto_memory.h"

static const struct hy_style bare = {.width = 0};
static const struct hy_style ascii80 = {.width = 80, .height = 24, .terminal = true};
static const struct hy_style fancy80 = {.width = 80, .height = 24, .terminal = true, .color = true, .unicode = true};

#define WORDS(...) ((char *[]){(char *)__VA_ARGS__, NULL})

static inline const char *text_of(struct hy_out *out)
{
    assert_int_equal(out->rc, 0);
    return hy_buf_cstr(&out->buf);
}

static inline char *copy(const char *text)
{
    char *c = *text ? strdup(text) : (char *)(uintptr_t)protobuf_c_empty_string;

    assert_non_null(c);
    return c;
}

static inline Hy__TrialView *trial(uint64_t number, const char *state, double value, const char *message)
{
    Hy__TrialView *t = malloc(sizeof *t);
    char text[100];

    assert_non_null(t);
    hy__trial_view__init(t);
    t->number = number;
    t->state = copy(state);
    snprintf(text, sizeof text, "{\"lr\": 0.%02d, \"act\": \"%s\"}", (int)number, number % 2 ? "relu" : "tanh");
    t->params = copy(text);
    t->has_value = isfinite(value);
    t->value = value;
    t->elapsed_ms = 3200;
    t->message = copy(message);
    t->attempt = 1;
    t->step = -1;
    return t;
}

static inline Hy__Update *update(size_t running, size_t ended)
{
    Hy__Update *u = malloc(sizeof *u);

    assert_non_null(u);
    hy__update__init(u);
    u->run = 3;
    u->name = copy("digits");
    u->state = copy("running");
    u->metric = copy("accuracy");
    u->logdir = copy("/p/Logs/TensorFlow/local-1/1");
    u->maximize = true;
    u->total = 100;
    u->done = 11;
    u->failed = 1;
    u->running_count = running;
    u->elapsed_ms = 42000;
    u->left_ms = 245000;
    u->agents = 1;
    u->slots = 2;
    u->running = calloc(running + 1, sizeof *u->running);
    u->ended = calloc(ended + 1, sizeof *u->ended);
    for (size_t i = 0; i < running; i++)
        u->running[u->n_running++] = trial(13 + i, "running", NAN, "");
    for (size_t i = 0; i < ended; i++)
        u->ended[u->n_ended++] = i ? trial(i + 1, "done", 0.5 + (double)i / 100, "")
                                   : trial(1, "failed", NAN, "exit status 1");
    u->best = trial(7, "done", 0.9312, "");
    return u;
}

static inline Hy__Update *last_update(void)
{
    Hy__Update *u = update(0, 2);

    free(u->state);
    u->state = copy("done");
    u->done = 99;
    u->last = true;
    return u;
}

/* A new temporary directory; remove_directory removes it. */
static inline char *make_directory(void)
{
    char *path = strdup("/tmp/hy-cli-XXXXXX");

    assert_non_null(path);
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void remove_directory(char *path)
{
    assert_int_equal(hy_remove_tree(path), 0);
    free(path);
}

static inline void write_text(const char *directory, const char *name, const char *text, mode_t mode)
{
    hy_cleanup_free char *path = hy_path_join(directory, name);

    assert_int_equal(hy_file_write(path, text, strlen(text), 0600), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* Each suite starts without a terminal and without a project. */
static inline void begin_plain(void)
{
    setenv("TERM", "dumb", 1);
    unsetenv("HOPYARD_PROJECT");
    hy_style_init();
    hy_json_init();
}

#endif
