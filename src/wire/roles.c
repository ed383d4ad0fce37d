/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/roles.h"

#include <stdio.h>
#include <string.h>

#define SERVER "ps"

struct hy_node hy_node_of(const Hy__RunSpec *spec, uint64_t number)
{
    uint64_t first = 1;

    for (size_t i = 0; i < spec->n_roles; i++) {
        const Hy__RoleSpec *role = spec->roles[i];

        if (number >= first && number - first < role->count)
            return (struct hy_node){role->name, (uint32_t)(number - first)};
        first += role->count;
    }
    return (struct hy_node){0};
}

const char *hy_node_name(const Hy__RunSpec *spec, uint64_t number, char buffer[HY_NODE_NAME_MAX])
{
    const struct hy_node node = hy_node_of(spec, number);

    if (node.role)
        snprintf(buffer, HY_NODE_NAME_MAX, "%.*s-%u", HY_NODE_NAME_MAX - 12, node.role, node.index);
    else
        snprintf(buffer, HY_NODE_NAME_MAX, "%llu", (unsigned long long)number - 1);
    return buffer;
}

bool hy_role_has_rank(const char *role)
{
    return strcmp(role, "chief") == 0 || strcmp(role, "master") == 0 || strcmp(role, "worker") == 0;
}

bool hy_node_has_rank(const Hy__RunSpec *spec, uint64_t number)
{
    const struct hy_node node = hy_node_of(spec, number);

    return !hy_spec_is_cluster(spec) || (node.role && hy_role_has_rank(node.role));
}

bool hy_node_is_server(const Hy__RunSpec *spec, uint64_t number)
{
    const struct hy_node node = hy_node_of(spec, number);

    return node.role && strcmp(node.role, SERVER) == 0;
}

uint32_t hy_spec_servers(const Hy__RunSpec *spec)
{
    uint32_t count = 0;

    for (size_t i = 0; i < spec->n_roles; i++)
        count += strcmp(spec->roles[i]->name, SERVER) == 0 ? spec->roles[i]->count : 0;
    return count;
}

uint32_t hy_node_rank(const Hy__RunSpec *spec, uint64_t number)
{
    uint32_t rank = 0;

    if (!hy_spec_is_cluster(spec))
        return (uint32_t)(number - 1);
    for (uint64_t i = 1; i < number; i++)
        rank += hy_node_has_rank(spec, i);
    return rank;
}

uint32_t hy_spec_ranks(const Hy__RunSpec *spec)
{
    return hy_node_rank(spec, (uint64_t)spec->ranks + 1);
}
