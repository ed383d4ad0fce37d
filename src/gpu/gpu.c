/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/internal.h"
#include "supervise/supervise.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#define FIND_MS 10000
#define RETRY_MS 500        /* between two attempts to lock ... */
#define RETRY_SPREAD_MS 100 /* ... plus or minus: two agents that collided should not collide again */
#define FRAMEWORK_PERCENT 90 /* of a share's memory, for frameworks that allocate all: a context needs some too */

struct hy_gpus {
    uv_loop_t *loop;
    uv_timer_t timer; /* everything is done in its callback */
    struct hy_gpu_device devices[HY_GPUS_MAX];
    struct hy_mps *mps[HY_GPUS_MAX]; /* made when first needed */
    size_t count;
    struct hy_helper *finder, *measurer;
    void (*found)(void *arg); /* to be called; NULL: no callback */
    void *found_arg;
    void (*left)(void *arg);
    void *left_arg;
    struct hy_list leases;
    unsigned round;
    struct hy_rng rng;
};

enum stage { WAITING, STARTING /* MPS */, READY };

struct hy_gpu_lease {
    struct hy_gpus *gpus;
    struct hy_list link;
    enum stage stage;
    uint64_t mask;
    uint32_t share;
    struct hy_gpu_events events;
    void *arg;
    struct hy_gpu_lock lock;
    size_t devices[HY_GPUS_MAX], count;
    unsigned round;       /* of the last try */
    bool told;            /* on_held was called */
    struct hy_mps *mps;   /* that it uses */
    struct hy_mps_mark mark;
    char *words[HY_GPU_ENV_MAX];
    size_t word_count;
};

/* ---- devices --------------------------------------------------------------------- */

size_t hy_gpus_count(const struct hy_gpus *g)
{
    return g->count;
}

const struct hy_gpu_device *hy_gpus_device(const struct hy_gpus *g, size_t i)
{
    return &g->devices[i];
}

int hy_gpus_list_main(void)
{
    struct hy_gpu_device list[HY_GPUS_MAX];
    struct hy_err err = {0};
    int count = hy_nvml_list(list, HY_COUNT(list), &err);

    if (count < 0) {
        printf("%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < count; i++)
        printf("gpu %s %llu %s\nuse %s %llu %u\n", list[i].uuid, (unsigned long long)list[i].memory, list[i].name,
               list[i].uuid, (unsigned long long)list[i].memory_used, list[i].use);
    return fflush(stdout) ? 1 : 0;
}

static size_t parse_list(const char *text, struct hy_gpu_device *list)
{
    size_t n = 0;

    for (; *text && n < HY_GPUS_MAX; text += strcspn(text, "\n"), text += *text == '\n') {
        struct hy_gpu_device *d = &list[n];
        unsigned long long memory;

        if (sscanf(text, "gpu %95s %llu %95[^\n]", d->uuid, &memory, d->name) == 3) {
            d->memory = memory;
            n++;
        }
    }
    return n;
}

/* The lines "use UUID BYTES THOUSANDTHS" for the devices of the list. */
static void parse_use(const char *text, struct hy_gpu_device *list, size_t count)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        char uuid[HY_GPU_UUID_MAX];
        unsigned long long used;
        unsigned use;

        if (sscanf(text, "use %95s %llu %u", uuid, &used, &use) != 3)
            continue;
        for (size_t i = 0; i < count; i++)
            if (strcmp(list[i].uuid, uuid) == 0) {
                list[i].is_measured = true;
                list[i].memory_used = used < list[i].memory ? used : list[i].memory;
                list[i].use = use < 1000 ? use : 1000;
            }
    }
}

static void wake(struct hy_gpus *g);

static void on_listed(void *arg, int status, const char *said)
{
    struct hy_gpus *g = arg;

    g->finder = NULL;
    if (status == 0)
        g->count = hy_gpu_visible(getenv("CUDA_VISIBLE_DEVICES"), g->devices, parse_list(said, g->devices));
    else
        hy_warn("GPUs cannot be listed and are not used status=%d output=\"%.*s\"", status, (int)strcspn(said, "\n"),
                said);
    wake(g);
}

static int start_lister(struct hy_gpus *g, hy_helper_cb done, struct hy_helper **ret, struct hy_err *err)
{
    char *argv[] = {(char *)"hopyard", (char *)"agent", (char *)"--list-gpus", NULL};
    struct hy_helper_spec spec = {.file = "/proc/self/exe", .argv = argv, .timeout_ms = FIND_MS};

    return hy_helper_start(g->loop, &spec, done, g, ret, err);
}

