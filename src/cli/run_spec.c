/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_spec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "supervise/supervise.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/guess.h"
#include "base/mem.h"
#include "base/text.h"
#include "wire/wire.h"
#include "cli/spec_internal.h"
#include "driver/driver.h"
#include "search/search.h"

#define NAME_MAX_BYTES 100
#define GPUS_MAX 64 /* on one machine, as in the schedule */
#define VALUES_MAX (8u * 1024 * 1024) /* of all parameters, so that they fit into the driver's HY_SPEC_LIMIT */
#define PARAMS_MAX (120 << 10)        /* of one trial: Linux limits a variable (HOPYARD_PARAMS) to 128 KB */

void hy_spec_free(Hy__RunSpec *spec)
{
    if (spec)
        hy__run_spec__free_unpacked(spec, &hy_proto_memory);
}

void hy_spec_free_at(Hy__RunSpec **spec)
{
    hy_spec_free(*spec);
}

/* ---- numbers ------------------------------------------------------------------------ */

static int number(const struct hy_args *args, const char *name, uint64_t least, uint64_t most, uint64_t *ret,
                  struct hy_err *err)
{
    const char *text = hy_args_get(args, name);
    uint64_t value;

    if (!text)
        return 0;
    if (hy_parse_u64(text, &value) < 0 || value < least || value > most)
        return hy_err_option(err, name, "takes an integer from %llu to %llu, not '%s'", (unsigned long long)least,
                             (unsigned long long)most, text);
    *ret = value;
    return 0;
}

int hy_spec_number(const struct hy_args *args, const char *name, uint32_t least, uint32_t most, uint32_t *ret,
                   struct hy_err *err)
{
    uint64_t value = *ret;
    int rc = number(args, name, least, most, &value, err);

    *ret = (uint32_t)value;
    return rc;
}

static int fraction(const struct hy_args *args, const char *name, double most, double *ret, struct hy_err *err)
{
    const char *text = hy_args_get(args, name);
    double value;

    *ret = NAN;
    if (!text)
        return 0;
    if (hy_parse_double(text, &value) < 0 || !(value >= 0 && value <= most))
        return hy_err_option(err, name, "takes a number from 0 to %g, not '%s'", most, text);
    *ret = value;
    return 0;
}

/* A share is counted in hundredths, rounded down, so that three thirds fit on one GPU. */
static int gpus(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *text = hy_args_get(args, "gpus");
    double value;

    if (!text)
        return 0;
    if (hy_parse_double(text, &value) < 0 || !(value >= 0 && value <= GPUS_MAX) ||
        (value < 1 ? value != 0 && value < 0.01 : value != floor(value)))
        return hy_err_option(err, "gpus",
                             "takes an integer up to %d, or a share of one GPU from 0.01 to 0.99, not '%s'", GPUS_MAX,
                             text);
    spec->gpus_said = 1;
    spec->gpu_share = (uint32_t)floor(value * 100 + 1e-9) * 10;
    return 0;
}

static int duration(const struct hy_args *args, const char *name, int64_t *ret_ms, struct hy_err *err)
{
    const char *text = hy_args_get(args, name);

    if (text && (hy_parse_duration(text, ret_ms) < 0 || *ret_ms <= 0))
        return hy_err_option(err, name, "takes a duration such as 90s, 15m or 1h, not '%s'", text);
    return 0;
}

static int limits(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *memory = hy_args_get(args, "memory"), *transfer = hy_args_get(args, "max-transfer");
    int rc = hy_spec_number(args, "parallel", 1, 1u << 20, &spec->parallel, err);

    if (rc == 0)
        rc = hy_spec_number(args, "retries", 0, 1000, &spec->retries, err);
    if (rc == 0)
        rc = number(args, "seed", 0, INT64_MAX, &spec->seed, err);
    if (rc == 0)
        rc = gpus(args, spec, err);
    if (rc < 0)
        return rc;
    if (memory && (hy_parse_size(memory, &spec->memory) < 0 || spec->memory == 0))
        return hy_err_option(err, "memory", "takes a size such as 512M or 4G, not '%s'", memory);
    if (transfer && strcmp(transfer, "none") == 0)
        spec->max_transfer = HY_TRANSFER_UNLIMITED;
    else if (transfer && (hy_parse_size(transfer, &spec->max_transfer) < 0 || spec->max_transfer == 0))
        return hy_err_option(err, "max-transfer", "takes a size such as 512M or 4G, or 'none', not '%s'", transfer);
    if (hy_args_has(args, "notify"))
        rc = hy_spec_set_text(&spec->notify, hy_strdup(hy_args_get(args, "notify")), err);
    if (rc == 0)
        rc = duration(args, "timeout", &spec->timeout_ms, err);
    return rc == 0 ? duration(args, "disk-timeout", &spec->disk_timeout_ms, err) : rc;
}

