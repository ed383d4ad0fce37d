/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few lines at the bottom of a terminal that are drawn again and again.
 *
 * What stood above stays; one write per frame, inside a synchronized update,
 * so that nothing flickers. The cursor is hidden and typed keys are not
 * echoed until hy_screen_close.
 */
#ifndef HY_CLI_SCREEN_H
#define HY_CLI_SCREEN_H

#include <termios.h>

#include "view/view.h"

#define HY_SCREEN_ROWS 512 /* no frame is higher */

struct hy_screen {
    int fd;                      /* private: where it is drawn */
    int keys;                    /* read-only: where keys come from; -1: nowhere */
    bool open, keys_owned;       /* private */
    struct termios before;       /* private: how the terminal was */
    bool changed;                /* private: `before` is to be restored */
    int columns[HY_SCREEN_ROWS]; /* private: how wide the lines of the last frame are */
    int rows;                    /* private: how many there are */
};

/* Takes hold of the terminal `fd`; keys come from standard input or /dev/tty. */
void hy_screen_open(struct hy_screen *s, int fd);
/* Wipes the lines and restores everything. Harmless when it is not open. */
void hy_screen_close(struct hy_screen *s);
/* Draws the lines in `frame` over the last ones. Nothing while another process
 * has the terminal. 0 or -Exxx. */
int hy_screen_draw(struct hy_screen *s, struct hy_out *frame);
/* Puts lines above the frame that stay there, however many. Draw again after it. */
int hy_screen_above(struct hy_screen *s, struct hy_out *lines);
/* One key, or 0 when none was hit. */
int hy_screen_key(struct hy_screen *s);

/*
 * The bytes that turn the last frame (rows of those columns) into the new one.
 * Pure; hy_screen_draw writes them. `lines` ends with a newline or is empty.
 */
void hy_screen_compose(struct hy_screen *s, const char *lines, size_t n, int width, struct hy_out *ret);

#endif
