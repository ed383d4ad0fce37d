/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: generation, derivation, and private key files. */
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"

int hy_key_random(uint8_t key[HY_KEY_SIZE])
{
    return RAND_priv_bytes(key, HY_KEY_SIZE) == 1 ? 0 : -EIO;
}

/* info = "hopyard agent key 1\0" and the identity: separates the keys of different purposes. */
int hy_key_derive(const uint8_t key[HY_KEY_SIZE], const char *identity, uint8_t ret[HY_KEY_SIZE])
{
    static char purpose[] = "hopyard agent key 1";
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)key, HY_KEY_SIZE),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, purpose, sizeof purpose),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)identity, strlen(identity)),
        OSSL_PARAM_construct_end(),
    };
    uint8_t derived[HY_KEY_SIZE];
    int ok = ctx && EVP_KDF_derive(ctx, derived, sizeof derived, params) == 1;

    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    if (ok)
        memcpy(ret, derived, sizeof derived);
    OPENSSL_cleanse(derived, sizeof derived);
    return ok ? 0 : -EIO;
}

int hy_key_write(int dir, const char *path, const uint8_t key[HY_KEY_SIZE], struct hy_err *err)
{
    static const char digits[] = "0123456789abcdef";
    char line[2 * HY_KEY_SIZE + 1];
    int rc;

    for (int i = 0; i < HY_KEY_SIZE; i++) {
        line[2 * i] = digits[key[i] >> 4];
        line[2 * i + 1] = digits[key[i] & 15];
    }
    line[2 * HY_KEY_SIZE] = '\n';
    rc = hy_private_write(dir, path, line, sizeof line, err);
    OPENSSL_cleanse(line, sizeof line);
    return rc;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int parse(const char *line, ssize_t n, uint8_t key[HY_KEY_SIZE])
{
    if (n != 2 * HY_KEY_SIZE && !(n == 2 * HY_KEY_SIZE + 1 && line[n - 1] == '\n'))
        return -EINVAL;
    for (int i = 0; i < HY_KEY_SIZE; i++) {
        int high = digit(line[2 * i]), low = digit(line[2 * i + 1]);

        if (high < 0 || low < 0)
            return -EINVAL;
        key[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* Reads up to the end of the line, which a pipe may deliver in pieces. */
static ssize_t read_line(int fd, char *line, size_t size)
{
    size_t n = 0;

    while (n < size && !memchr(line, '\n', n)) {
        ssize_t got = HY_SYS(read(fd, line + n, size - n));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

static int open_key(const char *path, struct hy_err *err)
{
    hy_cleanup_close int fd = -1;
    struct stat st;

    if (strcmp(path, "-") == 0) {
        fd = HY_SYS(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
        return fd < 0 ? hy_err_sys(err, -errno, "cannot read the key from standard input") : hy_take_fd(fd);
    }
    fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return hy_err_sys(err, -errno, "cannot read the key file '%s'", path);
    if (!S_ISREG(st.st_mode))
        return hy_err_set(err, -EINVAL, "the key file '%s' is not a regular file", path);
    if (st.st_mode & 077)
        return hy_err_set(err, -EPERM, "other users have access to the key file '%s'; run: chmod 600 '%s'", path, path);
    return hy_take_fd(fd);
}

int hy_key_read(const char *path, uint8_t ret[HY_KEY_SIZE], struct hy_err *err)
{
    hy_cleanup_close int fd = open_key(path, err);
    char line[2 * HY_KEY_SIZE + 8];
    uint8_t key[HY_KEY_SIZE];
    ssize_t n;
    int rc;

    if (fd < 0)
        return fd;
    n = read_line(fd, line, sizeof line);
    if (n < 0)
        return hy_err_sys(err, (int)n, "cannot read the key file '%s'", path);
    rc = parse(line, n, key);
    OPENSSL_cleanse(line, sizeof line);
    if (rc == 0)
        memcpy(ret, key, sizeof key);
    OPENSSL_cleanse(key, sizeof key);
    if (rc < 0)
        return hy_err_set(err, rc, "'%s' is not a key file (one line of %d hexadecimal digits)", path, 2 * HY_KEY_SIZE);
    return 0;
}
