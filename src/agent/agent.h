/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent: one machine's share of a run.
 *
 * It starts, watches, limits and ends processes, captures what they print, and
 * reports. It takes no part in the search. After its lease has passed without a message
 * from its driver, it kills its trials and ends.
 */
#ifndef HY_AGENT_H
#define HY_AGENT_H

/* `hopyard agent …`; returns the exit status. */
int hy_agent_main(int argc, char **argv);

/* `hopyard report name=value …` from inside a trial. */
int hy_report_main(int argc, char **argv);

#endif
