/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels against numbers.h, and the wide kernels against the plain ones. */
#include "support.h"

#include "collective/numbers/kernels.h"
#include "collective/numbers/reduce.h"
#include "numbers.h"

#define SOURCES 5
#define LONGEST 5000
#define ROOM ((LONGEST + 8) * 8)

static const enum hy_reduce ops[] = {HY_SUM, HY_AVERAGE, HY_MIN, HY_MAX, HY_PRODUCT};
#define OPS (sizeof ops / sizeof ops[0])

static char room[SOURCES][ROOM], expected[ROOM], out[ROOM], out2[ROOM];

static void fill(struct hy_rng *rng, enum hy_type type, const void **sources, size_t shift)
{
    for (size_t s = 0; s < SOURCES; s++) {
        sources[s] = room[s] + (shift ? (s + shift) % 8 : 0);
        numbers_random(rng, type, (void *)sources[s], LONGEST);
    }
}

static void check(enum hy_type type, enum hy_reduce op, const void *const *sources, size_t source_count, size_t count,
                  char *to)
{
    const struct hy_kernels *wide = hy_kernels_wide();

    number_reduce(expected, sources, source_count, count, type, op);
    hy_reduce_by(&hy_kernels_plain, to, sources, source_count, count, type, op);
    if (!numbers_same(type, to, expected, count))
        fail_msg("plain %s of %zu times %zu %s", hy_reduce_name(op), source_count, count, hy_type_name(type));
    if (!wide)
        return;
    hy_reduce_by(wide, to, sources, source_count, count, type, op);
    if (!numbers_same(type, to, expected, count))
        fail_msg("wide %s of %zu times %zu %s", hy_reduce_name(op), source_count, count, hy_type_name(type));
}

HY_TEST(test_every_type_and_operation)
{
    const void *sources[SOURCES];
    struct hy_rng rng;

    hy_rng_seed(&rng, 1, 0);
    for (enum hy_type type = 0; type < HY_TYPES; type++) {
        fill(&rng, type, sources, 0);
        for (size_t o = 0; o < OPS; o++) {
            for (size_t count = 0; count <= 100; count++)
                check(type, ops[o], sources, 2, count, out);
            for (size_t n = 1; n <= SOURCES; n++)
                check(type, ops[o], sources, n, n % 2 ? LONGEST : LONGEST - 977, out);
        }
    }
}

HY_TEST(test_buffers_need_no_alignment)
{
    const void *sources[SOURCES];
    struct hy_rng rng;

    hy_rng_seed(&rng, 2, 0);
    for (enum hy_type type = 0; type < HY_TYPES; type++)
        for (size_t shift = 1; shift < 8; shift += 3) {
            fill(&rng, type, sources, shift);
            for (size_t o = 0; o < OPS; o++) {
                check(type, ops[o], sources, 2, 61, out + shift);
                check(type, ops[o], sources, SOURCES, 1031, out + shift);
            }
        }
}

/* `out` may be any of the sources, the last one too, over more than one block. */
HY_TEST(test_the_output_may_be_a_source)
{
    const void *sources[SOURCES];
    char saved[ROOM];
    struct hy_rng rng;

    hy_rng_seed(&rng, 3, 0);
    for (enum hy_type type = 0; type < HY_TYPES; type++)
        for (size_t n = 1; n <= SOURCES; n++)
            for (size_t which = 0; which < n; which++) {
                fill(&rng, type, sources, 0);
                memcpy(saved, room[which], sizeof saved);
                number_reduce(expected, sources, n, LONGEST, type, HY_SUM);
                hy_reduce(room[which], sources, n, LONGEST, type, HY_SUM);
                assert_true(numbers_same(type, room[which], expected, LONGEST));
                memcpy(room[which], saved, sizeof saved);
            }
}

HY_TEST(test_no_byte_past_the_end_is_written)
{
    const void *sources[SOURCES];
    struct hy_rng rng;

    hy_rng_seed(&rng, 4, 0);
    for (enum hy_type type = 0; type < HY_TYPES; type++) {
        fill(&rng, type, sources, 0);
        for (size_t count = 0; count < 70; count++) {
            memset(out, 0x5a, 1024);
            hy_reduce(out, sources, 3, count, type, HY_MAX);
            hy_scale(out, out, count, type, 0.5);
            for (size_t i = count * hy_type_size(type); i < 1024; i++)
                assert_int_equal(out[i], 0x5a);
        }
    }
}

