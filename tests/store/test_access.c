/* SPDX-License-Identifier: Apache-2.0 */
/* The store among several: what a turn is, who may write and read, where it lies, one driver per run. */
#include "store_bench.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/private.h"

/* ---- the turn -------------------------------------------------------------------- */

HY_TEST_WITH(test_nothing_is_seen_before_it_is_committed, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *reader = open_store(HY_STORE_READ);

    OK(add_trial(s, run, 1));
    assert_int_equal(count_trials(s, run), 1);
    assert_int_equal(count_trials(reader, run), 0); /* nor does the reader wait */
    OK(hy_store_commit(s, &err));
    assert_int_equal(count_trials(reader, run), 1);
    OK(hy_store_commit(s, &err)); /* an empty turn is fine */
    OK(add_trial(s, run, 2));
    hy_store_close(s);
    assert_int_equal(count_trials(reader, run), 1);
    FAILS(add_trial(reader, run, 3), -EROFS, "open for reading only");
    FAILS(hy_store_run_state(reader, run, HY_RUN_DONE, NULL, &err), -EROFS, "open for reading only");
    hy_store_close(reader);
}

static int look_inside(void *arg, const struct hy_trial_row *t)
{
    struct hy_store *s = ((void **)arg)[0];
    int64_t run = *(int64_t *)((void **)arg)[1];

    assert_int_equal(count_trials(s, run), 3); /* the same walk within itself */
    return end_trial(s, run, t->number, HY_TRIAL_DONE, 1);
}

HY_TEST_WITH(test_a_callback_may_use_the_store, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    for (int64_t i = 1; i <= 3; i++)
        OK(add_trial(s, run, i));
    OK(hy_store_commit(s, &err));
    OK(hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, look_inside, (void *[]){s, &run}, &err));
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, run).done, 3);
    hy_store_close(s);
}

HY_TEST_WITH(test_a_change_that_fails_rolls_back_its_turn, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_trial(s, run, 1));
    FAILS(add_trial(s, 99, 1), -ENOENT, "no run 99"); /* its run was removed under it */
    FAILS(add_trial(s, run, 2), -ENOENT, "no run 99");
    FAILS(hy_store_commit(s, &err), -ENOENT, "no run 99");
    assert_int_equal(count_trials(s, run), 0);
    OK(whole_turn(s, run, 1));
    assert_int_equal(counts_of(s, run).done, 1);
    hy_store_close(s);
}

/* ---- writers --------------------------------------------------------------------- */

static int write_a_run(void *arg)
{
    struct hy_store *s = NULL;
    int64_t run;

    CHECK(hy_store_open(project, HY_STORE_WRITE, &s, &err) == 0);
    CHECK(add_run(s, NULL, (int64_t)(intptr_t)arg, true, &run) == 0);
    for (int64_t i = 1; i <= 150; i++)
        CHECK(whole_turn(s, run, i) == 0);
    hy_store_close(s);
    return 0;
}

HY_TEST_WITH(test_writers_of_several_runs_never_find_the_store_locked, new_project, no_project)
{
    pid_t writers[3];
    struct hy_store *s;

    for (intptr_t i = 0; i < 3; i++) /* the first of them makes the store, the others wait for it */
        writers[i] = start_child(write_a_run, (void *)(i + 1));
    for (int i = 0; i < 3; i++)
        assert_int_equal(child_ends(writers[i]), 0);
    s = open_store(HY_STORE_READ);
    for (int64_t run = 1; run <= 3; run++) {
        assert_int_equal(counts_of(s, run).done, 150);
        assert_int_equal(count_trials(s, run), 150);
    }
    hy_store_close(s);
}

HY_TEST_WITH(test_a_store_in_use_is_waited_for_then_refused, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *second, *third = NULL;

    setenv("HOPYARD_TEST_STORE_WAIT_MS", "30", 1);
    second = open_store(HY_STORE_WRITE);
    OK(add_trial(s, run, 1));
    FAILS(add_trial(second, run, 2), -EBUSY, "is in use");
    FAILS(hy_store_commit(second, &err), -EBUSY, "is in use");
    FAILS(hy_store_open(project, HY_STORE_WRITE, &third, &err), -EBUSY, "is in use");
    OK(hy_store_commit(s, &err));
    OK(add_trial(second, run, 2));
    OK(hy_store_commit(second, &err));
    assert_int_equal(count_trials(s, run), 2);
    hy_store_close(second);
    hy_store_close(s);
}

