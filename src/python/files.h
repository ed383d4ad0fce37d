/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files by URL as Python sees them: functions (files.c), the type of an open
 * file (file.c), and how both tell of errors (file_error.c).
 *
 * Whatever may wait waits without the GIL. While it waits in the main thread,
 * handlers of signals run (hy_fs_on_wait): Ctrl-C ends it.
 */
#ifndef HY_PYTHON_FILES_H
#define HY_PYTHON_FILES_H

#include "module.h"

/* Drops a reference at the end of a scope. */
void hy_py_unref(PyObject **object);
#define hy_cleanup_ref __attribute__((cleanup(hy_py_unref)))

/* hopyard.FileError and those below it, in state->file_errors. 0, or -1 with an exception set. */
int hy_py_file_errors_add(PyObject *module);
/* The type of an open file; a new reference or NULL. */
PyObject *hy_py_file_type(PyObject *module);

/*
 * After a call of src/fs, with the GIL: 0, or -1 with an exception set. That is
 * what a handler of signals raised meanwhile, whatever became of the call; or what
 * `rc` and `err` tell about `url`, which is bytes.
 */
int hy_py_file_check(const struct hy_py_state *state, int64_t rc, const struct hy_err *err, PyObject *url);

#endif
