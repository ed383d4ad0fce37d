/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML fragment for notebooks: its content, and the escaping of user text. */
#include "view_fixture.h"

#include "view/live_view.h"

/* The whole fragment; free it. */
static char *html_of(struct hy_live_view *board)
{
    hy_cleanup_out struct hy_out out = {0};
    char *text;

    hy_out_init(&out, &hy_html_style);
    assert_int_equal(hy_live_view_html(board, &out, 1000), 0);
    text = strdup(text_of(&out));
    assert_non_null(text);
    return text;
}

/* The same for an update, which it takes. */
static char *html_after(Hy__Update *u)
{
    struct hy_live_view board = {0};
    char *text;

    assert_int_equal(hy_live_view_take(&board, u, 1000), 0);
    text = html_of(&board);
    hy_live_view_done(&board);
    return text;
}

static void set(char **field, const char *text)
{
    if (**field)
        free(*field);
    *field = copy(text);
}

static size_t count_of(const char *text, const char *what)
{
    size_t n = 0;

    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/*
 * Reads it as a browser would: tags that are ours, each closed in its order,
 * attributes in double quotes, and text without a bare '<', '>' or '&'.
 */
static void assert_well_formed(const char *html)
{
    static const char *const known[] = {"div", "span", "table", "tr", "th", "td", "a"};
    const char *open[16], *at = html;
    size_t depth = 0;

    while (*at) {
        size_t text = strcspn(at, "<>&"), n;
        size_t which = HY_COUNT(known);

        at += text;
        if (!*at)
            break;
        if (*at == '&') {
            assert_true(strncmp(at, "&amp;", 5) == 0 || strncmp(at, "&lt;", 4) == 0 || strncmp(at, "&gt;", 4) == 0 ||
                        strncmp(at, "&quot;", 6) == 0 || strncmp(at, "&#39;", 5) == 0);
            at++;
            continue;
        }
        assert_int_equal(*at, '<');
        at += at[1] == '/' ? 2 : 1;
        n = strspn(at, "abcdefghijklmnopqrstuvwxyz");
        for (size_t i = 0; i < HY_COUNT(known); i++)
            if (strlen(known[i]) == n && strncmp(at, known[i], n) == 0)
                which = i;
        assert_true(which < HY_COUNT(known));
        if (at[-1] == '/') {
            assert_true(depth > 0);
            assert_ptr_equal(open[--depth], known[which]);
        } else {
            assert_true(depth < HY_COUNT(open));
            open[depth++] = known[which];
        }
        at += n;
        while (*at == ' ') { /* name="value" */
            at += 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyz-");
            assert_int_equal(strncmp(at, "=\"", 2), 0);
            at += 2;
            at += strcspn(at, "\"<>");
            assert_int_equal(*at++, '"');
        }
        assert_int_equal(*at++, '>');
    }
    assert_int_equal(depth, 0);
}

static void assert_one_line(const char *html)
{
    size_t n = strlen(html);

    assert_true(n > 0 && html[n - 1] == '\n');
    for (size_t i = 0; i + 1 < n; i++)
        assert_true((unsigned char)html[i] >= ' ' && html[i] != 0x7f);
    assert_null(strstr(html, "\u2028"));
    assert_null(strstr(html, "\xc2\x85"));
}

HY_TEST(test_a_fragment_is_one_line_with_the_texts_of_the_table)
{
    hy_cleanup_free char *html = html_after(update(2, 3));

    assert_one_line(html);
    assert_well_formed(html);
    assert_non_null(strstr(html, "run 3"));
    assert_non_null(strstr(html, " digits"));
    assert_non_null(strstr(html, "● running"));
    assert_non_null(strstr(html, "42s, about 4m05s left"));
    assert_non_null(strstr(html, "1 agent, 2 slots"));
    assert_non_null(strstr(html, "12/100"));
    assert_non_null(strstr(html, "aria-valuenow=\"12.0\""));
    assert_non_null(strstr(html, "width:12.0%"));
    assert_non_null(strstr(html, "accuracy=0.9312"));
    assert_int_equal(count_of(html, "<tr"), 1 + 2 + 3);
    assert_int_equal(count_of(html, "<th"), 7); /* #, state, lr, act, accuracy, time, and messages */
    assert_int_equal(count_of(html, "✗ failed"), 1);
    assert_non_null(strstr(html, "trial 1  "));
    assert_non_null(strstr(html, "exit status 1"));
}

HY_TEST(test_a_fragment_has_no_external_references_and_no_colors)
{
    static const char *const foreign[] = {"<script", "<style", "<img",    "<link",   "url(",
                                          "@import", "http",   "onclick", "color:#", "rgb("};
    Hy__Update *u = update(2, 3);
    hy_cleanup_free char *html = html_after(u);

    for (size_t i = 0; i < HY_COUNT(foreign); i++)
        assert_null(strstr(html, foreign[i]));
    assert_non_null(strstr(html, "currentColor"));
}

#define EVIL "<script>alert(1)</script>\"'&amp;\n\r\t\033[2J\x7f\xff\xc3<b>"
#define TAMED "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;amp;\\n\\r\\t\\x1b[2J\\x7f\\xff\\xc3&lt;b&gt;"

HY_TEST(test_user_text_is_escaped)
{
    Hy__Update *u = update(1, 2);
    hy_cleanup_free char *html = NULL;

    set(&u->name, EVIL);
    set(&u->metric, EVIL);
    set(&u->message, EVIL);
    set(&u->logdir, EVIL);
    set(&u->ended[0]->message, EVIL);
    set(&u->running[0]->state, EVIL);
    set(&u->best->params, "{\"<u>\": \"\\\"><a href='javascript:x'>\"}");
    set(&u->running[0]->agent, EVIL);
    u->agents = 2;
    u->last = true;
    u->n_notes = 1;
    u->notes = calloc(1, sizeof *u->notes);
    assert_non_null(u->notes);
    u->notes[0] = copy(EVIL);
    html = html_after(u);
    assert_one_line(html);
    assert_well_formed(html);
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "<a "));
    assert_true(count_of(html, TAMED) >= 4); /* name, reason, logs, note */
}