HY_TEST_WITH(test_every_descriptor_closes_on_exec, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *reader = open_store(HY_STORE_READ);
    int lock = hy_store_run_lock(s, run, &err), seen = 0;
    char path[64], where[200];

    assert_int_equal(count_trials(reader, run), 0);
    for (int fd = 3; fd < 256; fd++) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n = readlink(path, where, sizeof where - 1);
        if (n <= 0 || strncmp(where, project, strlen(project)) != 0)
            continue;
        seen++;
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    assert_true(seen >= 5); /* two stores, two locks, -wal, -shm */
    close(lock);
    hy_store_close(reader);
    hy_store_close(s);
}

/* ---- readers --------------------------------------------------------------------- */

HY_TEST_WITH(test_a_reader_reports_that_there_is_no_store_yet, new_project, no_project)
{
    struct hy_store *s = NULL;

    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENOENT, "no runs yet in '/tmp/hy-store-");
    assert_non_null(strstr(err.text, "': start one with `hopyard run`"));
    assert_int_equal(access(in_project(".hopyard"), F_OK), -1); /* and makes nothing */
    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    put_file(in_project(".hopyard/store.db"), "", 0);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENOENT, "no runs yet");
    FAILS(hy_store_open(in_project("missing"), HY_STORE_READ, &s, &err), -ENOENT, "cannot use '");
    FAILS(hy_store_open(in_project("missing"), HY_STORE_WRITE, &s, &err), -ENOENT, "cannot use '");
    put_file(in_project("file"), "", 0);
    FAILS(hy_store_open(in_project("file"), HY_STORE_WRITE, &s, &err), -ENOTDIR, "is not a directory");
}

/* Root may write anywhere; what a reader may do is tried as somebody else. */
static int become_nobody(void)
{
    if (getuid() != 0)
        return 0;
    return setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0 ? 0 : -1;
}

static int read_as_nobody(void *arg)
{
    struct hy_store *s = NULL;
    int n = 0, runs = 0;

    CHECK(become_nobody() == 0);
    CHECK(hy_store_open(project, HY_STORE_READ, &s, &err) == 0);
    CHECK(hy_store_run_each(s, 0, count_run, &runs, &err) == 0);
    CHECK(hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_VALUE, 0, 0, count_trial, &n, &err) == 0);
    CHECK(runs == 1);
    CHECK(n == *(int *)arg);
    hy_store_close(s);
    return 0;
}

/* Hands the store to whom become_nobody becomes, with this mode of its folder. */
static void hand_over(mode_t mode)
{
    DIR *dir = opendir(in_project(".hopyard"));
    struct dirent *entry;

    assert_non_null(dir);
    while (getuid() == 0 && (entry = readdir(dir)))
        if (strcmp(entry->d_name, "..") != 0)
            assert_int_equal(fchownat(dirfd(dir), entry->d_name, 65534, 65534, AT_SYMLINK_NOFOLLOW), 0);
    closedir(dir);
    assert_int_equal(chmod(in_project(".hopyard"), mode), 0);
}

/* Reads as one who may not write there, with all files, and with each of them missing. */
HY_TEST_WITH(test_a_reader_needs_no_right_to_write, new_project, no_project)
{
    int64_t run;
    int trials = 3;
    struct hy_store *s = store_with_run(true, &run);

    for (int64_t i = 1; i <= 3; i++)
        OK(whole_turn(s, run, i));
    hand_over(0500);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0); /* beside a writer */
    hy_store_close(s);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0); /* after it */
    hand_over(0700);
    unlink(in_project(".hopyard/store.db-shm"));
    unlink(in_project(".hopyard/store.db-wal"));
    hand_over(0500);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0);
    hand_over(0700);
    s = open_store(HY_STORE_READ); /* as one who may write, too */
    assert_int_equal(count_trials(s, run), 3);
    hy_store_close(s);
}

HY_TEST_WITH(test_a_reader_without_rights_reads_what_a_killed_writer_left, new_project, no_project)
{
    int64_t run;
    struct hy_store *s;
    int trials;

    hy_store_close(store_with_run(true, &run));
    trials = (int)kill_writer_after(5, 0);
    unlink(in_project(".hopyard/store.db-shm")); /* what was committed is in the -wal alone */
    s = open_store(HY_STORE_READ);
    trials = (int)counts_of(s, run).done;
    hy_store_close(s);
    assert_true(trials >= 5);
    unlink(in_project(".hopyard/store.db-shm"));
    hand_over(0500);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0);
    hand_over(0700);
}