static void on_measured(void *arg, int status, const char *said)
{
    struct hy_gpus *g = arg;

    g->measurer = NULL;
    for (size_t i = 0; i < g->count; i++)
        g->devices[i].is_measured = false;
    if (status == 0)
        parse_use(said, g->devices, g->count);
    else
        hy_warn_limited("cannot measure GPU usage status=%d output=\"%.*s\"", status, (int)strcspn(said, "\n"), said);
}

void hy_gpus_measure(struct hy_gpus *g)
{
    struct hy_err err = {0};

    if (g->count && !g->measurer && start_lister(g, on_measured, &g->measurer, &err) < 0)
        hy_warn_limited("cannot measure GPU usage error=%s", err.text);
}

void hy_gpus_find(struct hy_gpus *g, void (*found)(void *arg), void *arg)
{
    struct hy_err err = {0};

    g->found = found;
    g->found_arg = arg;
    if (!hy_nvml_is_here()) {
        wake(g);
        return;
    }
    if (start_lister(g, on_listed, &g->finder, &err) < 0) {
        hy_warn("GPUs cannot be listed and are not used error=%s", err.text);
        wake(g);
    }
}

/* ---- a trial's environment ---------------------------------------------------------- */

static int add_env(struct hy_gpu_lease *l, char *word)
{
    if (!word)
        return -ENOMEM;
    l->words[l->word_count++] = word;
    return 0;
}

static char *visible_devices(const struct hy_gpu_lease *l)
{
    char text[HY_GPUS_MAX * HY_GPU_UUID_MAX];
    size_t n = 0;

    for (size_t i = 0; i < l->count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? "," : "", l->gpus->devices[l->devices[i]].uuid);
    return hy_asprintf("CUDA_VISIBLE_DEVICES=%s", text);
}

/* A limit that MPS enforces, or that is only a request to the framework. */
static int add_limit_words(struct hy_gpu_lease *l, uint64_t memory)
{
    int rc;

    if (!l->mps) {
        rc = add_env(l, hy_asprintf("HOPYARD_GPU_MEMORY=%llu", (unsigned long long)memory));
        if (rc == 0)
            rc = add_env(l, hy_asprintf("HOPYARD_GPU_SHARE=%g", l->share / (double)HY_GPU_SHARES));
        return rc;
    }
    rc = add_env(l, hy_asprintf("CUDA_MPS_PIPE_DIRECTORY=%s", hy_mps_folder(l->mps)));
    if (rc == 0) /* the only visible device is device 0 */
        rc = add_env(l, hy_asprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%lluM", (unsigned long long)(memory >> 20)));
    if (rc == 0)
        rc = add_env(l, hy_asprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%g", l->share / 10.0));
    return rc;
}

/* Frameworks that would allocate the whole device's memory at their start. */
static int add_share_words(struct hy_gpu_lease *l)
{
    uint64_t all = l->gpus->devices[l->devices[0]].memory;
    int rc = add_limit_words(l, all / HY_GPU_SHARES * l->share);

    if (rc == 0)
        rc = add_env(l, hy_strdup("TF_FORCE_GPU_ALLOW_GROWTH=true"));
    if (rc == 0)
        rc = add_env(l, hy_asprintf("XLA_PYTHON_CLIENT_MEM_FRACTION=%g",
                                    l->share / (double)HY_GPU_SHARES * FRAMEWORK_PERCENT / 100));
    return rc;
}

static int make_words(struct hy_gpu_lease *l)
{
    int rc = add_env(l, visible_devices(l));

    if (rc == 0)
        rc = add_env(l, hy_asprintf("HOPYARD_GPUS=%zu", l->count));
    return rc < 0 || l->share >= HY_GPU_SHARES ? rc : add_share_words(l);
}

/* "A=1" and "A=2" have the same name. */
static bool is_same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n + 1) == 0;
}

/* A setting of the user's for a framework is kept. */
static bool is_hint(const char *word)
{
    return strncmp(word, "TF_", 3) == 0 || strncmp(word, "XLA_", 4) == 0;
}

static size_t put_word(char **env, size_t count, char *word)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (!is_same_name(word, env[i]))
            env[kept++] = env[i];
        else if (is_hint(word))
            return count;
    }
    env[kept++] = word;
    return kept;
}

size_t hy_gpu_environment(const struct hy_gpu_lease *lease, char **env, size_t count)
{
    static char *const none[] = {(char *)"CUDA_VISIBLE_DEVICES=", (char *)"HOPYARD_GPUS=0"};
    char *const *words = lease ? lease->words : none;
    size_t n = lease ? lease->word_count : HY_COUNT(none);

    for (size_t i = 0; i < n; i++)
        count = put_word(env, count, words[i]);
    return count;
}

/* ---- leases ------------------------------------------------------------------------- */

static void on_mps_changed(void *arg)
{
    wake(arg);
}

