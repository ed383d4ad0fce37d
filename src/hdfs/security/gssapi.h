/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of MIT's GSSAPI that is used: declared by hand and loaded when Kerberos
 * is needed, so that hopyard builds and runs without the library. Names and numbers
 * are those of RFC 2744.
 */
#ifndef HY_HDFS_SECURITY_GSSAPI_H
#define HY_HDFS_SECURITY_GSSAPI_H

#include <stddef.h>
#include <stdint.h>

struct gss_buffer {
    size_t length;
    void *value;
};

struct gss_oid {
    uint32_t length;
    const void *elements;
};

typedef struct gss_name *gss_name;
typedef struct gss_context *gss_context;

enum {
    GSS_MUTUAL = 2,
    GSS_REPLAY = 4,
    GSS_SEQUENCE = 8,
    GSS_CONF = 16,
    GSS_INTEG = 32,

    GSS_CODE_GSS = 1, /* kinds of codes for gss_display_status */
    GSS_CODE_MECHANISM = 2,
};

#define GSS_COMPLETE 0u
#define GSS_CONTINUE 1u
#define GSS_IS_ERROR(major) (((major) & 0xffff0000u) != 0)
#define GSS_NO_CRED (7u << 16)
#define GSS_CREDENTIALS_EXPIRED (11u << 16)

/* Kerberos codes in the minor status. */
#define KRB5_TICKET_EXPIRED ((uint32_t)-1765328352)
#define KRB5_KDC_UNREACHABLE ((uint32_t)-1765328228)
#define KRB5_SERVER_UNKNOWN ((uint32_t)-1765328377)
#define KRB5_CLOCK_SKEW ((uint32_t)-1765328347)

struct gss {
    uint32_t (*import_name)(uint32_t *minor, struct gss_buffer *name, const struct gss_oid *type, gss_name *ret);
    uint32_t (*release_name)(uint32_t *minor, gss_name *name);
    uint32_t (*init_sec_context)(uint32_t *minor, void *credential, gss_context *context, gss_name target,
                                 const struct gss_oid *mechanism, uint32_t flags, uint32_t time, void *bindings,
                                 struct gss_buffer *in, struct gss_oid **ret_mechanism, struct gss_buffer *out,
                                 uint32_t *ret_flags, uint32_t *ret_time);
    uint32_t (*delete_sec_context)(uint32_t *minor, gss_context *context, struct gss_buffer *out);
    uint32_t (*wrap)(uint32_t *minor, gss_context context, int is_private, uint32_t quality, struct gss_buffer *in,
                     int *ret_is_private, struct gss_buffer *out);
    uint32_t (*unwrap)(uint32_t *minor, gss_context context, struct gss_buffer *in, struct gss_buffer *out,
                       int *ret_is_private, uint32_t *ret_quality);
    uint32_t (*wrap_size_limit)(uint32_t *minor, gss_context context, int is_private, uint32_t quality, uint32_t max,
                                uint32_t *ret);
    uint32_t (*release_buffer)(uint32_t *minor, struct gss_buffer *b);
    uint32_t (*display_status)(uint32_t *minor, uint32_t code, int kind, const struct gss_oid *mechanism,
                               uint32_t *context, struct gss_buffer *ret);
};

#endif
