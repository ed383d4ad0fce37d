/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delegation tokens, which replace a Kerberos ticket in containers: the file
 * $HADOOP_TOKEN_FILE_LOCATION.
 */
#ifndef HY_HDFS_SECURITY_TOKENS_H
#define HY_HDFS_SECURITY_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "hdfs.pb-c.h"

struct hy_err;

#define HY_HDFS_TOKEN_KIND "HDFS_DELEGATION_TOKEN"

struct hy_hdfs_tokens {
    Hdfs__Token **all;
    size_t count;
};

/* Pure: parses a token file. 0, -EINVAL with a message that names `name`, or -ENOMEM. */
int hy_hdfs_tokens_parse(const uint8_t *bytes, size_t n, const char *name, struct hy_hdfs_tokens *ret,
                         struct hy_err *err);
/* The tokens of $HADOOP_TOKEN_FILE_LOCATION; none when it is not set. -EACCES when the file cannot be read. */
int hy_hdfs_tokens_load(struct hy_hdfs_tokens *ret, struct hy_err *err);
void hy_hdfs_tokens_done(struct hy_hdfs_tokens *t);
#define hy_cleanup_hdfs_tokens __attribute__((cleanup(hy_hdfs_tokens_done)))

/* The token of that kind for that service ("10.0.0.1:8020", "ha-hdfs:NAMESERVICE"), or NULL. */
const Hdfs__Token *hy_hdfs_tokens_find(const struct hy_hdfs_tokens *t, const char *kind, const char *service);

#endif
