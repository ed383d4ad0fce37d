/* SPDX-License-Identifier: Apache-2.0 */
/* The two implementations of CRC-32C; hy_crc32c chooses the one for this machine. */
#ifndef HY_RECORD_CRC32C_H
#define HY_RECORD_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With tables, on any machine. */
uint32_t hy_crc32c_soft(uint32_t crc, const void *bytes, size_t n);
/* With the instruction of the processor, if it has one. */
bool hy_crc32c_has_hard(void);
uint32_t hy_crc32c_hard(uint32_t crc, const void *bytes, size_t n);

#endif
