/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension `hopyard._hopyard`: Python bindings of the C parts. Decisions belong
 * into the parts, and the typed API is python/hopyard.
 *
 *     module.c                                the module
 *     search.c search_space.c importance.c    searches, importance of hyperparameters (src/search)
 *     fork_server.c fork_request.c fork_trial.c   the fork server
 *     report.c                                metrics and errors of a trial
 *     driver_client.c driver_submit.c         a connection to the driver of a run; starting one
 *     cluster_node.c                          a node of a cluster
 *     collective.c current_group.c            the group of ranks (src/collective)
 *     tensorflow_bridge.c                     the group and feeds for TensorFlow ops
 *     files.c file_object.c file_error.c      files by URL (src/fs)
 *     records.c column_values.c               TFRecord files (src/record)
 *     feed_hub.c feed_source.c feed_pack.c feed_unpack.c feed_row_schema.c   feeds (src/feed)
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
    PyObject *file_errors[HY_PY_FILE_ERRORS]; /* hopyard.FileError and its subclasses */
    PyObject *file_types[HY_PY_FILE_TYPES];   /* hopyard._hopyard.File, Info, Usage, Room */
};

/* Raise hopyard.Error with the message (MemoryError for -ENOMEM); return NULL. */
PyObject *hy_py_raise(const struct hy_py_state *state, const struct hy_err *err);
PyObject *hy_py_error(const struct hy_py_state *state, const char *fmt, ...);
/* For waits without the GIL: `arg` points to the PyThreadState * of PyEval_SaveThread. True: a signal handler has
 * raised. */
bool hy_py_is_interrupted(void *arg);

/* The functions of the module. report.c: */
PyObject *hy_py_report(PyObject *module, PyObject *args);
/* fork_server.c: */
PyObject *hy_py_serve(PyObject *module, PyObject *arg);
PyObject *hy_py_settle(PyObject *module, PyObject *ignored);
PyObject *hy_py_leave(PyObject *module, PyObject *arg);

/* driver_client.c: */
PyObject *hy_py_driver_type(PyObject *module);
/* driver_submit.c: (run, socket), or NULL with an exception set. */
PyObject *hy_py_submit(const struct hy_py_state *state, PyObject *args, PyObject *kwargs);

/* cluster_node.c: */
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

/* tensorflow_bridge.c: */
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
PyObject *hy_py_share_resolve(PyObject *module, PyObject *arg);
PyObject *hy_py_share_targets(PyObject *module, PyObject *arg);
/* Adds the types and exceptions of files, and registers hdfs:// in src/fs. 0, or -1 with an exception set. */
int hy_py_files_add(PyObject *module);

/* records.c: */
PyObject *hy_py_examples_type(PyObject *module);
PyObject *hy_py_write_examples(PyObject *module, PyObject *args);
PyObject *hy_py_write_records(PyObject *module, PyObject *args);

/* column_values.c: */
PyObject *hy_py_values_type(PyObject *module);

/* feed_hub.c and feed_source.c: */
PyObject *hy_py_hub_type(PyObject *module);
PyObject *hy_py_source_type(PyObject *module);

/* importance.c: */
PyObject *hy_py_importance(PyObject *module, PyObject *rows);

/* search.c; a new reference or NULL: */
PyObject *hy_py_search_type(PyObject *module);

/*
 * search_space.c: fills an empty space from a mapping of names to values, or to text
 * in the syntax of the command line. *ret_choices gets a list with one entry for each
 * dimension: None, or the tuple of its choices as Python objects. 0, or -1 with an
 * exception set; the caller frees the space in any case.
 */
int hy_py_search_space(const struct hy_py_state *state, PyObject *mapping, int grid, struct hy_space *space,
                       PyObject **ret_choices);

#endif
