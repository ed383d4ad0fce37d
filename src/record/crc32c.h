/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to a CRC-32C; hy_crc32c takes the one that this machine has. */
#ifndef HY_RECORD_CRC32C_H
#define HY_RECORD_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* By tables, on any machine. */
uint32_t hy_crc32c_soft(uint32_t crc, const void *bytes, size_t n);
/* By the processor's own instruction; only where there is one. */
bool hy_crc32c_has_hard(void);
uint32_t hy_crc32c_hard(uint32_t crc, const void *bytes, size_t n);

#endif
