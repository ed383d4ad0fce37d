/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension `hopyard._hopyard`: the C parts as Python sees them. It holds
 * no decisions of its own; the typed face is python/hopyard.
 */
#ifndef HY_PYTHON_MODULE_H
#define HY_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "base/err.h"

struct hy_space;

#define HY_PY_FILE_ERRORS 6
enum { HY_PY_FILE, HY_PY_FILE_INFO, HY_PY_FILE_USAGE, HY_PY_FILE_ROOM, HY_PY_FILE_TYPES };

struct hy_py_state {
    PyObject *error;                          /* hopyard.Error */
    PyObject *group_error;                    /* hopyard.GroupError */
    PyObject *search_type;                    /* hopyard._hopyard.Search */
    PyObject *values_type;                    /* hopyard._hopyard.Values */
    PyObject *file_errors[HY_PY_FILE_ERRORS]; /* hopyard.FileError, and those below it */
    PyObject *file_types[HY_PY_FILE_TYPES];   /* hopyard._hopyard.File, Info, Usage, Room */
};

/* Raise hopyard.Error with a sentence (MemoryError for -ENOMEM); return NULL. */
PyObject *hy_py_raise(const struct hy_py_state *state, const struct hy_err *err);
PyObject *hy_py_error(const struct hy_py_state *state, const char *fmt, ...);
/* For waits without the GIL: `arg` is the PyThreadState * of PyEval_SaveThread. True: a signal's handler has raised. */
bool hy_py_is_interrupted(void *arg);

/* The functions of the module. report.c: */
PyObject *hy_py_report(PyObject *module, PyObject *args);
/* warm.c: */
PyObject *hy_py_serve(PyObject *module, PyObject *arg);
PyObject *hy_py_settle(PyObject *module, PyObject *ignored);
PyObject *hy_py_leave(PyObject *module, PyObject *arg);

/* node.c: */
PyObject *hy_py_node_type(PyObject *module);

/* collective.c: */
PyObject *hy_py_group_join(PyObject *module, PyObject *ignored);
PyObject *hy_py_group_leave(PyObject *module, PyObject *ignored);
PyObject *hy_py_group_joined(PyObject *module, PyObject *ignored);
PyObject *hy_py_group_query(PyObject *module, PyObject *arg);
PyObject *hy_py_group_start(PyObject *module, PyObject *args);
PyObject *hy_py_group_wait(PyObject *module, PyObject *capsule);
PyObject *hy_py_group_poll(PyObject *module, PyObject *capsule);
PyObject *hy_py_group_set_add(PyObject *module, PyObject *ranks);
PyObject *hy_py_group_set_remove(PyObject *module, PyObject *arg);
PyObject *hy_py_group_set_members(PyObject *module, PyObject *arg);
PyObject *hy_py_group_timeline_start(PyObject *module, PyObject *args);
PyObject *hy_py_group_timeline_stop(PyObject *module, PyObject *ignored);
PyObject *hy_py_attach_tensorflow(PyObject *module, PyObject *args);

/* files.c: */
PyObject *hy_py_fs_stat(PyObject *module, PyObject *arg);
PyObject *hy_py_fs_list(PyObject *module, PyObject *arg);
PyObject *hy_py_fs_glob(PyObject *module, PyObject *arg);
PyObject *hy_py_fs_usage(PyObject *module, PyObject *arg);
PyObject *hy_py_fs_room(PyObject *module, PyObject *arg);
PyObject *hy_py_fs_access(PyObject *module, PyObject *args);
PyObject *hy_py_fs_mkdirs(PyObject *module, PyObject *args);
PyObject *hy_py_fs_remove(PyObject *module, PyObject *args);
PyObject *hy_py_fs_rename(PyObject *module, PyObject *args);
PyObject *hy_py_fs_chmod(PyObject *module, PyObject *args);
PyObject *hy_py_fs_chown(PyObject *module, PyObject *args);
PyObject *hy_py_fs_copy(PyObject *module, PyObject *args);
PyObject *hy_py_fs_join(PyObject *module, PyObject *args);
/* The types and errors of files; makes hdfs:// known to src/fs. 0, or -1 with an exception set. */
int hy_py_files_add(PyObject *module);

/* records.c: */
PyObject *hy_py_examples_type(PyObject *module);
PyObject *hy_py_write_examples(PyObject *module, PyObject *args);
PyObject *hy_py_write_records(PyObject *module, PyObject *args);

/* values.c: */
PyObject *hy_py_values_type(PyObject *module);

/* hub.c and source.c: */
PyObject *hy_py_hub_type(PyObject *module);
PyObject *hy_py_source_type(PyObject *module);

/* The type of a search; a new reference or NULL. */
PyObject *hy_py_search_type(PyObject *module);

/*
 * Fills an empty space from a mapping: name -> values, or name -> text in the
 * syntax of the command line. *ret_choices gets a list with one entry for each
 * dimension: None, or the tuple of what its choices stand for. 0, or -1 with an
 * exception set; the space is the caller's to end.
 */
int hy_py_search_space(const struct hy_py_state *state, PyObject *mapping, int grid, struct hy_space *space,
                PyObject **ret_choices);

#endif
