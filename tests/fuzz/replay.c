/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of its corpus, in builds without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *folder, const char *name)
{
    static uint8_t bytes[1 << 20];
    char path[4096];
    uint8_t *exact;
    size_t n;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "rbe");
    if (!f) {
        perror(path);
        return -1;
    }
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    exact = malloc(n ? n : 1); /* of the exact size, so that ASan detects an overflow */
    if (!exact)
        return -1;
    for (size_t i = 0; i < n; i++)
        exact[i] = bytes[i];
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    struct dirent *e;
    int count = 0, bad = 0;

    if (!d) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
        return 2;
    }
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') {
            bad |= replay(argv[1], e->d_name);
            count++;
        }
    closedir(d);
    printf("%d inputs replayed\n", count);
    return bad || count == 0;
}