/* ---- the search ------------------------------------------------------------------------ */

/* The names of --algorithm; those of searches are hy_search_kind_name's. */
#define AUTO "auto"
static const char *const algorithms[] = {AUTO, "tpe", "cma", "evolve", "random"};

/* The search that --algorithm, --random or --evolve name; NULL: a grid, or a single trial. */
static const char *algorithm_of(const struct hy_args *args)
{
    return hy_args_has(args, "algorithm") ? hy_args_get(args, "algorithm")
           : hy_args_has(args, "random")  ? "random"
           : hy_args_has(args, "evolve")  ? "evolve"
                                          : NULL;
}

/* The option that names it. */
static const char *search_option(const struct hy_args *args)
{
    return hy_args_has(args, "algorithm") ? "algorithm" : hy_args_has(args, "random") ? "random" : "evolve";
}

static int check_algorithm(const struct hy_args *args, struct hy_err *err)
{
    const char *text = hy_args_get(args, "algorithm");
    struct hy_guess guess;

    if (!text)
        return hy_args_has(args, "trials") ? hy_err_option(err, "trials", "requires --algorithm NAME") : 0;
    hy_guess_init(&guess, text);
    for (size_t i = 0; i < HY_COUNT(algorithms); i++) {
        if (strcmp(text, algorithms[i]) == 0)
            return hy_args_has(args, "trials") ? 0
                                               : hy_err_option(err, "algorithm", "requires --trials N (0: unlimited)");
        hy_guess_offer(&guess, algorithms[i]);
    }
    if (guess.best)
        return hy_err_option(err, "algorithm", "'%s' is unknown; did you mean %s?", text, guess.best);
    return hy_err_option(err, "algorithm", "'%s' is unknown; choose auto, tpe, cma, evolve or random", text);
}

/* Options of one algorithm. */
static int check_options_of(const struct hy_args *args, const char *algorithm, struct hy_err *err)
{
    static const char *const of_evolve[] = {"generations", "mutation", "crossover", "strategy"};
    static const char *const of_both[] = {"population", "async"};
    bool evolve = algorithm && strcmp(algorithm, "evolve") == 0;
    bool cma = algorithm && strcmp(algorithm, "cma") == 0;

    for (size_t i = 0; i < HY_COUNT(of_evolve) && !evolve; i++)
        if (hy_args_has(args, of_evolve[i]))
            return hy_err_option(err, of_evolve[i], "requires --evolve; add --evolve or remove it");
    for (size_t i = 0; i < HY_COUNT(of_both) && !evolve && !cma; i++)
        if (hy_args_has(args, of_both[i]))
            return hy_err_option(err, of_both[i], "requires --evolve or --algorithm cma; add one of them or remove it");
    return 0;
}

static int check_mix(const struct hy_args *args, struct hy_err *err)
{
    bool grid = hy_args_has(args, "grid"), space = hy_args_has(args, "space");
    bool random = hy_args_has(args, "random"), evolve = hy_args_has(args, "evolve");
    const char *algorithm = algorithm_of(args);
    int rc = check_algorithm(args, err);

    if (rc < 0)
        return rc;
    if (hy_args_has(args, "paired") && !grid)
        return hy_err_option(err, "paired", "requires --grid; add --grid NAME=V,V,… or remove --paired");
    if (random && evolve)
        return hy_err_set(err, -EINVAL, "--random and --evolve exclude each other; choose one");
    if (hy_args_has(args, "algorithm") && (random || evolve))
        return hy_err_set(err, -EINVAL, "--algorithm and --%s exclude each other; choose one",
                          random ? "random" : "evolve");
    if (grid && algorithm)
        return hy_err_set(err, -EINVAL, "--grid cannot be used with --%s; use --space instead of --grid",
                          search_option(args));
    if (grid && space)
        return hy_err_set(err, -EINVAL,
                          "--grid and --space exclude each other; --space requires --algorithm NAME, --random N or "
                          "--evolve");
    if (space && !algorithm)
        return hy_err_option(err, "space", "requires a search: add --algorithm NAME, --random N or --evolve");
    if (!space && algorithm)
        return hy_err_option(err, search_option(args),
                             "requires a search space, for example: --space lr=log:1e-5..1e-1");
    return check_options_of(args, algorithm, err);
}

