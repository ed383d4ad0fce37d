/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame of a few lines at the bottom of a terminal that is redrawn repeatedly.
 *
 * The text above it stays. Each frame is one write inside a synchronized update,
 * which avoids flicker. The cursor is hidden and keys are not echoed until
 * hy_screen_close.
 */
#ifndef HY_CLI_SCREEN_H
#define HY_CLI_SCREEN_H

#include <termios.h>

#include "view/view.h"

#define HY_SCREEN_ROWS 512 /* maximal height of a frame */

struct hy_screen {
    int fd;                      /* private: the terminal */
    int keys;                    /* read-only: the fd for keys; -1: none */
    bool open, keys_owned;       /* private */
    struct termios before;       /* private: the original state of the terminal */
    bool changed;                /* private: `before` is to be restored */
    int columns[HY_SCREEN_ROWS]; /* private: widths of the lines of the last frame */
    int rows;                    /* private: number of these lines */
};

/* Opens a screen on the terminal `fd`; keys are read from standard input or /dev/tty. */
void hy_screen_open(struct hy_screen *s, int fd);
/* Erases the frame and restores the terminal. Does nothing if not open. */
void hy_screen_close(struct hy_screen *s);
/* Replaces the last frame by the lines in `frame`. Does nothing while this process is in the background. 0 or -Exxx. */
int hy_screen_draw(struct hy_screen *s, struct hy_out *frame);
/* Prints permanent lines above the frame. Redraw the frame afterwards. */
int hy_screen_above(struct hy_screen *s, struct hy_out *lines);
/* A key, or 0 when none was pressed. */
int hy_screen_key(struct hy_screen *s);

/*
 * The bytes that turn the last frame (its rows and columns) into the new one.
 * Pure; hy_screen_draw writes them. `lines` ends with a newline or is empty.
 */
void hy_screen_compose(struct hy_screen *s, const char *lines, size_t n, int width, struct hy_out *ret);

#endif
