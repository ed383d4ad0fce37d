/* SPDX-License-Identifier: Apache-2.0 */
/* fs: patterns for names and paths. */
#include "fs_fixture.h"

#include "fs/glob_pattern.h"

/* ---- patterns ---------------------------------------------------------------------- */

HY_TEST(test_patterns_match_names)
{
    static const struct {
        const char *pattern, *yes, *no; /* names, separated by blanks */
    } cases[] = {
        {"part-*", "part- part-0 part-01.csv", ".part- xpart-0"},
        {"*", "a .hidden {", ""},
        {"a?c", "abc a€c a?c", "ac abbc"},
        {"[abc]x", "ax bx cx", "dx x aax"},
        {"[a-c0-9]", "a b c 0 5 9", "d A -"},
        {"[^a-c]", "d € -", "a b c"},
        {"[!a]b", "bb", "ab b"},
        {"[]a]", "] a", "b"},
        {"[a-]", "a -", "b"},
        {"[\\]^]", "] ^", "\\"},
        {"[ä-ü]", "ä ö ü", "a z"},
        {"{a,b}", "a b", "c ab a,b"},
        {"x{,1,2{3,4}*}y", "xy x1y x23y x24zzy", "x2y x13y x"},
        {"{a*,*b}{c,d}", "ac axd bd xbc", "ab cd"},
        {"\\*\\{a\\}", "*{a}", "{a} xa"},
        {"a,b}", "a,b}", "a b"},
        {"a\\", "a\\", "a"},
        {"*a*b*", "ab xaxbx aab", "ba a b"},
        {"", "", "a"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++)
        for (int yes = 0; yes < 2; yes++) {
            char names[100], *rest = names, *name;
            hy_cleanup_glob struct hy_glob *g = NULL;

            assert_int_equal(hy_glob_new(cases[i].pattern, strlen(cases[i].pattern), &g), 0);
            snprintf(names, sizeof names, "%s", yes ? cases[i].yes : cases[i].no);
            while ((name = strtok_r(rest, " ", &rest)))
                if (hy_glob_matches(g, name, strlen(name)) != yes)
                    fail_msg("'%s' and '%s'", cases[i].pattern, name);
        }
}

HY_TEST(test_a_pathological_pattern_takes_no_exponential_time)
{
    char pattern[400] = "", name[200];
    hy_cleanup_glob struct hy_glob *g = NULL;

    for (int i = 0; i < 40; i++)
        strcat(pattern, "{a*,*a}*");
    strcat(pattern, "b");
    memset(name, 'a', sizeof name);
    assert_int_equal(hy_glob_new(pattern, strlen(pattern), &g), 0);
    assert_false(hy_glob_matches(g, name, sizeof name));
}

static int add_url(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *unused)
{
    (void)unused;
    assert_non_null(info->name);
    hy_buf_printf(arg, "%s ", strncmp(url, directory, strlen(directory)) == 0 ? url + strlen(directory) + 1 : url);
    return 0;
}

static void assert_glob(const char *pattern, const char *expected)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    assert_int_equal(hy_fs_glob(at(pattern), add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), expected);
}

static void make_tree(void)
{
    make("2025/01");
    make("2026/01");
    make("2026/02");
    put("2025/01/a.csv", "");
    put("2026/01/a.csv", "");
    put("2026/01/b.txt", "");
    put("2026/02/.hidden", "");
    put("note", "");
    put("st*r", "");
}

HY_TEST_WITH(test_glob_matches_in_any_component_of_a_path, make_directory, remove_directory)
{
    make_tree();
    assert_glob("*/01/*.csv", "2025/01/a.csv 2026/01/a.csv ");
    assert_glob("202[56]/0?/*", "2025/01/a.csv 2026/01/a.csv 2026/01/b.txt 2026/02/.hidden ");
    assert_glob("2026/*/{a,b}.*", "2026/01/a.csv 2026/01/b.txt ");
    assert_glob("{2026/01,2025/*}/a.csv", "2025/01/a.csv 2026/01/a.csv ");
    assert_glob("{2026,2026/0*,*26}", "2026 2026/01 2026/02 "); /* each only once */
    assert_glob("2026/01", "2026/01 ");
    assert_glob("*/", "2025 2026 ");
    assert_glob("n*/x", "");
    assert_glob("note/*", "");
    assert_glob("none*", "");
    assert_glob("none", "");
    assert_glob("none/*/x", "");
    assert_glob("st\\*r", "st*r ");
}

HY_TEST_WITH(test_glob_keeps_relative_paths_and_urls, make_directory, remove_directory)
{
    hy_cleanup_free char *url = NULL, *before = get_current_dir_name();
    hy_cleanup_buf struct hy_buf b;

    make_tree();
    hy_buf_init(&b, 1 << 20);
    assert_int_equal(chdir(directory), 0);
    assert_int_equal(hy_fs_glob("n*", add_url, &b, &err), 0);
    assert_int_equal(hy_fs_glob("./202?/02", add_url, &b, &err), 0);
    assert_int_equal(hy_fs_glob("", add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), "note ./2026/02 ");
    assert_int_equal(chdir(before), 0);
    hy_buf_clear(&b);
    url = hy_asprintf("file://%s/no*", directory);
    assert_int_equal(hy_fs_glob(url, add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b) + strlen(url) - 1, "te ");
    hy_buf_clear(&b);
    assert_int_equal(hy_fs_glob("/tm{p,}/", add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), "/tmp ");
}

HY_TEST_WITH(test_glob_reports_invalid_patterns, make_directory, remove_directory)
{
    hy_cleanup_free char *long_one = hy_calloc(10001, 1);

    memset(long_one, '*', 10000);
    assert_error(hy_fs_glob(at("[a"), add_url, NULL, &err), -EINVAL, "is not closed");
    assert_error(hy_fs_glob(at("{a,b"), add_url, NULL, &err), -EINVAL, "is not closed");
    assert_error(hy_fs_glob(at("[a/b]"), add_url, NULL, &err), -EINVAL, "is not closed");
    assert_error(hy_fs_glob(long_one, add_url, NULL, &err), -ENAMETOOLONG, "10000 characters");
    assert_error(hy_fs_glob("{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}", add_url,
                            NULL, &err),
                 -E2BIG, "too many patterns");
}

static int glob_all(void *arg)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    return hy_fs_glob(at("{2025/01,*}/*"), add_url, &b, arg);
}

HY_TEST_WITH(test_glob_fails_cleanly, make_directory, remove_directory)
{
    make_tree();
    hy_each_fault(HY_SEAM_ALLOC, glob_all, &err);
    hy_each_fault(HY_SEAM_SYS, glob_all, &err);
}