static int write_as_nobody(void *arg)
{
    struct hy_store *s = NULL;
    int rc;

    (void)arg;
    CHECK(become_nobody() == 0);
    rc = hy_store_open(project, HY_STORE_WRITE, &s, &err);
    CHECK(rc == -EACCES);
    CHECK(strstr(err.text, project) && strstr(err.text, "writ"));
    return 0;
}

HY_TEST_WITH(test_a_directory_that_is_not_writable_is_reported, new_project, no_project)
{
    int64_t run;

    assert_int_equal(chmod(project, 0555), 0);
    assert_int_equal(child_ends(start_child(write_as_nobody, NULL)), 0); /* no .hopyard yet */
    assert_int_equal(chmod(project, 0755), 0);
    hy_store_close(store_with_run(true, &run));
    hand_over(0500);
    assert_int_equal(chmod(in_project(".hopyard/store.lock"), 0400), 0);
    assert_int_equal(child_ends(start_child(write_as_nobody, NULL)), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.lock"), 0600), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.db"), 0400), 0);
    assert_int_equal(child_ends(start_child(write_as_nobody, NULL)), 0);
    hand_over(0700);
}

static int read_on_read_only_mount(void *arg)
{
    CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount(project, project, NULL, MS_BIND, NULL) == 0);
    CHECK(mount(NULL, project, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0);
    return read_as_nobody(arg);
}

HY_TEST_WITH(test_a_reader_reads_a_read_only_file_system, new_project, no_project)
{
    int64_t run;
    int trials = 1;
    struct hy_store *s;

    hy_need_root("to mount a file system read-only");
    s = store_with_run(true, &run);
    OK(whole_turn(s, run, 1));
    hy_store_close(s);
    hand_over(0755); /* it cannot be narrowed there, nor can anything get into it */
    assert_int_equal(child_ends(start_child(read_on_read_only_mount, &trials)), 0);
    unlink(in_project(".hopyard/store.db-shm"));
    assert_int_equal(child_ends(start_child(read_on_read_only_mount, &trials)), 0);
    unlink(in_project(".hopyard/store.db-wal"));
    assert_int_equal(child_ends(start_child(read_on_read_only_mount, &trials)), 0);
}

/* ---- who may use it ---------------------------------------------------------------- */

static char noted[800];

static void take_note(const char *text)
{
    snprintf(noted, sizeof noted, "%s", text);
}

static mode_t mode_of(const char *path)
{
    struct stat st;

    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

/* Reading and writing, and what only asks for the URL: all by the same check. */
static void refused(const char *words)
{
    hy_cleanup_free char *url = NULL;
    struct hy_store *s = NULL;

    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -EPERM, words);
    FAILS(hy_store_open(project, HY_STORE_WRITE, &s, &err), -EPERM, words);
    FAILS(hy_store_url_of_local_dir(project, &url, &err), -EPERM, words);
}

HY_TEST_WITH(test_all_files_of_a_store_are_accessible_to_the_owner_only, new_project, no_project)
{
    mode_t before = umask(0);
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);
    int lock = hy_store_run_lock(s, run, &err), files = 0;
    DIR *dir = opendir(in_project(".hopyard"));
    struct dirent *entry;
    struct stat st;

    umask(before);
    close(lock);
    assert_int_equal(mode_of(in_project(".hopyard")), 0700);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.' && strcmp(entry->d_name, ".gitignore") != 0)
            continue;
        files++;
        assert_int_equal(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
    closedir(dir);
    assert_int_equal(files, 6); /* store.db, -wal, -shm, store.lock, run-1.lock, .gitignore */
    hy_store_close(s);
}

HY_TEST_WITH(test_a_directory_that_others_can_read_is_made_private_with_a_note, new_project, no_project)
{
    int64_t run;

    hy_store_close(store_with_run(true, &run));
    assert_int_equal(chmod(in_project(".hopyard"), 0755), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.db"), 0644), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.lock"), 0644), 0);
    hy_private_notes_to(take_note);
    noted[0] = '\0';
    hy_store_close(open_store(HY_STORE_READ));
    assert_non_null(strstr(noted, "other users could read '"));
    assert_non_null(strstr(noted, "/.hopyard' (mode 0755); now only its owner can (mode 0700)"));
    assert_int_equal(mode_of(in_project(".hopyard")), 0700);
    assert_int_equal(mode_of(in_project(".hopyard/store.db")), 0600);
    assert_int_equal(mode_of(in_project(".hopyard/store.lock")), 0600);
    noted[0] = '\0';
    hy_store_close(open_store(HY_STORE_READ));
    assert_string_equal(noted, ""); /* once is enough */
}

