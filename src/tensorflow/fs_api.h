/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The used part of TensorFlow's C interface for file systems (its
 * filesystem_interface.h), declared by hand like the rest (tf_api.h). It is the
 * same in 2.12 and 2.21, and all versions in it are 0. TensorFlow copies the
 * given size of a table and has defaults for NULL and for members after that;
 * members named `unused_...` only keep the layout.
 */
#ifndef HY_TENSORFLOW_FS_API_H
#define HY_TENSORFLOW_FS_API_H

#include "tensorflow/tf_api.h"

/* TensorFlow owns these structures, this library what they point to. */
typedef struct TF_RandomAccessFile {
    void *plugin_file;
} TF_RandomAccessFile;

typedef struct TF_WritableFile {
    void *plugin_file;
} TF_WritableFile;

typedef struct TF_Filesystem {
    void *plugin_filesystem;
} TF_Filesystem;

typedef struct TF_FileStatistics {
    int64_t length;
    int64_t mtime_nsec;
    bool is_directory;
} TF_FileStatistics;

typedef struct TF_RandomAccessFileOps {
    void (*cleanup)(TF_RandomAccessFile *);
    /* The number of bytes read, with TF_OUT_OF_RANGE if fewer than n; -1 for any other error. From any thread. */
    int64_t (*read)(const TF_RandomAccessFile *, uint64_t offset, size_t n, char *buffer, TF_Status *);
} TF_RandomAccessFileOps;

typedef struct TF_WritableFileOps {
    void (*cleanup)(TF_WritableFile *);
    void (*append)(const TF_WritableFile *, const char *buffer, size_t n, TF_Status *);
    int64_t (*tell)(const TF_WritableFile *, TF_Status *);
    void (*flush)(const TF_WritableFile *, TF_Status *);
    void (*sync)(const TF_WritableFile *, TF_Status *);
    void (*close)(const TF_WritableFile *, TF_Status *); /* once; `cleanup` follows */
} TF_WritableFileOps;

typedef void TF_FilesystemPathOp(const TF_Filesystem *, const char *path, TF_Status *);
typedef void TF_FilesystemTwoPathsOp(const TF_Filesystem *, const char *from, const char *to, TF_Status *);
/* Sets `entries` and returns their number; -1 for an error. */
typedef int TF_FilesystemListOp(const TF_Filesystem *, const char *path, char ***entries, TF_Status *);
typedef void TF_FilesystemWriteOp(const TF_Filesystem *, const char *path, TF_WritableFile *, TF_Status *);

typedef struct TF_FilesystemOps {
    void (*init)(TF_Filesystem *, TF_Status *);
    void (*cleanup)(TF_Filesystem *);
    void (*new_random_access_file)(const TF_Filesystem *, const char *path, TF_RandomAccessFile *, TF_Status *);
    TF_FilesystemWriteOp *new_writable_file, *new_appendable_file;
    void (*unused_new_read_only_memory_region_from_file)(void); /* default: TF_UNIMPLEMENTED */
    TF_FilesystemPathOp *create_dir, *recursively_create_dir, *delete_file, *delete_dir;
    void (*delete_recursively)(const TF_Filesystem *, const char *path, uint64_t *undeleted_files,
                               uint64_t *undeleted_dirs, TF_Status *);
    TF_FilesystemTwoPathsOp *rename_file, *copy_file;
    TF_FilesystemPathOp *path_exists;
    void (*unused_paths_exist)(void); /* default: path_exists for each */
    void (*stat)(const TF_Filesystem *, const char *path, TF_FileStatistics *, TF_Status *);
    bool (*is_directory)(const TF_Filesystem *, const char *path, TF_Status *);
    void (*unused_get_file_size)(void); /* default: stat */
    char *(*translate_name)(const TF_Filesystem *, const char *uri);
    TF_FilesystemListOp *get_children, *get_matching_paths;
    /* Caches, transactions and options follow. */
} TF_FilesystemOps;

/* One scheme. TensorFlow frees the name and the tables. */
typedef struct TF_FilesystemPluginOps {
    char *scheme;
    int filesystem_ops_abi, filesystem_ops_api;
    size_t filesystem_ops_size;
    TF_FilesystemOps *filesystem_ops;
    int random_access_file_ops_abi, random_access_file_ops_api;
    size_t random_access_file_ops_size;
    TF_RandomAccessFileOps *random_access_file_ops;
    int writable_file_ops_abi, writable_file_ops_api;
    size_t writable_file_ops_size;
    TF_WritableFileOps *writable_file_ops;
    int read_only_memory_region_ops_abi, read_only_memory_region_ops_api;
    size_t read_only_memory_region_ops_size;
    void *read_only_memory_region_ops;
} TF_FilesystemPluginOps;

typedef struct TF_FilesystemPluginInfo {
    size_t num_schemes;
    TF_FilesystemPluginOps *ops;
    void *(*plugin_memory_allocate)(size_t);
    void (*plugin_memory_free)(void *);
} TF_FilesystemPluginInfo;

/* Loads the library at `path` and calls its TF_InitPlugin. */
typedef void TF_RegisterFilesystemPluginFn(const char *path, TF_Status *);
typedef void TF_InitPluginFn(TF_FilesystemPluginInfo *);

#endif