HY_TEST(test_min_and_max_propagate_nan)
{
    static const enum hy_type reals[] = {HY_F16, HY_BF16, HY_F32, HY_F64};
    const void *sources[2] = {room[0], room[1]};

    for (size_t t = 0; t < 4; t++)
        for (size_t which = 0; which < 2; which++)
            for (enum hy_reduce op = HY_MIN; op <= HY_MAX; op++) {
                number_put(reals[t], room[which], 0, (struct number){.real = NAN});
                number_put(reals[t], room[!which], 0, (struct number){.real = 1});
                hy_reduce(out, sources, 2, 1, reals[t], op);
                assert_true(isnan(number_get(reals[t], out, 0).real));
            }
}

/* ---- halves ---- */

static void narrow_both(enum hy_type type, const float *in, size_t count)
{
    const struct hy_kernels *wide = hy_kernels_wide();

    hy_kernels_plain.narrow[type](out, in, count);
    if (wide) {
        wide->narrow[type](out2, in, count);
        assert_memory_equal(out, out2, 2 * count); /* including NaNs */
    }
    for (size_t i = 0; i < count; i++)
        number_put(type, expected, i, (struct number){.real = in[i]});
    assert_true(numbers_same(type, out, expected, count));
}

/* All 65,536 values to float32 and back; values in between round to the nearest, ties to even.
 */
HY_TEST(test_halves_are_rounded_to_nearest_even)
{
    static const enum hy_type halves[] = {HY_F16, HY_BF16};
    const struct hy_kernels *wide = hy_kernels_wide();
    float value[8], other[8], near[4];

    for (size_t t = 0; t < 2; t++)
        for (uint32_t first = 0; first < 0x10000; first += 8) {
            uint16_t bits[8];

            for (uint32_t i = 0; i < 8; i++)
                bits[i] = (uint16_t)(first + i);
            hy_kernels_plain.widen[halves[t]](value, bits, 8);
            if (wide) {
                wide->widen[halves[t]](other, bits, 8);
                assert_memory_equal(value, other, sizeof value);
            }
            narrow_both(halves[t], value, 8);
            for (uint32_t i = 0; i + 1 < 8; i++) {
                near[0] = (float)((double)value[i] / 2 + (double)value[i + 1] / 2); /* halfway between two values */
                near[1] = nextafterf(near[0], INFINITY);
                near[2] = nextafterf(near[0], -INFINITY);
                near[3] = nextafterf(value[i], INFINITY);
                narrow_both(halves[t], near, 4);
            }
        }
}

HY_TEST(test_known_float16_values)
{
    static const struct {
        float f;
        uint16_t half;
    } known[] = {
        {0.0f, 0x0000},     {-0.0f, 0x8000},    {1.0f, 0x3c00},       {-2.0f, 0xc000},     {65504.0f, 0x7bff},
        {65519.0f, 0x7bff}, {65520.0f, 0x7c00}, {1e30f, 0x7c00},      {INFINITY, 0x7c00},  {0x1p-14f, 0x0400},
        {0x1p-24f, 0x0001}, {0x1p-25f, 0x0000}, {0x1.8p-25f, 0x0001}, {-0x1p-25f, 0x8000}, {0.333333f, 0x3555},
        {2049.0f, 0x6800},  {2051.0f, 0x6802},  {1e-40f, 0x0000},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint16_t half;

        hy_kernels_plain.narrow[HY_F16](&half, &known[i].f, 1);
        assert_int_equal(half, known[i].half);
    }
}

/* 2048 + 1 + 1 is 2050; rounded after each step it would stay 2048. */
HY_TEST(test_halves_are_rounded_once)
{
    const void *sources[] = {room[0], room[1], room[1]};

    number_put_small(HY_F16, room[0], 0, 2048);
    number_put_small(HY_F16, room[1], 0, 1);
    hy_reduce(out, sources, 3, 1, HY_F16, HY_SUM);
    assert_true(number_get(HY_F16, out, 0).real == 2050);
}