int hy_spec_metric(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *max = hy_args_get(args, "max"), *min = hy_args_get(args, "min");
    const char *algorithm = algorithm_of(args);

    if (max && min)
        return hy_err_set(err, -EINVAL, "--max and --min exclude each other; a run has one metric");
    if (!max && !min && algorithm && strcmp(algorithm, "random") != 0)
        return hy_err_option(err, search_option(args), "requires a metric: --max NAME or --min NAME");
    if (!max && !min)
        return 0;
    spec->maximize = max != NULL;
    if (strlen(max ? max : min) > HY_NAME_LIMIT)
        return hy_err_set(err, -EINVAL, "the name of the metric is longer than %u bytes", HY_NAME_LIMIT);
    return hy_spec_set_text(&spec->metric, hy_strdup(max ? max : min), err);
}

static int strategy(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *text = hy_args_get(args, "strategy");
    struct hy_guess guess;

    if (!text)
        return 0;
    if (strcmp(text, "best1bin") == 0 || strcmp(text, "rand1bin") == 0)
        return hy_spec_set_text(&spec->strategy, hy_strdup(text), err);
    hy_guess_init(&guess, text);
    hy_guess_offer(&guess, "best1bin");
    hy_guess_offer(&guess, "rand1bin");
    if (guess.best)
        return hy_err_option(err, "strategy", "'%s' is unknown; did you mean %s?", text, guess.best);
    return hy_err_option(err, "strategy", "'%s' is unknown; choose best1bin or rand1bin", text);
}

static int evolution(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    if (!hy_args_has(args, "generations") && !hy_args_has(args, "trials"))
        return hy_err_option(err, "evolve", "requires --generations N (0: unlimited)");
    return strategy(args, spec, err);
}

static enum _Hy__RunSpec__Kind kind_of(enum hy_search_kind kind)
{
    static const enum _Hy__RunSpec__Kind kinds[] = {
        [HY_SEARCH_GRID] = HY__RUN_SPEC__KIND__GRID,     [HY_SEARCH_RANDOM] = HY__RUN_SPEC__KIND__RANDOM,
        [HY_SEARCH_EVOLVE] = HY__RUN_SPEC__KIND__EVOLVE, [HY_SEARCH_PAIRED] = HY__RUN_SPEC__KIND__PAIRED,
        [HY_SEARCH_TPE] = HY__RUN_SPEC__KIND__TPE,       [HY_SEARCH_CMA] = HY__RUN_SPEC__KIND__CMA,
    };

    return kinds[kind];
}

static enum _Hy__RunSpec__Kind kind_named(const char *name)
{
    for (int kind = 0; hy_search_kind_name((enum hy_search_kind)kind); kind++)
        if (strcmp(hy_search_kind_name((enum hy_search_kind)kind), name) == 0)
            return kind_of((enum hy_search_kind)kind);
    return HY__RUN_SPEC__KIND__GRID;
}

/* Chooses by the space, the number of trials, and how many run at a time. */
static int choose(Hy__RunSpec *spec, struct hy_err *err)
{
    struct hy_space space = {0};
    struct hy_search_choice choice;
    int rc = hy_run_space(spec, &space, err);

    if (rc == 0) {
        choice = hy_search_choose(&space, spec->samples, spec->parallel);
        spec->kind = kind_of(choice.kind);
        spec->asynchronous = choice.asynchronous;
        rc = hy_spec_set_text(&spec->search_note, hy_strdup(choice.why), err);
    }
    hy_space_done(&space);
    return rc;
}

