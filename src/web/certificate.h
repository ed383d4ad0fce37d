/* SPDX-License-Identifier: Apache-2.0 */
/* The server's certificate and private key, as a context of OpenSSL: TLS 1.2 and 1.3, no client certificates. */
#ifndef HY_WEB_CERTIFICATE_H
#define HY_WEB_CERTIFICATE_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * Reads PEM files: the certificate followed by its chain, and its key, which must be readable by this user only.
 * Both may be one file. Logs a warning about a certificate that is not valid now. 0, or -Exxx with a sentence. Free the
 * result with SSL_CTX_free; connections hold references of their own.
 */
int hy_certificate_load(const char *cert_path, const char *key_path, SSL_CTX **ret, struct hy_err *err);
/* Whether it is for this host name or address. */
bool hy_certificate_has_name(SSL_CTX *tls, const char *name);
/* The first of its host names that is not a wildcard. False: there is none. */
bool hy_certificate_first_name(SSL_CTX *tls, char *ret, size_t size);

#endif
