/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a user's projects: a file for each, in the user's state directory. */
#include "store_bench.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/mem.h"

#define LIST "state/hopyard/projects"

static int new_list(void **state)
{
    int rc = new_project(state);

    return rc < 0 ? rc : setenv("XDG_STATE_HOME", in_project("state"), 1);
}

struct seen {
    int count, stop_at; /* stop_at: 0: never */
    char id[HY_PROJECT_ID_SIZE], path[PATH_MAX];
};

static int see(void *arg, const char *id, const char *path)
{
    struct seen *seen = arg;

    snprintf(seen->id, sizeof seen->id, "%s", id);
    snprintf(seen->path, sizeof seen->path, "%s", path);
    return ++seen->count == seen->stop_at ? 7 : 0;
}

static int count_listed(void)
{
    struct seen seen = {0};

    OK(hy_project_each(see, &seen, &err));
    return seen.count;
}

/* A directory in the project, listed. */
static const char *listed(const char *name)
{
    const char *path = in_project(name);

    assert_int_equal(mkdir(path, 0755), 0);
    OK(hy_project_register(path, &err));
    return path;
}

static void write_entry(const char *name, const void *bytes, size_t n)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/%s", in_project(LIST), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

HY_TEST_WITH(test_each_project_is_listed_once_with_its_id, new_list, no_project)
{
    struct seen seen = {0};
    char id[HY_PROJECT_ID_SIZE], path[PATH_MAX];

    assert_int_equal(count_listed(), 0); /* there is no list yet */
    snprintf(path, sizeof path, "%s", listed("a"));
    OK(hy_project_register(path, &err));
    OK(hy_project_each(see, &seen, &err));
    hy_project_id(path, id);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.path, path);
    assert_string_equal(seen.id, id);
    listed("b");
    assert_int_equal(count_listed(), 2);
    seen = (struct seen){.stop_at = 1};
    assert_int_equal(hy_project_each(see, &seen, &err), 7);
    assert_int_equal(seen.count, 1);
}

HY_TEST_WITH(test_a_project_that_was_removed_leaves_the_list, new_list, no_project)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s", listed("a"));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(count_listed(), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(count_listed(), 0); /* until a store is opened there again */
}

HY_TEST_WITH(test_entries_that_hopyard_has_not_written_are_skipped, new_list, no_project)
{
    char id[HY_PROJECT_ID_SIZE], path[PATH_MAX];

    snprintf(path, sizeof path, "%s", listed("a"));
    write_entry("0000000000000000", path, strlen(path)); /* the id of another path */
    hy_project_id("relative", id);
    write_entry(id, "relative", 8);
    hy_project_id("/with", id);
    write_entry(id, "/with\0NUL", 9);
    write_entry("short", path, strlen(path));
    assert_int_equal(count_listed(), 1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), 0);
    assert_int_equal(count_listed(), 0); /* a file is not a project */
}

HY_TEST_WITH(test_a_list_that_others_can_write_to_is_refused, new_list, no_project)
{
    struct seen seen = {0};

    listed("a");
    assert_int_equal(chmod(in_project(LIST), 0777), 0);
    FAILS(hy_project_each(see, &seen, &err), -EPERM, "projects");
    assert_int_equal(hy_project_each(see, &seen, NULL), -EPERM);
    assert_int_equal(seen.count, 0);
}

HY_TEST_WITH(test_the_list_is_below_the_home_directory_by_default, new_list, no_project)
{
    const char *home = getenv("HOME");
    hy_cleanup_free char *before = home ? strdup(home) : NULL;

    unsetenv("XDG_STATE_HOME");
    setenv("HOME", project, 1);
    listed("a");
    assert_int_equal(access(in_project(".local/state/hopyard/projects"), F_OK), 0);
    setenv("XDG_STATE_HOME", "relative", 1); /* must be absolute: ignored */
    assert_int_equal(count_listed(), 1);
    if (before)
        setenv("HOME", before, 1);
    else
        unsetenv("HOME");
}