static struct hy_mps *mps_of(struct hy_gpus *g, size_t device)
{
    if (!g->mps[device])
        g->mps[device] = hy_mps_new(g->loop, g->devices[device].uuid, on_mps_changed, g);
    return g->mps[device];
}

static void fail(struct hy_gpu_lease *l, int code)
{
    struct hy_err err = {0};

    hy_err_sys(&err, code, "a GPU cannot be leased");
    l->events.on_failed(l->arg, &err);
}

static void be_ready(struct hy_gpu_lease *l)
{
    int rc = make_words(l);

    l->stage = READY;
    if (rc < 0)
        fail(l, rc);
    else
        l->events.on_ready(l->arg);
}

static void give_back(struct hy_gpu_lease *l)
{
    hy_gpu_lock_drop(&l->lock);
    l->count = 0;
    if (l->mps)
        hy_mps_drop(l->mps);
    l->mps = NULL;
}

static void look_at_mps(struct hy_gpu_lease *l)
{
    int rc = hy_mps_ready(l->mps);

    if (rc == 0)
        return;
    if (rc < 0) {
        hy_mps_drop(l->mps);
        l->mps = NULL;
    } else {
        l->mark = hy_mps_mark(l->mps);
    }
    be_ready(l);
}

static bool is_ours(const struct hy_gpus *g, size_t device)
{
    hy_list_each(it, (struct hy_list *)&g->leases) {
        const struct hy_gpu_lease *l = hy_container(it, struct hy_gpu_lease, link);

        for (size_t i = 0; i < l->count; i++)
            if (l->devices[i] == device)
                return true;
    }
    return false;
}

static void tell_it_waits(struct hy_gpu_lease *l)
{
    struct hy_gpus *g = l->gpus;
    size_t foreign = 0, last = 0;
    char why[HY_GPU_UUID_MAX + 64];

    for (size_t i = 0; i < g->count; i++)
        if (!is_ours(g, i)) {
            foreign++;
            last = i;
        }
    if (foreign == 1)
        snprintf(why, sizeof why, "%s is leased by another run", g->devices[last].uuid);
    else if (foreign)
        snprintf(why, sizeof why, "%zu GPUs here are leased by other runs", foreign);
    else
        snprintf(why, sizeof why, "no GPU is free here");
    l->told = true;
    l->events.on_held(l->arg, why);
}

/* Takes from the devices that the mask names, or those that it does not. */
static int take_some(struct hy_gpu_lease *l, bool named, size_t want)
{
    struct hy_gpus *g = l->gpus;
    int rc = 0;

    for (size_t i = 0; i < g->count && l->count < want && rc == 0; i++) {
        if (((l->mask >> i) & 1) != named)
            continue;
        rc = hy_gpu_lock_add(&l->lock, g->devices[i].uuid, l->share);
        if (rc == 0)
            l->devices[l->count++] = i;
        else if (rc == -EBUSY)
            rc = 0;
    }
    return rc;
}

/* All or nothing: holding a part while waiting for the rest could deadlock with another agent that does the same. */
static int take(struct hy_gpu_lease *l)
{
    size_t want = (size_t)__builtin_popcountll(l->mask);
    int rc = take_some(l, true, want);

    if (rc == 0)
        rc = take_some(l, false, want);
    if (rc == 0 && l->count < want)
        rc = -EBUSY;
    if (rc < 0)
        give_back(l);
    return rc;
}

static void try(struct hy_gpu_lease *l)
{
    int rc = take(l);

    if (rc == -EBUSY) {
        if (!l->told)
            tell_it_waits(l);
        return;
    }
    l->stage = STARTING;
    if (rc == 0 && l->share < HY_GPU_SHARES) {
        l->mps = mps_of(l->gpus, l->devices[0]);
        rc = l->mps ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        fail(l, rc);
    } else if (l->mps) {
        hy_mps_use(l->mps);
        look_at_mps(l);
    } else {
        be_ready(l);
    }
}

/* The next one that has not been looked at in this round: callbacks free leases, and make new ones. */
static struct hy_gpu_lease *next_in_round(struct hy_gpus *g)
{
    hy_list_each(it, &g->leases) {
        struct hy_gpu_lease *l = hy_container(it, struct hy_gpu_lease, link);

        if (l->stage != READY && l->round != g->round) {
            l->round = g->round;
            return l;
        }
    }
    return NULL;
}

static bool somebody_waits(const struct hy_gpus *g)
{
    hy_list_each(it, (struct hy_list *)&g->leases)
        if (hy_container(it, struct hy_gpu_lease, link)->stage == WAITING)
            return true;
    return false;
}

static bool all_idle(const struct hy_gpus *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->mps[i] && !hy_mps_is_idle(g->mps[i]))
            return false;
    return true;
}

/* Calls back once. */
static void call(void (**cb)(void *arg), void *arg)
{
    void (*once)(void *) = *cb;

    *cb = NULL;
    if (once)
        once(arg);
}

