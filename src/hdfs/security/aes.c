/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/security/aes.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define PIECE_MAX (1u << 30) /* OpenSSL uses int */

/* Declarations of OpenSSL, unchanged since 1.1. */
typedef struct evp_cipher evp_cipher;
typedef struct evp_context evp_context;

struct hy_hdfs_aes {
    evp_context *context;
};

static struct {
    const evp_cipher *(*aes_128_ctr)(void);
    const evp_cipher *(*aes_192_ctr)(void);
    const evp_cipher *(*aes_256_ctr)(void);
    evp_context *(*new)(void);
    void (*free)(evp_context *c);
    int (*init)(evp_context *c, const evp_cipher *cipher, void *engine, const uint8_t *key, const uint8_t *iv);
    int (*update)(evp_context *c, uint8_t *out, int *ret_n, const uint8_t *in, int n);
} evp;
static bool has_evp;

static bool find_all(void *library)
{
    const struct {
        const char *name;
        void *to;
    } entries[] = {
        {"EVP_aes_128_ctr", &evp.aes_128_ctr}, {"EVP_aes_192_ctr", &evp.aes_192_ctr},
        {"EVP_aes_256_ctr", &evp.aes_256_ctr}, {"EVP_CIPHER_CTX_new", &evp.new},
        {"EVP_CIPHER_CTX_free", &evp.free},    {"EVP_EncryptInit_ex", &evp.init},
        {"EVP_EncryptUpdate", &evp.update},
    };

    for (size_t i = 0; i < HY_COUNT(entries); i++) {
        void *found = dlsym(library, entries[i].name);

        if (!found)
            return false;
        memcpy(entries[i].to, &found, sizeof(found));
    }
    return true;
}

static void load(void)
{
    static const char *const libraries[] = {"libcrypto.so.3", "libcrypto.so.1.1"};

    for (size_t i = 0; i < HY_COUNT(libraries) && !has_evp; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL); /* never closed */

        has_evp = library && find_all(library);
    }
}

static const evp_cipher *cipher_of(size_t key_size)
{
    return key_size == 16   ? evp.aes_128_ctr()
           : key_size == 24 ? evp.aes_192_ctr()
           : key_size == 32 ? evp.aes_256_ctr()
                            : NULL;
}

struct hy_hdfs_aes *hy_hdfs_aes_new(const uint8_t *key, size_t n, const uint8_t iv[HY_HDFS_AES_IV_SIZE],
                                    struct hy_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const evp_cipher *cipher;
    struct hy_hdfs_aes *a;

    pthread_once(&once, load);
    if (!has_evp) {
        hy_err_set(err, -ELIBACC,
                   "AES encryption of data needs the library libcrypto.so.3: install OpenSSL (libssl3),"
                   " or leave dfs.encrypt.data.transfer.cipher.suites empty");
        return NULL;
    }
    cipher = cipher_of(n);
    a = cipher ? hy_calloc(1, sizeof(*a)) : NULL;
    if (a && (a->context = evp.new()) && evp.init(a->context, cipher, NULL, key, iv) == 1)
        return a;
    hy_hdfs_aes_free(a);
    hy_err_set(err, cipher ? -EIO : -EINVAL, "invalid AES key of %zu bytes", n);
    return NULL;
}

void hy_hdfs_aes_free(struct hy_hdfs_aes *a)
{
    if (!a)
        return;
    if (a->context)
        evp.free(a->context);
    free(a);
}

int hy_hdfs_aes_apply(struct hy_hdfs_aes *a, const uint8_t *from, uint8_t *to, size_t n)
{
    while (n) {
        const int part = n < PIECE_MAX ? (int)n : (int)PIECE_MAX;
        int made = 0;

        if (evp.update(a->context, to, &made, from, part) != 1 || made != part)
            return -EIO;
        from += part;
        to += part;
        n -= (size_t)part;
    }
    return 0;
}