/* The dimensions are known. */
static int algorithm(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *name = algorithm_of(args);
    int rc = number(args, hy_args_has(args, "random") ? "random" : "trials", 0, INT64_MAX, &spec->samples, err);

    if (rc == 0)
        rc = hy_spec_number(args, "generations", 0, UINT32_MAX, &spec->generations, err);
    if (rc == 0)
        rc = hy_spec_number(args, "population", 1, 1u << 20, &spec->population, err);
    if (rc < 0 || !name)
        return rc;
    if (strcmp(name, AUTO) == 0)
        return choose(spec, err);
    spec->kind = kind_named(name);
    spec->asynchronous = hy_args_has(args, "async");
    return spec->kind == HY__RUN_SPEC__KIND__EVOLVE ? evolution(args, spec, err) : 0;
}

static int read_values(const char *file, struct hy_buf *ret, struct hy_err *err)
{
    int rc = hy_file_read(file, ret);

    if (rc == -ENOMEM)
        return hy_err_oom(err);
    if (rc == -ENOBUFS)
        return hy_err_set(err, -EINVAL, "the values of all parameters are larger than %u MB with '%s'",
                          VALUES_MAX >> 20, file);
    if (rc < 0)
        return hy_err_set(err, -EINVAL,
                          "cannot read values from '%s': %s (write a value that starts with '@' as JSON: "
                          "[\"@…\"])",
                          file, strerror(-rc));
    if (ret->len && memchr(hy_buf_bytes(ret), '\0', ret->len))
        return hy_err_set(err, -EINVAL, "the values in '%s' are not text: they contain a NUL byte", file);
    return 0;
}

