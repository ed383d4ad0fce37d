/* SPDX-License-Identifier: Apache-2.0 */
/* Maps Java exceptions to errno values. */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "hdfs/cluster.h"

#define TAKEN_OVER "another program has replaced, removed or taken over the file while it was being written"
#define NO_SPACE "the DataNodes have no space for a block, or are unreachable; free some space (see hopyard fs df)"

static const struct {
    const char *name; /* of the class, without its package */
    int code;
    const char *advice;
} known[] = {
    {"FileNotFoundException", -ENOENT, NULL},
    {"ReplicaNotFoundException", -ENOENT, NULL},
    {"AccessControlException", -EACCES, NULL},
    {"FileAlreadyExistsException", -EEXIST, NULL},
    {"ParentNotDirectoryException", -ENOTDIR, NULL},
    {"PathIsNotDirectoryException", -ENOTDIR, NULL},
    {"PathIsNotEmptyDirectoryException", -ENOTEMPTY, NULL},
    {"InvalidPathException", -EINVAL, NULL},
    {"NSQuotaExceededException", -EDQUOT, "remove files there, or ask for a larger quota"},
    {"DSQuotaExceededException", -EDQUOT, "remove files there, or ask for a larger quota"},
    {"QuotaByStorageTypeExceededException", -EDQUOT, "remove files there, or ask for a larger quota"},
    {"SafeModeException", -EROFS, "try again when the NameNode has left its safe mode (hdfs dfsadmin -safemode get)"},
    {"AlreadyBeingCreatedException", -EBUSY,
     "another program is writing this file; stop it, or wait until its lease expires"},
    {"RecoveryInProgressException", -EBUSY, "try again in a minute"},
    {"LeaseExpiredException", -ESTALE, TAKEN_OVER},
    {"NotReplicatedYetException", -EAGAIN, NULL},
    {"InvalidToken", -EACCES, "get a new token, or a Kerberos ticket (kinit)"},
    {"InvalidEncryptionKeyException", -EKEYEXPIRED, NULL},
    {"StandbyException", -EHOSTDOWN, NULL},
    {"ObserverRetryOnActiveException", -EHOSTDOWN, NULL},
    {"RetriableException", -EAGAIN, NULL},
    {"RpcNoSuchMethodException", -ENOSYS, NULL},
    {"UnsupportedOperationException", -ENOTSUP, NULL},
    {"AclException", -ENOTSUP, NULL},
};

static const char *last_part(const char *class_name)
{
    const char *dot = strrchr(class_name, '.'), *inner = strrchr(class_name, '$');

    return inner > dot ? inner + 1 : dot ? dot + 1 : class_name;
}

/* Texts that are more specific than their class, or contradict it: a directory is "not found", a path through a file
 * "denied". */
static const struct text_rule {
    const char *words;
    int code;
    const char *advice;
} text_rules[] = {
    {"could only be written to 0 of the", -ENOSPC, NO_SPACE},
    {"could only be replicated to 0 nodes", -ENOSPC, NO_SPACE},
    {") Holder ", -ESTALE, TAKEN_OVER}, /* the client is not the lease holder any more */
    {" [Lease. ", -ESTALE, TAKEN_OVER}, /* the same for a client that holds other leases */
    {"but not UNDER_CONSTRUCTION", -ESTALE, TAKEN_OVER},
    {"Path is not a file", -EISDIR, NULL},
    {"already exists as a directory", -EISDIR, NULL},
    {"(is not a directory)", -ENOTDIR, NULL},
    {"SIMPLE authentication is not enabled", -EACCES,
     "set hadoop.security.authentication to kerberos in core-site.xml (in $HADOOP_CONF_DIR), and run kinit"},
};

static const struct text_rule *find_text_rule(const char *text)
{
    for (size_t i = 0; i < HY_COUNT(text_rules); i++)
        if (strstr(text, text_rules[i].words))
            return &text_rules[i];
    return NULL;
}

int hy_hdfs_exception(const char *class_name, const char *text, struct hy_err *err)
{
    const char *name = last_part(class_name ? class_name : "");
    const char *words = text && *text ? text : name;
    const int line = (int)strcspn(words, "\r\n");
    const struct text_rule *m = find_text_rule(words);
    const char *advice = m ? m->advice : NULL;
    int code = m ? m->code : -EIO;

    for (size_t i = 0; i < HY_COUNT(known); i++) {
        if (strcmp(known[i].name, name) != 0)
            continue;
        if (!m || known[i].advice)
            code = known[i].code;
        if (known[i].advice)
            advice = known[i].advice;
        break;
    }
    return hy_err_set(err, code, "%.*s%s%s", line, words, advice ? "; " : "", advice ? advice : "");
}
