/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small neural network that learns to read handwritten digits: 8×8 pixels,
 * one hidden layer, softmax, stochastic gradient descent in mini-batches.
 * Plain C with no libraries, as an example of a program to search over:
 *
 *     hopyard run --grid lr=0.5,0.1,0.02 --grid hidden=16,64 --max accuracy --parallel 2 \
 *         -- ./digits --lr {lr} --hidden {hidden}
 *
 * All that hopyard needs of it are lines like `accuracy=0.97`; the last one counts.
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS = 64, CLASSES = 10, BATCH = 32, MOST_SAMPLES = 10000, MOST_HIDDEN = 4096 };

struct options {
    const char *data;
    double lr;
    int hidden, epochs;
    uint64_t seed;
};

struct sample {
    float pixels[PIXELS]; /* 0 to 1 */
    int label;
};

struct samples {
    struct sample *all;
    int count;
};

/*
 * The weights from a to b lie row by row: those into unit j of the hidden layer
 * are in[j * PIXELS …]. All four are parts of one array, so that what must be
 * done to every number (a step, clearing) is one loop.
 */
struct network {
    int hidden, size;
    float *numbers;                       /* all of them */
    float *in, *in_bias, *out, *out_bias; /* where each part begins */
};

static void die(const char *what, const char *which)
{
    fprintf(stderr, "digits: %s '%s'%s%s\n", what, which, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void *zeros(size_t count, size_t size)
{
    void *p = calloc(count, size);

    if (!p)
        die("out of memory for", "the network");
    return p;
}

/* --- chance: splitmix64, so that a seed means the same everywhere -------- */

static uint64_t chance;

static double uniform(void)
{
    uint64_t z = (chance += 0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

static float gaussian(double deviation)
{
    return (float)(deviation * sqrt(-2 * log(1 - uniform())) * cos(2 * 3.14159265358979 * uniform()));
}

static void shuffle(int *order, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(uniform() * (i + 1)), swap = order[i];

        order[i] = order[j];
        order[j] = swap;
    }
}

/* --- data ---------------------------------------------------------------- */

/* One row: "train" or "test", the label, 64 pixels from 0 to 16. */
static int parse_row(char *row, struct sample *s, int *is_test)
{
    char *rest = row, *field = strsep(&rest, ",");

    *is_test = strcmp(field, "test") == 0;
    if (!*is_test && strcmp(field, "train") != 0)
        return -1;
    for (int i = -1; i < PIXELS; i++) {
        field = strsep(&rest, ",");
        if (!field || !*field)
            return -1;
        if (i < 0)
            s->label = atoi(field);
        else
            s->pixels[i] = (float)atof(field) / 16;
    }
    return s->label >= 0 && s->label < CLASSES ? 0 : -1;
}

static void load(const char *path, struct samples *train, struct samples *test)
{
    char row[4096];
    FILE *f = fopen(path, "r");

    if (!f)
        die("cannot open", path);
    train->all = zeros(MOST_SAMPLES, sizeof *train->all);
    test->all = zeros(MOST_SAMPLES, sizeof *test->all);
    for (int line = 1; fgets(row, sizeof row, f); line++) {
        struct sample s;
        int is_test;

        if (line == 1) /* the names of the columns */
            continue;
        if (parse_row(row, &s, &is_test) < 0) {
            fprintf(stderr, "digits: line %d of '%s' is no digit: set,label,64 pixels\n", line, path);
            exit(1);
        }
        if ((is_test ? test : train)->count < MOST_SAMPLES) {
            struct samples *set = is_test ? test : train;
            set->all[set->count++] = s;
        }
    }
    fclose(f);
    errno = 0;
    if (train->count == 0 || test->count == 0)
        die("too few rows in", path);
}

/* --- the network --------------------------------------------------------- */

static struct network network_new(int hidden)
{
    struct network n = {.hidden = hidden, .size = hidden * (PIXELS + 1) + CLASSES * (hidden + 1)};

    n.numbers = zeros((size_t)n.size, sizeof *n.numbers);
    n.in = n.numbers;
    n.in_bias = n.in + hidden * PIXELS;
    n.out = n.in_bias + hidden;
    n.out_bias = n.out + CLASSES * hidden;
    return n;
}

/* Small random weights: wide enough that units differ, narrow enough that none saturates. */
static void randomize(struct network *n)
{
    for (int i = 0; i < n->hidden * PIXELS; i++)
        n->in[i] = gaussian(sqrt(2.0 / PIXELS));
    for (int i = 0; i < CLASSES * n->hidden; i++)
        n->out[i] = gaussian(sqrt(1.0 / n->hidden));
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;

    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *to, float scale, const float *what, int n)
{
    for (int i = 0; i < n; i++)
        to[i] += scale * what[i];
}

/* What the hidden units answer (in `units`), and how probable each class is. */
static void forward(const struct network *n, const float *pixels, float *units, float *probability)
{
    float most = -INFINITY, sum = 0;

    for (int j = 0; j < n->hidden; j++)
        units[j] = fmaxf(0, n->in_bias[j] + dot(n->in + j * PIXELS, pixels, PIXELS));
    for (int k = 0; k < CLASSES; k++) {
        probability[k] = n->out_bias[k] + dot(n->out + k * n->hidden, units, n->hidden);
        most = fmaxf(most, probability[k]);
    }
    for (int k = 0; k < CLASSES; k++)
        sum += probability[k] = expf(probability[k] - most); /* minus `most`: no overflow */
    for (int k = 0; k < CLASSES; k++)
        probability[k] /= sum;
}

/* Adds one sample's gradient of the loss to `g`; returns the loss. */
static double learn_from(const struct network *n, struct network *g, const struct sample *s, float *units)
{
    float probability[CLASSES], miss[CLASSES];

    forward(n, s->pixels, units, probability);
    for (int k = 0; k < CLASSES; k++) {
        miss[k] = probability[k] - (float)(k == s->label);
        add_scaled(g->out + k * n->hidden, miss[k], units, n->hidden);
        g->out_bias[k] += miss[k];
    }
    for (int j = 0; j < n->hidden; j++) {
        float blame = 0;

        if (units[j] <= 0) /* a silent unit had no part in it */
            continue;
        for (int k = 0; k < CLASSES; k++)
            blame += miss[k] * n->out[k * n->hidden + j];
        add_scaled(g->in + j * PIXELS, blame, s->pixels, PIXELS);
        g->in_bias[j] += blame;
    }
    return -log(fmax(probability[s->label], 1e-12));
}

/* One pass over the samples in random order; returns the mean loss. */
static double train_epoch(struct network *n, struct network *g, const struct samples *train, double lr,
                          int *order, float *units)
{
    double loss = 0;

    shuffle(order, train->count);
    for (int begin = 0; begin < train->count; begin += BATCH) {
        int end = begin + BATCH < train->count ? begin + BATCH : train->count;

        memset(g->numbers, 0, (size_t)g->size * sizeof *g->numbers);
        for (int i = begin; i < end; i++)
            loss += learn_from(n, g, &train->all[order[i]], units);
        add_scaled(n->numbers, (float)(-lr / (end - begin)), g->numbers, n->size);
    }
    return loss / train->count;
}

static double accuracy(const struct network *n, const struct samples *test, float *units)
{
    int right = 0;

    for (int i = 0; i < test->count; i++) {
        float probability[CLASSES];
        int guess = 0;

        forward(n, test->all[i].pixels, units, probability);
        for (int k = 1; k < CLASSES; k++)
            if (probability[k] > probability[guess])
                guess = k;
        right += guess == test->all[i].label;
    }
    return (double)right / test->count;
}

/* --- the program --------------------------------------------------------- */

static double number(const char *name, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);

    errno = 0;
    if (end == text || *end || !(value >= least && value <= most)) {
        fprintf(stderr, "digits: %s must be a number from %g to %g, not '%s'\n", name, least, most, text);
        exit(2);
    }
    return value;
}

static struct options parse_options(int argc, char **argv)
{
    struct options o = {.data = "data/digits.csv", .lr = 0.1, .hidden = 32, .epochs = 60, .seed = 1};

    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(name, "--data") == 0)
            o.data = value;
        else if (strcmp(name, "--lr") == 0)
            o.lr = number(name, value, 0, 1000);
        else if (strcmp(name, "--hidden") == 0)
            o.hidden = (int)number(name, value, 1, MOST_HIDDEN);
        else if (strcmp(name, "--epochs") == 0)
            o.epochs = (int)number(name, value, 1, 1e6);
        else if (strcmp(name, "--seed") == 0)
            o.seed = (uint64_t)number(name, value, 0, 9e15);
        else {
            fprintf(stderr, "usage: digits [--data FILE] [--lr X] [--hidden N] [--epochs N] [--seed N]\n");
            exit(2);
        }
    }
    return o;
}

int main(int argc, char **argv)
{
    struct options o = parse_options(argc, argv);
    struct samples train = {0}, test = {0};
    struct network n = network_new(o.hidden), gradient = network_new(o.hidden);
    float *units = zeros((size_t)o.hidden, sizeof *units);
    int *order;

    load(o.data, &train, &test);
    order = zeros((size_t)train.count, sizeof *order);
    for (int i = 0; i < train.count; i++)
        order[i] = i;
    chance = o.seed;
    randomize(&n);
    setvbuf(stdout, NULL, _IOLBF, 0); /* somebody may be watching */
    for (int epoch = 1; epoch <= o.epochs; epoch++) {
        double loss = train_epoch(&n, &gradient, &train, o.lr, order, units);

        printf("epoch=%d loss=%.4f accuracy=%.4f\n", epoch, loss, accuracy(&n, &test, units));
    }
    printf("accuracy=%.4f\n", accuracy(&n, &test, units));
    free(order);
    free(units);
    free(gradient.numbers);
    free(n.numbers);
    free(test.all);
    free(train.all);
    return 0;
}