static void on_timer(uv_timer_t *timer)
{
    struct hy_gpus *g = timer->data;
    struct hy_gpu_lease *l;

    if (!g->finder)
        call(&g->found, g->found_arg);
    g->round++;
    while ((l = next_in_round(g))) {
        if (l->stage == WAITING)
            try(l);
        else
            look_at_mps(l);
    }
    if (all_idle(g))
        call(&g->left, g->left_arg);
    if (somebody_waits(g) && !uv_is_active((uv_handle_t *)&g->timer))
        uv_timer_start(&g->timer, on_timer, RETRY_MS - RETRY_SPREAD_MS + hy_rng_below(&g->rng, 2 * RETRY_SPREAD_MS), 0);
}

static void wake(struct hy_gpus *g)
{
    uv_timer_start(&g->timer, on_timer, 0, 0);
}

int hy_gpu_lease_new(struct hy_gpus *g, uint64_t mask, uint32_t share, const struct hy_gpu_events *events, void *arg,
                     struct hy_gpu_lease **ret, struct hy_err *err)
{
    size_t want = (size_t)__builtin_popcountll(mask);
    struct hy_gpu_lease *l;

    if (want == 0 || share == 0 || want > g->count || (share < HY_GPU_SHARES && want > 1))
        return hy_err_set(
            err, -EINVAL,
            "it needs %zu GPUs (%u thousandths of each), and this agent has %zu: this is a bug in hopyard", want, share,
            g->count);
    l = hy_calloc(1, sizeof *l);
    if (!l)
        return hy_err_oom(err);
    l->gpus = g;
    l->mask = mask;
    l->share = share;
    l->events = *events;
    l->arg = arg;
    l->round = g->round; /* not before the timer's next turn */
    hy_list_push(&g->leases, (hy_list_init(&l->link), &l->link));
    wake(g);
    *ret = l;
    return 0;
}

void hy_gpu_lease_free(struct hy_gpu_lease *l)
{
    if (!l)
        return;
    give_back(l);
    hy_list_remove(&l->link);
    wake(l->gpus); /* it is free for others now */
    for (size_t i = 0; i < l->word_count; i++)
        free(l->words[i]);
    free(l);
}

uint64_t hy_gpu_lease_devices(const struct hy_gpu_lease *l)
{
    uint64_t mask = 0;

    for (size_t i = 0; l && l->stage == READY && i < l->count; i++)
        mask |= UINT64_C(1) << l->devices[i];
    return mask;
}

const int *hy_gpu_lease_fds(const struct hy_gpu_lease *l, size_t *ret_count)
{
    *ret_count = l->lock.count;
    return l->lock.fds;
}

bool hy_gpu_lease_had_fault(const struct hy_gpu_lease *l)
{
    return l->mps && hy_mps_had_fault(l->mps, l->mark);
}

/* ---- life cycle ----------------------------------------------------------------------- */

struct hy_gpus *hy_gpus_new(uv_loop_t *loop)
{
    struct hy_gpus *g = hy_calloc(1, sizeof *g);

    if (!g)
        return NULL;
    g->loop = loop;
    hy_list_init(&g->leases);
    hy_rng_seed(&g->rng, (uint64_t)getpid(), 0);
    uv_timer_init(loop, &g->timer);
    g->timer.data = g;
    return g;
}

void hy_gpus_close(struct hy_gpus *g, void (*left)(void *arg), void *arg)
{
    g->left = left;
    g->left_arg = arg;
    for (size_t i = 0; i < g->count; i++)
        if (g->mps[i])
            hy_mps_leave(g->mps[i]);
    wake(g);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void hy_gpus_free(struct hy_gpus *g)
{
    if (!g)
        return;
    hy_helper_cancel(g->finder);
    hy_helper_cancel(g->measurer);
    for (size_t i = 0; i < HY_GPUS_MAX; i++)
        hy_mps_free(g->mps[i]);
    uv_close((uv_handle_t *)&g->timer, on_closed);
}

/* ---- without a loop ------------------------------------------------------ */

static void on_counted(void *arg)
{
    (void)arg;
}

int hy_gpus_count_here(size_t *ret, struct hy_err *err)
{
    uv_loop_t loop;
    struct hy_gpus *g;
    int rc = uv_loop_init(&loop);

    if (rc < 0)
        return hy_err_set(err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    g = hy_gpus_new(&loop);
    if (g) {
        hy_gpus_find(g, on_counted, NULL);
        uv_run(&loop, UV_RUN_DEFAULT); /* until the listing process has ended */
        *ret = g->count;
        hy_gpus_free(g);
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    uv_loop_close(&loop);
    return g ? 0 : hy_err_oom(err);
}