/* ---- scaling ---- */

HY_TEST(test_plain_and_wide_kernels_scale_identically)
{
    static const double factors[] = {0, 1, 0.5, 1.0 / 3, -2.5, 1e10, 1e-10};
    const struct hy_kernels *wide = hy_kernels_wide();
    struct hy_rng rng;

    hy_rng_seed(&rng, 5, 0);
    for (enum hy_type type = 0; wide && type < HY_TYPES; type++)
        for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
            numbers_random(&rng, type, room[0], LONGEST);
            hy_scale_by(&hy_kernels_plain, out, room[0], LONGEST, type, factors[f]);
            hy_scale_by(wide, room[0], room[0], LONGEST, type, factors[f]);
            assert_true(numbers_same(type, out, room[0], LONGEST));
        }
}

/* As in Horovod: 9 * 0.1f differs from 9 * 0.1 rounded to a float. */
HY_TEST(test_floats_are_scaled_in_their_own_type)
{
    const float narrow = 0x1.ccccce0000000p-1f;
    float f32 = 9.0f;
    double f64 = 9.0, wide = 9.0 * 0.1;

    hy_scale(&f32, &f32, 1, HY_F32, 0.1);
    assert_memory_equal(&f32, &narrow, sizeof f32);
    hy_scale(&f64, &f64, 1, HY_F64, 0.1);
    assert_memory_equal(&f64, &wide, sizeof f64);
    number_put_small(HY_F16, room[0], 0, 10);
    hy_scale(out, room[0], 1, HY_F16, 0.25);
    assert_true(number_get(HY_F16, out, 0).real == 2.5);
}

/* n * (1.0 / n) is less than 1 for n = 49. */
HY_TEST(test_an_average_of_equal_integers_is_that_integer)
{
    for (enum hy_type type = HY_U8; type <= HY_I64; type++)
        for (int n = 1; n <= 1024; n++) {
            int most = hy_type_size(type) == 1 ? 127 : 32767;

            if (n > most)
                continue;
            number_put_small(type, room[0], 0, n * (most / n));
            hy_scale(out, room[0], 1, type, 1.0 / n);
            assert_true(number_get(type, out, 0).whole == most / n);
        }
}

static void scale_i64(int64_t in, double factor, int64_t answer)
{
    hy_scale(&in, &in, 1, HY_I64, factor);
    assert_int_equal(in, answer);
}

HY_TEST(test_scaled_integers_truncate_and_saturate)
{
    int32_t i32 = -7;
    uint8_t u8 = 200;

    hy_scale(&i32, &i32, 1, HY_I32, 0.5);
    assert_int_equal(i32, -3);
    hy_scale(&i32, &i32, 1, HY_I32, 1e30);
    assert_int_equal(i32, INT32_MIN);
    hy_scale(&u8, &u8, 1, HY_U8, 2);
    assert_int_equal(u8, 255);
    hy_scale(&u8, &u8, 1, HY_U8, -1);
    assert_int_equal(u8, 0);
    scale_i64((1ll << 62) + 2, 0.5, (1ll << 61) + 1); /* more bits than a double has */
    scale_i64((1ll << 60) + 1, 1.5, (1ll << 60) + (1ll << 59) + 1);
    scale_i64(INT64_MAX, 2, INT64_MAX);
    scale_i64(INT64_MIN, 2, INT64_MIN);
    scale_i64(-7, 1.0 / 3, -2);
}

HY_TEST(test_type_names_and_sizes)
{
    assert_string_equal(hy_type_name(HY_BF16), "bfloat16");
    assert_string_equal(hy_reduce_name(HY_AVERAGE), "average");
    for (enum hy_type type = 0; type < HY_TYPES; type++)
        assert_true(hy_type_size(type) >= 1 && hy_type_name(type));
    for (enum hy_reduce op = 0; op < HY_REDUCES; op++)
        assert_non_null(hy_reduce_name(op));
}
