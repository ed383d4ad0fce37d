/* SPDX-License-Identifier: Apache-2.0 */
/* Hadoop's settings, selected by number: append only, so that corpora stay valid. */
#include "scripted.h"

#define ONE "hdfs://nn:8020/folder/file"
#define TOKEN "nn:8020"

const struct hy_setting hy_settings[] = {
    {.url = ONE},
    {.url = ONE, .service = TOKEN},
    {.url = ONE, .service = TOKEN, .pairs = {"hadoop.rpc.protection", "integrity"}},
    {.url = ONE, .service = TOKEN, .pairs = {"hadoop.rpc.protection", "privacy,authentication"}},
    {.url = ONE,
     .pairs = {"hadoop.security.authentication", "kerberos", "dfs.namenode.kerberos.principal", "hdfs/_HOST@R",
               "hadoop.rpc.protection", "authentication,integrity,privacy"}},
    {.url = ONE,
     .pairs = {"hadoop.security.authentication", "kerberos", "dfs.namenode.kerberos.principal.pattern", "hdfs/*",
               "hadoop.rpc.protection", "privacy", "ipc.client.fallback-to-simple-auth-allowed", "true"}},
    {.url = ONE,
     .pairs = {"dfs.data.transfer.protection", "privacy", "dfs.encrypt.data.transfer.cipher.suites",
               "AES/CTR/NoPadding"}},
    {.url = ONE, .pairs = {"dfs.data.transfer.protection", "integrity,authentication"}},
    {.url = ONE,
     .is_here = true,
     .pairs = {"dfs.client.read.shortcircuit", "true", "dfs.domain.socket.path", "/run/dn._PORT.sock"}},
    {.url = "hdfs://ha/folder/file",
     .service = "ha-hdfs:ha",
     .is_here = true,
     .pairs = {"dfs.ha.namenodes.ha", "a, b", "dfs.namenode.rpc-address.ha.a", "nna:8020",
               "dfs.namenode.rpc-address.ha.b", "[::1]:8021", "dfs.client.use.datanode.hostname", "true",
               "dfs.client.read.shortcircuit", "true", "dfs.domain.socket.path", "/run/dn.sock",
               "dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER", "fs.permissions.umask-mode",
               "077"}},
    {.url = ONE,
     .pairs = {"dfs.blocksize", "32", "dfs.bytes-per-checksum", "4", "dfs.checksum.type", "crc32",
               "dfs.client-write-packet-size", "8", "dfs.client.socket-timeout", "1000", "fs.permissions.umask-mode",
               "9"}},
    {.url = ONE, .pairs = {"hadoop.rpc.protection", "nonsense", "dfs.data.transfer.protection", ","}, .service = TOKEN},
    {.url = ONE,
     .pairs = {"hadoop.security.authentication", "kerberos", "dfs.namenode.kerberos.principal", "hdfs/fixed@R"}},
    {.url = ONE, .pairs = {"hadoop.security.authentication", "kerberos"}},
    {.url = ONE, .pairs = {"dfs.data.transfer.protection", "privacy"}}, /* by RC4 */
    {.url = ONE, .service = "none:1", .pairs = {"hadoop.security.authentication", "kerberos"}},
};
const size_t hy_settings_count = sizeof(hy_settings) / sizeof(hy_settings[0]);