HY_TEST_WITH(test_a_directory_that_others_can_write_is_rejected_until_chmod, new_project, no_project)
{
    int64_t run;

    hy_store_close(store_with_run(true, &run));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chmod(in_project(".hopyard"), i ? 0702 : 0770), 0);
        refused("other users can write to '");
        assert_non_null(strstr(err.text, "check them, then run: chmod go-w '"));
    }
    assert_int_equal(chmod(in_project(".hopyard"), 0700), 0);
    hy_store_close(open_store(HY_STORE_READ));
    assert_int_equal(chmod(in_project(".hopyard/store.db"), 0620), 0);
    refused("/.hopyard/store.db' (mode 0620)");
    assert_int_equal(chmod(in_project(".hopyard/store.db"), 0600), 0);
    hy_store_close(open_store(HY_STORE_WRITE));
}

HY_TEST_WITH(test_links_are_rejected_whoever_made_them, new_project, no_project)
{
    static const char *const names[] = {".hopyard/store.db", ".hopyard/store.db-wal", ".hopyard/store.lock",
                                        ".hopyard/url", ".hopyard/run-1.lock"};
    struct hy_store *s = NULL;
    int64_t run;

    hy_store_close(store_with_run(true, &run));
    for (size_t i = 0; i < HY_COUNT(names); i++) {
        char *path = in_project(names[i]), *away = in_project("away");

        unlink(away);
        assert_true(rename(path, away) == 0 || errno == ENOENT);
        assert_int_equal(symlink(away, path), 0);
        refused("is a symbolic link and is not followed");
        assert_int_equal(unlink(path), 0);
        assert_true(rename(away, path) == 0 || errno == ENOENT);
    }
    assert_int_equal(link(in_project(".hopyard/store.db"), in_project("second")), 0);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -EPERM, "is one of 2 hard links to the same file");
    FAILS(hy_store_open(project, HY_STORE_WRITE, &s, &err), -EPERM, "is one of 2 hard links to the same file");
    assert_int_equal(unlink(in_project("second")), 0);
    assert_int_equal(rename(in_project(".hopyard"), in_project("real")), 0);
    assert_int_equal(symlink("real", in_project(".hopyard")), 0);
    refused("/.hopyard' is a symbolic link and is not followed");
    assert_int_equal(unlink(in_project(".hopyard")), 0);
    assert_int_equal(symlink("nothing", in_project(".hopyard")), 0);
    refused("/.hopyard' is a symbolic link and is not followed");
}

static int find_refused(void *arg)
{
    hy_cleanup_free char *url = NULL;
    struct hy_store *s = NULL;

    CHECK(become_nobody() == 0);
    CHECK(hy_store_open(project, HY_STORE_READ, &s, &err) == -EPERM && strstr(err.text, arg));
    CHECK(hy_store_open(project, HY_STORE_WRITE, &s, &err) == -EPERM && strstr(err.text, arg));
    CHECK(hy_store_url_of_local_dir(project, &url, &err) == -EPERM && strstr(err.text, arg));
    return 0;
}

HY_TEST_WITH(test_what_belongs_to_another_user_is_refused_but_root_may_use_it, new_project, no_project)
{
    static const char *const names[] = {".hopyard/store.db", ".hopyard/store.db-wal", ".hopyard/url",
                                        ".hopyard/store.lock", ".hopyard/run-7.log"};
    int64_t run;
    struct hy_store *s;

    hy_need_root("to become another user");
    assert_int_equal(chmod(project, 01777), 0); /* as /tmp is: somebody else was there first */
    hy_store_close(store_with_run(true, &run));
    assert_int_equal(chmod(in_project(".hopyard"), 0755), 0);
    assert_int_equal(child_ends(start_child(find_refused, (void *)(uintptr_t)"' belongs to another user (user ID 0)")),
                     0);
    for (size_t i = 0; i < HY_COUNT(names); i++) {
        char *path = in_project(names[i]);

        hand_over(0700);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(child_ends(start_child(find_refused, (void *)(uintptr_t)"belongs to another user")), 0);
        unlink(in_project(".hopyard/url"));
    }
    hand_over(0700);
    s = open_store(HY_STORE_WRITE);
    close(hy_store_run_lock(s, run, &err));
    hy_store_close(s);
    assert_int_equal(child_ends(start_child(read_as_nobody, &(int){0})), 0); /* root has left nothing of its own */
}

/* ---- places ---------------------------------------------------------------------- */

