/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fs/mode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void hy_rights_text(unsigned mode, char text[HY_RIGHTS_TEXT])
{
    static const char letters[] = "rwxrwxrwx";
    static const struct {
        unsigned bit, with; /* `with`: the x bit that it is combined with */
        int at;
        char both, alone;
    } special[] = {{S_ISUID, S_IXUSR, 2, 's', 'S'}, {S_ISGID, S_IXGRP, 5, 's', 'S'}, {S_ISVTX, S_IXOTH, 8, 't', 'T'}};

    for (int i = 0; i < 9; i++)
        text[i] = mode & (0400u >> i) ? letters[i] : '-';
    for (int i = 0; i < 3; i++)
        if (mode & special[i].bit)
            text[special[i].at] = mode & special[i].with ? special[i].both : special[i].alone;
    text[9] = '\0';
}

static int octal(const char *how, unsigned *ret)
{
    char *end;
    unsigned long value = strtoul(how, &end, 8);

    if (*end || value > 07777)
        return -EINVAL;
    *ret = (unsigned)value;
    return 0;
}

/* The bits of u, g, o and a; without any of them all bits. */
static unsigned read_classes(const char **at)
{
    static const char letters[] = "ugoa";
    static const unsigned masks[] = {04700, 02070, 01007, 07777};
    const char *found;
    unsigned classes = 0;

    while (**at && (found = strchr(letters, **at))) {
        classes |= masks[found - letters];
        ++*at;
    }
    return classes ? classes : 07777;
}

/* The bits of r, w, x … for user, group and others. */
static unsigned read_bits(const char **at, unsigned mode, bool is_dir)
{
    static const char letters[] = "rwxst";
    static const unsigned masks[] = {0444, 0222, 0111, 06000, 01000};
    const char *found;
    unsigned bits = 0;

    for (; **at; ++*at) {
        if (**at == 'X') /* for directories and programs only */
            bits |= is_dir || mode & 0111 ? 0111 : 0;
        else if ((found = strchr(letters, **at)))
            bits |= masks[found - letters];
        else
            break;
    }
    return bits;
}

/* "go-w": one change, up to its comma. */
static int change(const char **at, bool is_dir, unsigned *mode)
{
    unsigned classes = read_classes(at), bits;
    const char sign = **at;

    if (!sign || !strchr("+-=", sign))
        return -EINVAL;
    ++*at;
    bits = read_bits(at, *mode, is_dir) & classes;
    if (**at && **at != ',')
        return -EINVAL;
    if (sign == '=')
        *mode &= ~(classes & 0777);
    *mode = sign == '-' ? *mode & ~bits : *mode | bits;
    return 0;
}

int hy_rights_change(const char *how, unsigned mode, bool is_dir, unsigned *ret)
{
    int rc = 0;

    if (*how >= '0' && *how <= '9')
        return octal(how, ret);
    for (;; how++) {
        rc = change(&how, is_dir, &mode);
        if (rc < 0)
            return rc;
        if (!*how)
            break;
    }
    *ret = mode;
    return 0;
}
