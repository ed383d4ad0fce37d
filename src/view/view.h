/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view: runs and trials as text, HTML and JSON.
 *
 * Pure functions: data in, text out. They write into a `struct hy_out`, so
 * that a test compares strings and needs no terminal.
 *
 *   out.h               a buffer of text with styles, widths and colors
 *   text_table.h        columns that fit the width of a terminal
 *   json_values.h       values for programs that read our output
 *   trial_table.h       trials as rows
 *   live_view.h         a run that is being watched: table, summary, notebook
 *   run_lines.h         a run line by line: for pipes (text) and programs (JSON)
 *   run_text.h          the phrases that these share
 *   run_description.h   a run as the store has it, for `ls`, `show` and `best`
 *   trial_columns_json.h  trials as columns, and the importance of hyperparameters
 *   plot.h              plots for a terminal
 *   log_format.h        the output of trials
 */
#ifndef HY_VIEW_VIEW_H
#define HY_VIEW_VIEW_H

#include "view/json_values.h"
#include "view/live_view.h"
#include "view/log_format.h"
#include "view/out.h"
#include "view/plot.h"
#include "view/run_description.h"
#include "view/run_lines.h"
#include "view/run_text.h"
#include "view/text_table.h"
#include "view/trial_columns_json.h"
#include "view/trial_table.h"

#endif
