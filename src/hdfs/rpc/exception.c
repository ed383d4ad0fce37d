/* SPDX-License-Identifier: Apache-2.0 */
/* What Java's exceptions mean here. */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "hdfs/cluster.h"

#define TAKEN_OVER "another program has replaced, removed or taken over the file while it was written"
#define NO_ROOM "the DataNodes have no room for a block, or cannot be reached; free some space (hopyard fs df shows it)"

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
    {"AlreadyBeingCreatedException", -EBUSY, "another program is writing this file; end it, or wait until its lease has run out"},
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
};

static const char *last_part(const char *class_name)
{
    const char *dot = strrchr(class_name, '.'), *inner = strrchr(class_name, '$');

    return inner > dot ? inner + 1 : dot ? dot + 1 : class_name;
}

/* What a class does not say, or says wrongly: a folder is "not found", the way through a file "denied". */
static const struct meaning {
    const char *words;
    int code;
    const char *advice;
} meant[] = {
    {"could only be written to 0 of the", -ENOSPC, NO_ROOM},
    {"could only be replicated to 0 nodes", -ENOSPC, NO_ROOM},
    {") Holder ", -ESTALE, TAKEN_OVER}, /* behind the file's number: who wrote it, and does so no more */
    {" [Lease. ", -ESTALE, TAKEN_OVER}, /* the same, of one who writes others still */
    {"but not UNDER_CONSTRUCTION", -ESTALE, TAKEN_OVER},
    {"Path is not a file", -EISDIR, NULL},
    {"already exists as a directory", -EISDIR, NULL},
    {"(is not a directory)", -ENOTDIR, NULL},
    {"SIMPLE authentication is not enabled", -EACCES,
     "set hadoop.security.authentication to kerberos in core-site.xml (in $HADOOP_CONF_DIR), and run kinit"},
};

static const struct meaning *meaning_of(const char *text)
{
    for (size_t i = 0; i < HY_COUNT(meant); i++)
        if (strstr(text, meant[i].words))
            return &meant[i];
    return NULL;
}

int hy_hdfs_exception(const char *class_name, const char *text, struct hy_err *err)
{
    const char *name = last_part(class_name ? class_name : "");
    const char *words = text && *text ? text : name;
    const int line = (int)strcspn(words, "\r\n");
    const struct meaning *m = meaning_of(words);
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
