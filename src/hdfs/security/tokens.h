/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delegation tokens: what a container has in place of a Kerberos ticket. They
 * lie in the file that $HADOOP_TOKEN_FILE_LOCATION names.
 */
#ifndef HY_HDFS_TOKENS_H
#define HY_HDFS_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "hdfs.pb-c.h"

struct hy_err;

#define HY_TOKEN_OF_HDFS "HDFS_DELEGATION_TOKEN"

struct hy_tokens {
    Hdfs__Token **all;
    size_t count;
};

/* Pure: what a file of tokens has. 0, -EINVAL with a sentence that names `name`, or -ENOMEM. */
int hy_tokens_parse(const uint8_t *bytes, size_t n, const char *name, struct hy_tokens *ret, struct hy_err *err);
/* Those of $HADOOP_TOKEN_FILE_LOCATION; none when it is not set. A file that cannot be read is -EACCES. */
int hy_tokens_load(struct hy_tokens *ret, struct hy_err *err);
void hy_tokens_done(struct hy_tokens *t);
#define hy_cleanup_tokens __attribute__((cleanup(hy_tokens_done)))

/* The token of that kind for that service ("10.0.0.1:8020", "ha-hdfs:NAMESERVICE"), or NULL. */
const Hdfs__Token *hy_tokens_find(const struct hy_tokens *t, const char *kind, const char *service);

#endif
