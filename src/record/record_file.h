/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of records, by any URL that fs.h knows: plain, or compressed by gzip or
 * zlib as TensorFlow has them, which is told by their first bytes.
 */
#ifndef HY_RECORD_FILE_H
#define HY_RECORD_FILE_H

#include <stdint.h>

#include "record/record.h"

struct hy_err;
struct hy_records;

/* Frees it at a failure, too. */
int hy_records_open(const char *url, struct hy_records **ret, struct hy_err *err);
/*
 * The next record, which is there until the next call. 1, or 0 at the end of
 * the file. -EBADMSG with a sentence that says where the file is damaged or
 * breaks off, or that it holds no records; or why it cannot be read.
 */
int hy_records_next(struct hy_records *r, struct hy_record *ret, struct hy_err *err);
/* Where the last one begins: a byte of the file, or of what was compressed. */
uint64_t hy_records_at(const struct hy_records *r);
/* NULL is fine. */
void hy_records_close(struct hy_records *r);

#endif
