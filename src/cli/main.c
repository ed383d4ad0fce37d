/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "hdfs/hdfs.h"

int main(int argc, char **argv)
{
    hy_hdfs_add();
    return hy_cli_main(argc, argv);
}