/* The bytes that the remaining parameters may use. */
static size_t values_left(const Hy__RunSpec *spec)
{
    size_t used = 0;

    for (size_t i = 0; i < spec->n_dims; i++)
        used += strlen(spec->dims[i]->text);
    return used < VALUES_MAX ? VALUES_MAX - used : 0;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void trim(const char **from, const char **to)
{
    while (*from < *to && is_blank((uint8_t)**from))
        ++*from;
    while (*from < *to && is_blank((uint8_t)(*to)[-1]))
        --*to;
}

/* One value per line becomes a list: "1\n2\n" as "1,2". JSON may contain line breaks anywhere. */
static int append_values(struct hy_buf *b, const char *from, const char *to)
{
    int rc = 0;

    trim(&from, &to);
    if (from < to && *from == '[')
        return hy_buf_append(b, from, (size_t)(to - from));
    for (bool first = true; rc == 0 && from < to; first = false) {
        const char *newline = memchr(from, '\n', (size_t)(to - from)), *end = newline ? newline : to;
        const char *next = end + (newline != NULL);

        trim(&from, &end);
        if ((newline || !first) && end > from && end[-1] == ',')
            end--;
        if (from < end && !first)
            rc = hy_buf_append_str(b, ",");
        if (rc == 0)
            rc = hy_buf_append(b, from, (size_t)(end - from));
        from = next;
    }
    return rc;
}

/* Replaces "NAME=@FILE" by "NAME=" and the trimmed content of the file. */
static int add_file(Hy__RunSpec *spec, const char *text, const char *file, struct hy_err *err)
{
    int name = (int)strcspn(text, "="), rc;
    hy_cleanup_buf struct hy_buf b, values;
    const char *bytes;

    hy_buf_init(&b, values_left(spec));
    hy_buf_init(&values, SIZE_MAX / 2);
    rc = read_values(file, &b, err);
    if (rc < 0)
        return hy_err_wrap(err, "%.*s", name, text);
    bytes = b.len ? (const char *)hy_buf_bytes(&b) : "";
    if (append_values(&values, bytes, bytes + b.len) < 0 || !hy_buf_cstr(&values))
        return hy_err_oom(err);
    return hy_spec_add_dim(spec, hy_asprintf("%.*s=%s", name, text, hy_buf_cstr(&values)), err);
}

static int dimension(Hy__RunSpec *spec, const char *text, struct hy_err *err)
{
    const char *equals = strchr(text, '=');

    if (equals && equals[1] == '@')
        return add_file(spec, text, equals + 2, err);
    return hy_spec_add_dim(spec, hy_strdup(text), err);
}

static int constraints(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *text;
    size_t cursor = 0;
    int rc = 0;

    while (rc == 0 && (text = hy_args_next(args, "constraint", &cursor))) {
        if (spec->n_dims == 0)
            return hy_err_option(err, "constraint", "requires hyperparameters: add --space or --grid");
        rc = hy_spec_add_text(&spec->constraints, &spec->n_constraints, text, err);
    }
    return rc;
}

static int search(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *list = hy_args_has(args, "grid") ? "grid" : "space", *text;
    size_t cursor = 0;
    int rc = check_mix(args, err);

    if (rc == 0)
        rc = hy_spec_metric(args, spec, err);
    if (rc == 0)
        rc = fraction(args, "mutation", 2, &spec->mutation, err);
    if (rc == 0)
        rc = fraction(args, "crossover", 1, &spec->crossover, err);
    while (rc == 0 && (text = hy_args_next(args, list, &cursor)))
        rc = dimension(spec, text, err);
    if (rc == 0)
        rc = constraints(args, spec, err);
    if (hy_args_has(args, "paired"))
        spec->kind = HY__RUN_SPEC__KIND__PAIRED;
    else if (algorithm_of(args))
        spec->kind = HY__RUN_SPEC__KIND__RANDOM; /* until it is known which one */
    return rc == 0 ? algorithm(args, spec, err) : rc;
}

/* Creates the search that the driver will create, to report its errors now. */
static int try_search(const Hy__RunSpec *spec, const struct hy_space *space, struct hy_err *err)
{
    struct hy_search_settings settings = hy_run_settings(spec);
    struct hy_search *s = NULL;
    int rc;

    if (space->count == 0)
        return 0; /* one trial */
    rc = hy_search_new(space, &settings, &s, err);
    hy_search_free(s);
    return rc;
}

/* ---- the command ------------------------------------------------------------------------- */

static int check_names(const Hy__RunSpec *spec, const struct hy_space *space, struct hy_err *err)
{
    hy_cleanup_free char **names = hy_calloc(space->count + 1, sizeof *names);
    hy_cleanup_free char **argv = hy_calloc(spec->n_argv + 1, sizeof *argv);

    if (!names || !argv)
        return hy_err_oom(err);
    for (size_t i = 0; i < space->count; i++)
        names[i] = space->dims[i].name;
    memcpy(argv, spec->argv, spec->n_argv * sizeof *argv);
    return hy_command_check(argv, names, err);
}

/* The maximal length of a value of the dimension as JSON. */
static size_t longest(const struct hy_dim *dim)
{
    size_t most = 32; /* any number */

    for (size_t i = 0; i < dim->choice_count; i++) {
        size_t n = strlen(dim->json ? dim->json[i] : dim->choices[i]);

        most = n > most ? n : most;
    }
    return most;
}

static int check_length(const struct hy_space *space, struct hy_err *err)
{
    size_t sum = 0;

    for (size_t i = 0; i < space->count; i++) {
        sum += longest(&space->dims[i]) + strlen(space->dims[i].name);
        if (sum > PARAMS_MAX)
            return hy_err_set(err, -EINVAL,
                              "the values of a trial are larger than %d KB with '%.80s', so it could not be started; "
                              "write long values to files and pass the names of the files",
                              PARAMS_MAX >> 10, space->dims[i].name);
    }
    return 0;
}

static int check_space(const Hy__RunSpec *spec, struct hy_err *err)
{
    struct hy_space space = {0};
    int rc = hy_run_space(spec, &space, err);

    if (rc < 0 && !spec->function.len)
        hy_err_wrap(err, hy_run_takes_lists(spec) ? "--grid" : "--space");
    if (rc == 0)
        rc = try_search(spec, &space, err);
    if (rc == 0)
        rc = check_length(&space, err);
    if (rc == 0)
        rc = check_names(spec, &space, err);
    hy_space_done(&space);
    return rc;
}

static int command(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    size_t n = 0;

    while (args->rest && args->rest[n])
        n++;
    if (n == 0)
        return hy_err_set(err, -EINVAL, "missing command; put it %s",
                          args->command->bare_rest
                              ? "after the options, for example: hopyard train -np 4 python train.py"
                              : "after --, for example: hopyard run --grid lr=0.1,0.01 -- ./train --lr {lr}");
    return hy_spec_copy_texts(&spec->argv, &spec->n_argv, args->rest, n, err);
}

static bool is_printable(const char *text)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 4 * NAME_MAX_BYTES);
    return hy_append_printable(&b, text, strlen(text)) == 0 && b.len == strlen(text);
}

