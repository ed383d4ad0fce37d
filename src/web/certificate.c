/* SPDX-License-Identifier: Apache-2.0 */
#include "web/certificate.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define PEM_FILE_MAX (1u << 20)

/* ---- files --------------------------------------------------------------------------------- */

static int read_pem(const char *path, bool is_secret, struct hy_buf *ret, struct hy_err *err)
{
    const char *what = is_secret ? "private key" : "certificate";
    hy_cleanup_close int fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat st;
    int rc;

    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return hy_err_sys(err, -errno, "cannot read the %s '%s'", what, path);
    if (!S_ISREG(st.st_mode))
        return hy_err_set(err, -EINVAL, "the %s '%s' is not a regular file", what, path);
    if (is_secret && (st.st_mode & 077))
        return hy_err_set(err, -EPERM, "other users have access to the private key '%s'; run: chmod 600 '%s'", path,
                          path);
    if (st.st_size > PEM_FILE_MAX)
        return hy_err_set(err, -EINVAL, "'%s' is too long for a %s", path, what);
    rc = hy_read_all(fd, ret);
    return rc < 0 ? hy_err_sys(err, rc, "cannot read the %s '%s'", what, path) : 0;
}

/* NULL when out of memory. */
static BIO *open_text(struct hy_buf *text)
{
    const char *bytes = hy_buf_cstr(text); /* not NULL for an empty file */

    return bytes ? BIO_new_mem_buf(bytes, (int)text->len) : NULL;
}

static const char *openssl_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return reason ? reason : "unknown error";
}

static int use_chain(SSL_CTX *tls, BIO *pem, const char *path, struct hy_err *err)
{
    X509 *x = PEM_read_bio_X509_AUX(pem, NULL, NULL, NULL);
    bool is_used;

    if (!x)
        return hy_err_set(err, -EINVAL, "'%s' has no valid certificate in PEM format", path);
    is_used = SSL_CTX_use_certificate(tls, x) == 1;
    X509_free(x);
    if (!is_used)
        return hy_err_set(err, -EINVAL, "the certificate '%s' cannot be used: %s", path, openssl_reason());
    while ((x = PEM_read_bio_X509(pem, NULL, NULL, NULL)))
        if (SSL_CTX_add0_chain_cert(tls, x) != 1) {
            X509_free(x);
            return hy_err_set(err, -EINVAL, "the certificate chain '%s' cannot be used: %s", path, openssl_reason());
        }
    if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) /* not the end of the file */
        return hy_err_set(err, -EINVAL, "the certificate chain '%s' is damaged", path);
    ERR_clear_error();
    return 0;
}

static int load_chain(SSL_CTX *tls, const char *path, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf text;
    BIO *pem;
    int rc;

    hy_buf_init(&text, PEM_FILE_MAX + 1);
    rc = read_pem(path, false, &text, err);
    if (rc < 0)
        return rc;
    pem = open_text(&text);
    rc = pem ? use_chain(tls, pem, path, err) : hy_err_oom(err);
    BIO_free(pem);
    return rc;
}

/* OpenSSL asks for the password of an encrypted key. */
static int no_password(char *to, int size, int is_writing, void *was_asked)
{
    (void)to;
    (void)size;
    (void)is_writing;
    *(bool *)was_asked = true;
    return -1;
}

static int use_key(SSL_CTX *tls, BIO *pem, const char *path, const char *cert_path, struct hy_err *err)
{
    bool is_encrypted = false, is_used;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_password, &is_encrypted);

    if (is_encrypted) {
        EVP_PKEY_free(key);
        return hy_err_set(err, -EINVAL,
                          "the private key '%s' is encrypted; write one without a password: openssl pkey -in '%s' "
                          "-out FILE",
                          path, path);
    }
    if (!key)
        return hy_err_set(err, -EINVAL, "'%s' has no valid private key in PEM format", path);
    if (X509_check_private_key(SSL_CTX_get0_certificate(tls), key) != 1) {
        EVP_PKEY_free(key);
        return hy_err_set(err, -EINVAL, "the private key '%s' does not belong to the certificate '%s'", path,
                          cert_path);
    }
    is_used = SSL_CTX_use_PrivateKey(tls, key) == 1;
    EVP_PKEY_free(key);
    return is_used ? 0 : hy_err_set(err, -EINVAL, "the private key '%s' cannot be used: %s", path, openssl_reason());
}

