/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files by URL: functions (files.c), the type of an open file (file_object.c), and
 * their exceptions (file_error.c).
 *
 * Calls that may block do not hold the GIL. In the main thread they run signal
 * handlers meanwhile (hy_fs_on_wait), so that Ctrl-C interrupts them.
 */
#ifndef HY_PYTHON_FILES_H
#define HY_PYTHON_FILES_H

#include "module.h"

/* Drops a reference at the end of a scope. */
void hy_py_unref(PyObject **object);
#define hy_cleanup_ref __attribute__((cleanup(hy_py_unref)))

/* Adds hopyard.FileError and its subclasses to state->file_errors. 0, or -1 with an exception set. */
int hy_py_file_errors_add(PyObject *module);
/* The type of an open file; a new reference or NULL. */
PyObject *hy_py_file_type(PyObject *module);

/*
 * After a call of src/fs, with the GIL: 0, or -1 with an exception set. It is the one
 * that a signal handler has raised meanwhile, whatever the result of the call; or the
 * one for `rc`, `err` and `url`, which is bytes.
 */
int hy_py_file_check(const struct hy_py_state *state, int64_t rc, const struct hy_err *err, PyObject *url);

#endif