static int name_and_place(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *name = hy_args_get(args, "name"), *hosts = hy_args_get(args, "hosts");
    const char *listen = hy_args_get(args, "listen"), *colon = listen ? strrchr(listen, ':') : NULL;
    uint64_t port;
    int rc = 0;

    if (name && hy_parse_u64(name, &port) != -EINVAL)
        return hy_err_option(err, "name", "cannot be a number, because numbers identify runs; try run-%s", name);
    if (name && (strlen(name) > NAME_MAX_BYTES || *name == '-' || !is_printable(name)))
        return hy_err_option(err, "name",
                             "takes up to %d bytes of text without control characters and without '-' at the start",
                             NAME_MAX_BYTES);
    if (listen && (hy_parse_u64(colon ? colon + 1 : listen, &port) < 0 || port > 65535 || colon == listen))
        return hy_err_option(err, "listen", "takes [ADDRESS:]PORT such as 0.0.0.0:4711, not '%s'", listen);
    if (name)
        rc = hy_spec_set_text(&spec->name, hy_strdup(name), err);
    if (rc == 0 && listen)
        rc = hy_spec_set_text(&spec->listen, hy_strdup(listen), err);
    return rc < 0 || !hosts ? rc : hy_spec_hosts(spec, hosts, err);
}

/* ---- submitted runs -------------------------------------------------------------------- */

/* An application's ID becomes the name of a directory. */
static bool is_app_id(const char *text)
{
    return *text != '.' && strlen(text) <= NAME_MAX_BYTES && !strchr(text, '/') && is_printable(text);
}

/* Checks what no option describes. The run's agent may wait afterwards for the next run of the client, our parent. */
static int submitted(Hy__RunSpec *spec, struct hy_err *err)
{
    char mark[HY_MARK_MAX];

    if (spec->n_argv == 0)
        return hy_err_set(err, -EINVAL, "the submission has no command");
    if (!is_app_id(spec->app_id))
        return hy_err_option(err, "app-id", "must be a valid directory name, not '%s'", spec->app_id);
    if (spec->function.len > HY_FUNCTION_LIMIT)
        return hy_err_set(
            err, -EINVAL,
            "the function is larger than %u MB with everything it refers to; load large data inside of it",
            HY_FUNCTION_LIMIT >> 20);
    if (!*spec->warm_key)
        return 0;
    if (hy_mark_format(getppid(), mark) < 0)
        return hy_err_set(err, -ESRCH, "the client has ended");
    return hy_spec_set_text(&spec->client, hy_strdup(mark), err);
}

int hy_spec_begin(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err)
{
    if (args->submitted)
        *ret = hy_take(*args->submitted);
    else if ((*ret = hy_malloc(sizeof **ret)))
        hy__run_spec__init(*ret);
    return *ret ? 0 : hy_err_oom(err);
}

int hy_spec_common(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    int rc = limits(args, spec, err);

    if (rc == 0)
        rc = name_and_place(args, spec, err);
    if (rc == 0)
        rc = hy_spec_engine(args, spec, err);
    if (rc == 0)
        rc = args->submitted ? submitted(spec, err) : command(args, spec, err);
    return rc;
}

int hy_spec_new(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err)
{
    hy_cleanup_spec Hy__RunSpec *spec = NULL;
    int rc = hy_spec_begin(args, &spec, err);

    if (rc == 0)
        rc = search(args, spec, err);
    if (rc == 0)
        rc = hy_spec_stop(args, spec, err);
    if (rc == 0)
        rc = hy_spec_common(args, spec, err);
    if (rc == 0)
        rc = check_space(spec, err);
    if (rc < 0)
        return rc;
    *ret = hy_take(spec);
    return 0;
}

const char *hy_spec_unused(const Hy__RunSpec *spec)
{
    for (size_t d = 0; d < spec->n_dims && !spec->function.len; d++) {
        const char *text = spec->dims[d]->text;
        size_t n = strcspn(text, "="), found = 0;

        for (size_t i = 0; i < spec->n_argv && !found; i++)
            for (const char *at = spec->argv[i]; (at = strchr(at, '{')) && !found; at++)
                found = strncmp(at + 1, text, n) == 0 && at[n + 1] == '}';
        if (!found)
            return text;
    }
    return NULL;
}
