/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake, from both ends: whatever a stranger says, in pieces of any size, it is not believed without the
 * key, and never takes more than it wants. The first byte says who we are and how long the pieces are.
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
            abort(); /* it goes on, but wants nothing */
        h.out_size = 0;
        rc = hy_handshake_take(&h, data, n);
        data += n;
        size -= n;
    }
    if (rc > 0 || h.out_size > sizeof h.out)
        abort();
    return 0;
}