HY_TEST(test_user_text_cannot_leave_its_cell)
{
    Hy__Update *u = update(1, 1);
    hy_cleanup_free char *html = NULL;

    set(&u->running[0]->params, "{\"<i>\": \"</td></table><iframe src=x>\", \"b\": 1}");
    html = html_after(u);
    assert_well_formed(html);
    assert_non_null(strstr(html, "&lt;i&gt;</span></th>"));
    assert_non_null(strstr(html, ">&lt;/td&gt;&lt;/table&gt;&lt;iframe src=x&gt;</td>"));
}

HY_TEST(test_invisible_characters_are_escaped)
{
    Hy__Update *u = update(0, 0);
    hy_cleanup_free char *html = NULL;

    set(&u->name, "a\u202eb\u2028c\u2066d\u200fe\xc2\x85"
                  "f grün 中文 😀");
    html = html_after(u);
    assert_one_line(html);
    assert_non_null(strstr(html, "a\\u202eb\\u2028c\\u2066d\\u200fe\\xc2\\x85f grün 中文 😀"));
}

HY_TEST(test_only_a_web_address_becomes_a_link)
{
    static const struct {
        const char *address;
        size_t links;
    } cases[] = {
        {"http://127.0.0.1:41234/", 1}, {"https://h/?a=1&b=\"x\"", 1},
        {"javascript:alert(1)", 0},     {" http://x", 0},
        {"data:text/html,x", 0},        {"", 0},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        Hy__Update *u = update(1, 1);
        hy_cleanup_free char *html = NULL;

        set(&u->tensorboard, cases[i].address);
        html = html_after(u);
        assert_one_line(html);
        assert_well_formed(html);
        assert_int_equal(count_of(html, "<a "), cases[i].links);
        assert_int_equal(count_of(html, "tensorboard  "), *cases[i].address ? 1 : 0);
    }
}

HY_TEST(test_the_bar_is_full_only_when_all_have_ended)
{
    static const struct {
        int64_t total;
        uint64_t done;
        const char *width;
    } cases[] = {{0, 0, "width:100.0%"},
                 {10000, 9998, "width:99.5%"},
                 {10000, 9999, "width:100.0%"},
                 {4, 0, "width:25.0%"},
                 {-1, 5, NULL}};

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        Hy__Update *u = update(0, 0);
        hy_cleanup_free char *html = NULL;

        u->total = cases[i].total;
        u->done = cases[i].done; /* and one has failed */
        html = html_after(u);
        if (cases[i].width)
            assert_non_null(strstr(html, cases[i].width));
        else
            assert_null(strstr(html, "progressbar"));
    }
}

HY_TEST(test_the_fragment_of_a_large_run_is_small)
{
    struct hy_live_view board = {0};
    hy_cleanup_free char *html = NULL;
    char message[20001];

    memset(message, '<', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    for (uint64_t i = 0; i < 300; i++) {
        Hy__Update *u = update(80, 0);

        u->failed = i + 1;
        u->ended[u->n_ended++] = trial(i + 200, "failed", NAN, message);
        assert_int_equal(hy_live_view_take(&board, u, 0), 0);
    }
    html = html_of(&board);
    assert_one_line(html);
    assert_well_formed(html);
    assert_true(strlen(html) < 64 * 1024);
    assert_int_equal(count_of(html, "<tr"), 1 + 20);
    assert_non_null(strstr(html, "and 60 more are running"));
    assert_non_null(strstr(html, "and 295 more have failed"));
    hy_live_view_done(&board);
}

HY_TEST(test_only_the_newest_notes_are_kept_without_duplicates)
{
    struct hy_live_view board = {0};
    hy_cleanup_free char *html = NULL;

    assert_int_equal(hy_live_view_take(&board, update(0, 0), 0), 0);
    for (int i = 0; i < 2 * (HY_LIVE_VIEW_NOTES + 1); i++) {
        char text[20];

        snprintf(text, sizeof text, "note number %d", i / 2);
        hy_live_view_take_note(&board, copy(text));
    }
    html = html_of(&board);
    assert_int_equal(count_of(html, "note number "), HY_LIVE_VIEW_NOTES);
    assert_null(strstr(html, "note number 0"));
    hy_live_view_done(&board);
}

HY_TEST(test_the_last_fragment_contains_the_log_directory)
{
    hy_cleanup_free char *html = html_after(last_update());

    assert_one_line(html);
    assert_well_formed(html);
    assert_non_null(strstr(html, "✓ done"));
    assert_non_null(strstr(html, "100 of 100 trials in 42s"));
    assert_non_null(strstr(html, "/p/Logs/TensorFlow/local-1/1"));
    assert_non_null(strstr(html, "hopyard tensorboard 3"));
    assert_null(strstr(html, "about"));
}

HY_TEST(test_there_is_no_fragment_before_the_first_update)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &hy_html_style);
    assert_int_equal(hy_live_view_html(&board, &out, 0), 0);
    assert_string_equal(text_of(&out), "");
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
