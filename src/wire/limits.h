/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits and leases of the protocol, which both ends share.
 *
 * An agent fails a trial that exceeds a limit. A driver that receives more than
 * the limits allow is connected to a broken or hostile agent, and drops it.
 */
#ifndef HY_WIRE_LIMITS_H
#define HY_WIRE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hopyard.pb-c.h"

/* ---- leases ---- */
#define HY_AGENT_LEASE_MS 15000   /* an agent that receives nothing for this long ends its trials and itself ... */
#define HY_AGENT_SILENCE_MS 30000 /* ... so that they are over when the driver gives the agent up */
#define HY_PING_MS 3000           /* how often a quiet connection is probed, by both */

/* ---- what a run consists of ---- */
#define HY_SPEC_LIMIT (64u << 20)     /* bytes of a RunSpec, with ... */
#define HY_FUNCTION_LIMIT (48u << 20) /* ... its Python function */
#define HY_SUBMISSION_LIMIT                                                                                            \
    (60u << 20) /* bytes of a Submission, with the function and the values of all parameters                           \
                 */
#define HY_SLOTS_LIMIT 100000u        /* of one agent */

/* ---- files of one attempt that are copied to the driver ---- */
#define HY_PATH_LIMIT 4095u              /* bytes of a path below the trial's directory ... */
#define HY_PATH_PART_LIMIT 255u          /* ... of each of its parts ... */
#define HY_PATH_DEPTH_LIMIT 64u          /* ... and how many of them it has */
#define HY_FILES_LIMIT 100000u           /* files */
#define HY_FILE_SIZE_LIMIT (UINT64_C(1) << 50) /* bytes from the beginning of a file to its end, holes included */
#define HY_TRANSFER_DEFAULT (UINT64_C(100) << 30) /* bytes of data, unless --max-transfer says otherwise */
#define HY_TRANSFER_UNLIMITED UINT64_MAX
/* Memory of announced files that the driver has not begun to write. After a quarter of it an agent waits until the
 * driver has caught up. */
#define HY_ANNOUNCED_LIMIT (4u << 20)

/* ---- texts and values ---- */
#define HY_NAME_LIMIT 255u               /* bytes of the name of an agent, a host or a metric */
#define HY_REPORT_LIMIT (128u << 10)     /* bytes of one report of a trial to its agent, tracebacks included */
#define HY_TEXT_LIMIT (HY_REPORT_LIMIT + (4u << 10)) /* bytes of any text from an agent */
#define HY_RESULT_LIMIT (1u << 20)       /* bytes of the JSON file with a trial's result */
#define HY_VALUES_LIMIT 10000u           /* values in one report or result */
#define HY_GPU_LIST_LIMIT 64u
#define HY_AGENT_USAGE_LIMIT (32u << 10) /* bytes of an AgentUsage */
#define HY_RANK_ADDRESSES_LIMIT 32u      /* at which a rank can be reached ... */
#define HY_RANK_ADDRESS_LIMIT 64u        /* ... bytes of each, and of its bell */

#define HY_AGENT_STREAMS_END 0x80000001u /* an agent numbers its streams from 1 to below this; the driver's follow */

/* Describes the limit that an agent's message exceeds, as "a metric's name of 2000000 bytes (the limit is 255)".
 * Returns `text`, or NULL if the message is within all limits. */
const char *hy_limits_exceeded(const Hy__Control *m, char *text, size_t size);

/* Checks a path from another process: relative, no empty part, no "." or "..", within the limits above.
 * NULL, or what is wrong with it. */
const char *hy_limits_check_path(const char *path);

/* 0 in RunSpec and Welcome means the default: older drivers and runs do not have the field. */
static inline uint64_t hy_limits_transfer(uint64_t max_transfer)
{
    return max_transfer ? max_transfer : HY_TRANSFER_DEFAULT;
}

#endif