HY_TEST_WITH(test_a_store_on_a_local_disk_lies_in_the_project_and_out_of_git, new_project, no_project)
{
    hy_cleanup_buf struct hy_buf b;
    struct hy_store *s = open_store(HY_STORE_WRITE);

    hy_buf_init(&b, 100);
    assert_string_equal(hy_store_dir_path(s), in_project(".hopyard"));
    assert_int_equal(hy_store_is_remote(s), 0);
    assert_int_equal(hy_file_read(in_project(".hopyard/.gitignore"), &b), 0);
    assert_string_equal(hy_buf_cstr(&b), "*\n");
    hy_store_close(s);
}

HY_TEST_WITH(test_a_project_on_a_network_has_its_store_in_the_state_directory, new_project, no_project)
{
    static const char *const types[] = {"0x6969", "0xff534d42", "0x65735546", "0x01021997"};
    hy_cleanup_buf struct hy_buf b;
    char folder[200], pretend[200], named[300];
    struct hy_store *s = NULL;
    int64_t run;

    hy_buf_init(&b, 1000);
    assert_int_equal(mkdir(in_project("p"), 0755), 0);
    setenv("XDG_STATE_HOME", in_project("state"), 1);
    for (size_t i = 0; i < HY_COUNT(types); i++) {
        snprintf(pretend, sizeof pretend, "%s:%s", types[i], in_project("p"));
        setenv("HOPYARD_TEST_FS_TYPE", pretend, 1);
        OK(hy_store_open(in_project("p"), HY_STORE_WRITE, &s, &err));
        assert_int_equal(hy_store_is_remote(s), 1);
        snprintf(folder, sizeof folder, "%s", hy_store_dir_path(s));
        assert_memory_equal(folder, in_project("state/hopyard/"), strlen(in_project("state/hopyard/")));
        assert_int_equal(access(in_project("p/.hopyard"), F_OK), -1);
        OK(add_run(s, NULL, (int64_t)i + 1, true, &run));
        OK(hy_store_commit(s, &err));
        hy_store_close(s);
        OK(hy_store_open(in_project("p/../p/"), HY_STORE_READ, &s, &err));
        assert_string_equal(hy_store_dir_path(s), folder);
        hy_store_close(s);
    }
    snprintf(named, sizeof named, "%s/project", folder);
    assert_int_equal(hy_file_read(named, &b), 0);
    assert_int_equal(b.len, strlen(in_project("p")) + 1);
    assert_memory_equal(hy_buf_bytes(&b), in_project("p"), b.len - 1);
    put_file(named, "/elsewhere\n", 11);
    FAILS(hy_store_open(in_project("p"), HY_STORE_WRITE, &s, &err), -EEXIST, "belongs to another project");
    setenv("HOPYARD_TEST_FS_TYPE", "0x6969", 1); /* everywhere */
    FAILS(hy_store_open(in_project("p"), HY_STORE_WRITE, &s, &err), -ENOTSUP,
          "set XDG_STATE_HOME to a directory on a local disk");
}

/* ---- one driver per run ---------------------------------------------------------- */

static int hold_lock(void *arg)
{
    int *fds = arg;
    struct hy_store *s = NULL;
    char c = 'x';

    CHECK(hy_store_open(project, HY_STORE_READ, &s, &err) == 0);
    CHECK(hy_store_run_lock(s, 1, &err) >= 0);
    CHECK(write(fds[1], &c, 1) == 1);
    for (;;)
        pause();
}

HY_TEST_WITH(test_a_run_has_one_driver_and_its_death_frees_the_lock, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);
    char c, named[64];
    int fds[2], lock;
    pid_t pid;

    assert_int_equal(hy_store_run_alive(s, run), 0);
    assert_int_equal(access(in_project(".hopyard/run-1.lock"), F_OK), -1); /* asking makes nothing */
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = start_child(hold_lock, fds);
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(hy_store_run_alive(s, run), 1);
    snprintf(named, sizeof named, "run 1 has a driver already (process %d)", (int)pid);
    FAILS(hy_store_run_lock(s, run, &err), -EBUSY, named);
    kill(pid, SIGKILL);
    child_ends(pid);
    assert_int_equal(hy_store_run_alive(s, run), 0);
    lock = hy_store_run_lock(s, run, &err);
    assert_true(lock >= 0);
    assert_int_equal(hy_store_run_alive(s, run), 1); /* seen from the same process too */
    FAILS(hy_store_run_lock(s, run, &err), -EBUSY, "has a driver already");
    assert_int_equal(hy_store_run_alive(s, run), 1); /* and asking did not drop it */
    close(lock);
    assert_int_equal(hy_store_run_alive(s, run), 0);
    close(fds[0]);
    close(fds[1]);
    hy_store_close(s);
}
