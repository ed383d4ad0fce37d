/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Challenges and wrapped messages of a DIGEST-MD5 server: without the password no
 * challenge authenticates it, and no message is accepted.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "hdfs/security/sasl_digest_md5.h"
#include "hdfs/security/sasl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_challenge(const uint8_t *data, size_t size)
{
    struct hy_hdfs_digest_challenge c;

    if (hy_hdfs_digest_parse(data, size, &c) < 0)
        return;
    check(strlen(c.realm) < HY_HDFS_DIGEST_TEXT_MAX && strlen(c.nonce) < HY_HDFS_DIGEST_TEXT_MAX &&
          strlen(c.rspauth) < 33);
    check(c.qops <= 7 && c.max <= 0xffffff);
}

static void check_exchange(const uint8_t *data, size_t size)
{
    const struct hy_hdfs_digest_login login = {
        .user = "u", .password = "p", .protocol = "hdfs", .server = "0", .nonce = "n"};
    const struct hy_hdfs_qops qops = {.all = {HY_HDFS_QOP_PRIVACY, HY_HDFS_QOP_INTEGRITY, HY_HDFS_QOP_AUTH},
                                      .count = 3};
    struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &qops);
    struct hy_buf response;
    struct hy_err err = {0};
    uint8_t *piece = malloc(size ? size : 1);

    check(s && piece);
    hy_buf_init(&response, 1 << 20);
    if (hy_hdfs_sasl_step(s, data, size, &response, &err) < 0)
        check(err.code < 0 && err.text[0]);
    else
        check(hy_hdfs_sasl_qop(s) != 0 &&
              hy_hdfs_sasl_step(s, data, size, &response, &err) < 0); /* a challenge is not a proof */
    check(!hy_hdfs_sasl_is_done(s));
    if (size)
        memcpy(piece, data, size);
    check(hy_hdfs_sasl_unwrap(s, piece, size) < 0);
    hy_buf_done(&response);
    hy_hdfs_sasl_free(s);
    free(piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_challenge(data, size);
    check_exchange(data, size);
    return 0;
}
