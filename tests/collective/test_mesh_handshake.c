/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and the handshake, without sockets. */
#include <errno.h>

#include "support.h"

#include "collective/mesh/handshake.h"
#include "collective/mesh/sha256.h"

#define SHAKE_CHANNELS 4

static void hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

static void assert_sha256(const void *bytes, size_t n, size_t piece, const char *expected)
{
    uint8_t digest[HY_SHA256_SIZE];
    char text[2 * HY_SHA256_SIZE + 1];
    struct hy_sha256 s;

    hy_sha256_init(&s);
    for (size_t at = 0; at < n; at += piece)
        hy_sha256_add(&s, (const char *)bytes + at, n - at < piece ? n - at : piece);
    hy_sha256_end(&s, digest);
    hex(digest, sizeof digest, text);
    assert_string_equal(text, expected);
}

/* FIPS 180-4's examples, and a million times "a". */
HY_TEST(test_sha256_matches_the_test_vectors)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static char million[1000000];

    memset(million, 'a', sizeof million);
    assert_sha256("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha256("abc", 3, 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha256(two_blocks, 56, 5, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_sha256(million, sizeof million, 64, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    assert_sha256(million, sizeof million, 1001, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void assert_hmac(const void *key, size_t key_size, const char *message, size_t n, const char *expected)
{
    uint8_t mac[HY_SHA256_SIZE];
    char text[2 * HY_SHA256_SIZE + 1];

    hy_hmac_sha256(key, key_size, message, n, mac);
    hex(mac, sizeof mac, text);
    assert_string_equal(text, expected);
}

/* RFC 4231, cases 1, 2, 3 and 6. */
HY_TEST(test_hmac_matches_the_test_vectors)
{
    uint8_t key[131], dd[50];

    memset(key, 0x0b, 20);
    assert_hmac(key, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    assert_hmac("Jefe", 4, "what do ya want for nothing?", 28,
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(dd, 0xdd, sizeof dd);
    assert_hmac(key, 20, (char *)dd, sizeof dd, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    assert_hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* ---- two ends ------------------------------------------------------------------------- */

struct ends {
    uint8_t keys[2][HY_HANDSHAKE_KEY];
    struct hy_handshake dialer, acceptor;
};

static void ends_init(struct ends *e)
{
    static const uint8_t nonce[2][HY_HANDSHAKE_NONCE] = {{1}, {2}};

    memset(e->keys, 5, sizeof e->keys);
    hy_handshake_dial(&e->dialer, e->keys[0], 3, 8, 1, 2, nonce[0]);
    hy_handshake_accept(&e->acceptor, e->keys[1], 1, 8, SHAKE_CHANNELS, nonce[1]);
}

/* Moves the output of one end to the other, `piece` bytes at a time; returns the last result. */
static int pass(struct hy_handshake *from, struct hy_handshake *to, size_t piece)
{
    int rc = 0;

    for (size_t at = 0; at < from->out_size && rc == 0;) {
        size_t n = from->out_size - at < piece ? from->out_size - at : piece;

        if (n > hy_handshake_needed(to))
            n = hy_handshake_needed(to);
        if (n == 0)
            return -EMSGSIZE;
        rc = hy_handshake_take(to, from->out + at, n);
        at += n;
    }
    from->out_size = 0;
    return rc;
}

HY_TEST(test_two_ends_with_the_same_key_authenticate)
{
    for (size_t piece = 1; piece <= 70; piece++) {
        struct ends e;

        ends_init(&e);
        assert_int_equal(pass(&e.dialer, &e.acceptor, piece), 0);
        assert_int_equal(e.acceptor.peer, 3);
        assert_int_equal(e.acceptor.channel, 2);
        assert_int_equal(pass(&e.acceptor, &e.dialer, piece), 1);
        assert_int_equal(pass(&e.dialer, &e.acceptor, piece), 1);
        assert_int_equal(hy_handshake_needed(&e.dialer), 0);
        assert_int_equal(hy_handshake_needed(&e.acceptor), 0);
    }
}

HY_TEST(test_a_different_key_is_detected_by_both_ends)
{
    uint8_t proof[HY_PROOF_SIZE] = {0};
    struct ends e;

    ends_init(&e);
    e.keys[1][31] ^= 1;
    assert_int_equal(pass(&e.dialer, &e.acceptor, 100), 0);
    assert_int_equal(pass(&e.acceptor, &e.dialer, 100), -EACCES);
    assert_int_equal(e.dialer.out_size, 0); /* no proof is sent to a peer that is not authenticated */
    assert_int_equal(hy_handshake_take(&e.acceptor, proof, sizeof proof), -EACCES);
}

/* A change of any bit in transit makes the handshake fail. */
HY_TEST(test_any_changed_byte_of_a_handshake_is_detected)
{
    for (size_t bit = 0; bit < 8 * (HY_HELLO_SIZE + HY_CHALLENGE_SIZE + HY_PROOF_SIZE); bit++) {
        size_t at = bit / 8;
        struct ends e;
        int rc;

        ends_init(&e);
        if (at < HY_HELLO_SIZE)
            e.dialer.out[at] ^= (uint8_t)(1 << bit % 8);
        rc = pass(&e.dialer, &e.acceptor, 100);
        if (rc == 0 && at >= HY_HELLO_SIZE && at < HY_HELLO_SIZE + HY_CHALLENGE_SIZE)
            e.acceptor.out[at - HY_HELLO_SIZE] ^= (uint8_t)(1 << bit % 8);
        if (rc == 0)
            rc = pass(&e.acceptor, &e.dialer, 100);
        if (rc == 1 && at >= HY_HELLO_SIZE + HY_CHALLENGE_SIZE)
            e.dialer.out[at - HY_HELLO_SIZE - HY_CHALLENGE_SIZE] ^= (uint8_t)(1 << bit % 8);
        if (rc == 1)
            rc = pass(&e.dialer, &e.acceptor, 100);
        assert_true(rc == -EACCES || rc == -EPROTO);
    }
}

static int send_hello(uint32_t from, uint32_t to, uint32_t size, uint32_t channel)
{
    static const uint8_t nonce[HY_HANDSHAKE_NONCE] = {1};
    struct ends e;

    ends_init(&e);
    hy_handshake_dial(&e.dialer, e.keys[0], from, size, to, channel, nonce);
    return pass(&e.dialer, &e.acceptor, 100);
}

HY_TEST(test_a_hello_for_another_rank_is_refused)
{
    assert_int_equal(send_hello(3, 1, 8, 0), 0);
    assert_int_equal(send_hello(3, 2, 8, 0), -EPROTO);           /* this is rank 1 */
    assert_int_equal(send_hello(3, 1, 9, 0), -EPROTO);           /* of 8 */
    assert_int_equal(send_hello(0, 1, 8, 0), -EPROTO);           /* a lower rank does not dial */
    assert_int_equal(send_hello(1, 1, 8, 0), -EPROTO);
    assert_int_equal(send_hello(8, 1, 8, 0), -EPROTO);
    assert_int_equal(send_hello(3, 1, 8, SHAKE_CHANNELS), -EPROTO);
    assert_int_equal(send_hello(UINT32_MAX, 1, 8, 0), -EPROTO);
}

HY_TEST(test_garbage_is_rejected_by_its_first_byte)
{
    struct ends e;

    ends_init(&e);
    assert_int_equal(hy_handshake_take(&e.acceptor, (const uint8_t *)"G", 1), -EPROTO);
}

/* A recorded handshake is rejected by another acceptor, and by the same one. */
HY_TEST(test_a_handshake_cannot_be_replayed)
{
    static const uint8_t fresh[HY_HANDSHAKE_NONCE] = {9};
    uint8_t hello[HY_HELLO_SIZE], proof[HY_PROOF_SIZE];
    struct ends e;

    ends_init(&e);
    memcpy(hello, e.dialer.out, sizeof hello);
    assert_int_equal(pass(&e.dialer, &e.acceptor, 100), 0);
    assert_int_equal(pass(&e.acceptor, &e.dialer, 100), 1);
    memcpy(proof, e.dialer.out, sizeof proof);
    hy_handshake_accept(&e.acceptor, e.keys[1], 1, 8, SHAKE_CHANNELS, fresh);
    assert_int_equal(hy_handshake_take(&e.acceptor, hello, sizeof hello), 0);
    assert_int_equal(hy_handshake_take(&e.acceptor, proof, sizeof proof), -EACCES);
}
