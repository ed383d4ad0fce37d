/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/project.h"

#include "base/mem.h"

char *hy_project(const struct hy_args *args, struct hy_err *err)
{
    return hy_project_path(hy_args_get(args, "project"), err);
}

char *hy_project_made(const struct hy_args *args, struct hy_err *err)
{
    return hy_project_make(hy_args_get(args, "project"), err);
}

int hy_project_store(const struct hy_args *args, enum hy_store_mode mode, struct hy_store **ret, struct hy_err *err)
{
    hy_cleanup_free char *project = hy_project(args, err);

    return project ? hy_store_open(project, mode, ret, err) : err->code;
}
