/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame is N lines; the cursor stays at the end of the last one. To draw the
 * next frame, the cursor moves up to the first line; each line is written and the
 * rest of its row erased, and finally everything below. A terminal that became
 * narrower has wrapped the lines of the last frame: the widths are kept to
 * compute the number of rows.
 */
#include "cli/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"

#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define BEGIN_UPDATE "\033[?2026h"
#define END_UPDATE "\033[?2026l"
#define ERASE_LINE "\033[K"
#define ERASE_BELOW "\033[J"

static bool in_foreground(int fd)
{
    pid_t group = tcgetpgrp(fd);

    return group < 0 || group == getpgrp();
}

static void open_keys(struct hy_screen *s)
{
    s->keys = STDIN_FILENO;
    if (!isatty(STDIN_FILENO)) {
        s->keys = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
        s->keys_owned = s->keys >= 0;
    }
}

static void set_keys(struct hy_screen *s)
{
    struct termios silent;

    if (s->keys < 0 || !in_foreground(s->keys) || tcgetattr(s->keys, &s->before) < 0)
        return;
    silent = s->before;
    silent.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    silent.c_cc[VMIN] = 0;
    silent.c_cc[VTIME] = 0;
    s->changed = tcsetattr(s->keys, TCSADRAIN, &silent) == 0;
}

void hy_screen_open(struct hy_screen *s, int fd)
{
    if (s->open)
        return;
    *s = (struct hy_screen){.fd = fd, .keys = -1, .open = true};
    open_keys(s);
    set_keys(s);
}

static int columns_of(const char *line, size_t n)
{
    int columns = 0;

    /* Our lines contain only printable text and colors, ESC [ … m. */
    while (n) {
        const char *escape = memchr(line, '\033', n), *m;
        size_t text = escape ? (size_t)(escape - line) : n;

        columns += hy_columns(line, text);
        if (!escape)
            break;
        m = memchr(escape, 'm', n - text);
        if (!m)
            break;
        n -= (size_t)(m + 1 - line);
        line = m + 1;
    }
    return columns;
}

/* The distance to the first row of the last frame. */
static int rows_above(const struct hy_screen *s, int width)
{
    int rows = 0;

    for (int i = 0; i < s->rows; i++)
        rows += width > 0 && s->columns[i] > width ? (s->columns[i] + width - 1) / width : 1;
    return rows ? rows - 1 : 0;
}

void hy_screen_compose(struct hy_screen *s, const char *lines, size_t n, int width, struct hy_out *ret)
{
    int up = rows_above(s, width);

    hy_out_str(ret, BEGIN_UPDATE HIDE_CURSOR "\r");
    if (up)
        hy_outf(ret, "\033[%dA", up);
    s->rows = 0;
    while (n && s->rows < HY_SCREEN_ROWS) {
        const char *newline = memchr(lines, '\n', n);
        size_t len = newline ? (size_t)(newline - lines) : n;

        if (s->rows)
            hy_out_str(ret, "\n");
        hy_out_bytes(ret, lines, len);
        hy_out_str(ret, ERASE_LINE);
        s->columns[s->rows++] = columns_of(lines, len);
        n -= newline ? len + 1 : len;
        lines += newline ? len + 1 : len;
    }
    hy_out_str(ret, ERASE_BELOW END_UPDATE);
}

static int compose_and_write(struct hy_screen *s, struct hy_out *lines, const char *before, const char *after)
{
    hy_cleanup_out struct hy_out bytes = {0};
    struct hy_style style;

    if (lines->rc < 0)
        return lines->rc;
    hy_style_of(s->fd, &style);
    hy_out_init(&bytes, &style);
    hy_out_str(&bytes, before);
    hy_screen_compose(s, (const char *)hy_buf_bytes(&lines->buf), lines->buf.len, style.width, &bytes);
    hy_out_str(&bytes, after);
    return hy_out_flush(&bytes, s->fd);
}

int hy_screen_draw(struct hy_screen *s, struct hy_out *frame)
{
    if (!s->open || !in_foreground(s->fd))
        return frame->rc;
    return compose_and_write(s, frame, "", "");
}

int hy_screen_above(struct hy_screen *s, struct hy_out *lines)
{
    hy_cleanup_out struct hy_out nothing = {0};
    const char *text = lines->rc < 0 ? NULL : hy_buf_cstr(&lines->buf);

    hy_out_init(&nothing, &(struct hy_style){0});
    if (!text)
        return lines->rc < 0 ? lines->rc : -ENOMEM;
    /* The frame is erased, these lines stay; the next frame starts below them. */
    return compose_and_write(s, &nothing, "", text);
}

void hy_screen_close(struct hy_screen *s)
{
    hy_cleanup_out struct hy_out nothing = {0};

    if (!s->open)
        return;
    hy_out_init(&nothing, &(struct hy_style){0});
    /* Erase the frame and show the cursor; errors of a closed terminal do not matter. */
    if (in_foreground(s->fd) && compose_and_write(s, &nothing, "", SHOW_CURSOR) < 0)
        errno = 0;
    if (s->changed)
        tcsetattr(s->keys, TCSADRAIN, &s->before);
    if (s->keys_owned)
        hy_close_at(&s->keys);
    *s = (struct hy_screen){.keys = -1};
}

int hy_screen_key(struct hy_screen *s)
{
    unsigned char key;

    return s->keys >= 0 && s->changed && read(s->keys, &key, 1) == 1 ? key : 0;
}
