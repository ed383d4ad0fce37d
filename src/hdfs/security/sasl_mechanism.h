/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of SASL mechanisms (sasl_digest_md5.c, sasl_gssapi.c) to sasl.c. */
#ifndef HY_HDFS_SECURITY_SASL_MECHANISM_H
#define HY_HDFS_SECURITY_SASL_MECHANISM_H

#include "hdfs/security/sasl.h"

struct hy_hdfs_sasl_ops {
    int (*step)(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                struct hy_err *err);
    int (*wrap)(struct hy_hdfs_sasl *s, const void *bytes, size_t n, struct hy_buf *out);
    int64_t (*unwrap)(struct hy_hdfs_sasl *s, uint8_t *token, size_t n);
    void (*free)(struct hy_hdfs_sasl *s);
};

/* The first member of each mechanism's struct. */
struct hy_hdfs_sasl {
    const struct hy_hdfs_sasl_ops *ops;
    struct hy_hdfs_qops qops;
    enum hy_hdfs_qop qop;
    size_t wrap_max;
    bool is_done;
};

#define HY_HDFS_SASL_WRAPPED_MAX 0xffffffu /* bytes of a wrapped message: a length of three bytes */

/* Sets the preferred quality that both sides support, or fails. */
int hy_hdfs_sasl_negotiate_qop(struct hy_hdfs_sasl *s, unsigned offered, struct hy_err *err);

#endif
