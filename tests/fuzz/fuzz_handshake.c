/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake, on both ends: arbitrary bytes in pieces of any size never authenticate without the key, and never more
 * bytes are consumed than requested. The first byte selects the role and the size of the pieces.
 */
#include <stdlib.h>

#include "collective/mesh/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t key[HY_HANDSHAKE_KEY] = "a key that no stranger has";
static const uint8_t nonce[HY_HANDSHAKE_NONCE] = "a nonce of ours";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_handshake h;
    size_t piece;
    int rc = 0;

    if (size == 0)
        return 0;
    if (data[0] & 1)
        hy_handshake_dial(&h, key, 3, 8, 1, 2, nonce);
    else
        hy_handshake_accept(&h, key, 1, 8, 4, nonce);
    piece = 1 + data[0] / 2;
    data++;
    size--;
    while (rc == 0 && size) {
        size_t n = hy_handshake_needed(&h);

        n = n < piece ? n : piece;
        n = n < size ? n : size;
        if (n == 0)
            abort(); /* it continues, but needs no bytes */
        h.out_size = 0;
        rc = hy_handshake_take(&h, data, n);
        data += n;
        size -= n;
    }
    if (rc > 0 || h.out_size > sizeof h.out)
        abort();
    return 0;
}