static int load_key(SSL_CTX *tls, const char *path, const char *cert_path, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf text;
    BIO *pem;
    int rc;

    hy_buf_init(&text, PEM_FILE_MAX + 1);
    rc = read_pem(path, true, &text, err);
    if (rc == 0) {
        pem = open_text(&text);
        rc = pem ? use_key(tls, pem, path, cert_path, err) : hy_err_oom(err);
        BIO_free(pem);
    }
    if (text.len)
        OPENSSL_cleanse((void *)(uintptr_t)hy_buf_bytes(&text), text.len);
    return rc;
}

/* ---- the context ------------------------------------------------------------------------------ */

static SSL_CTX *make_context(void)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());

    if (!tls)
        return NULL;
    SSL_CTX_set_security_level(tls, 2);
    SSL_CTX_set_options(tls, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS); /* 34 KB for each idle connection otherwise */
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF); /* browsers keep sessions, as tickets */
    if (SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) && SSL_CTX_set_max_proto_version(tls, TLS1_3_VERSION))
        return tls;
    SSL_CTX_free(tls);
    return NULL;
}

static void warn_if_invalid_now(SSL_CTX *tls, const char *path)
{
    const X509 *x = SSL_CTX_get0_certificate(tls);

    if (X509_cmp_current_time(X509_get0_notAfter(x)) < 0)
        hy_warn("the certificate has expired, and browsers will warn about it: renew it, then send SIGHUP file=%s",
                path);
    else if (X509_cmp_current_time(X509_get0_notBefore(x)) > 0)
        hy_warn("the certificate is not valid yet, and browsers will warn about it file=%s", path);
}

int hy_certificate_load(const char *cert_path, const char *key_path, SSL_CTX **ret, struct hy_err *err)
{
    SSL_CTX *tls = make_context();
    int rc = tls ? load_chain(tls, cert_path, err) : hy_err_oom(err);

    if (rc == 0)
        rc = load_key(tls, key_path, cert_path, err);
    ERR_clear_error();
    if (rc < 0) {
        SSL_CTX_free(tls);
        return rc;
    }
    warn_if_invalid_now(tls, cert_path);
    *ret = tls;
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------ */

bool hy_certificate_has_name(SSL_CTX *tls, const char *name)
{
    X509 *x = SSL_CTX_get0_certificate(tls);

    return X509_check_host(x, name, 0, 0, NULL) == 1 || X509_check_ip_asc(x, name, 0) == 1;
}

/* It is printed, so only characters of host names are accepted; and no wildcard ("*.example"). */
static bool is_host_name(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '.')
            return false;
    return n > 0;
}

bool hy_certificate_first_name(SSL_CTX *tls, char *ret, size_t size)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(SSL_CTX_get0_certificate(tls), NID_subject_alt_name, NULL, NULL);
    bool is_found = false;

    for (int i = 0; i < sk_GENERAL_NAME_num(all) && !is_found; i++) { /* -1 of NULL */
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(all, i);
        const ASN1_STRING *s = g->type == GEN_DNS ? g->d.dNSName : NULL;
        size_t n = s ? (size_t)ASN1_STRING_length(s) : 0;

        is_found = n < size && is_host_name((const char *)ASN1_STRING_get0_data(s), n);
        if (is_found)
            snprintf(ret, size, "%.*s", (int)n, (const char *)ASN1_STRING_get0_data(s));
    }
    GENERAL_NAMES_free(all);
    return is_found;
}
