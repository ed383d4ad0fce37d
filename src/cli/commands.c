/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all commands and their options. */
#include "cli/commands.h"

#include <string.h>

#include "agent/agent.h"
#include "cli/start.h"

static const struct hy_option run_options[] = {
    {.name = "grid",
     .value = "NAME=V,V,…",
     .many = true,
     .help = "run every combination of these values (layers=1..4 is a range; also NAME=[JSON,…], NAME=@FILE)"},
    {.name = "paired", .help = "with --grid: pair the values by position instead of combining them"},
    {.name = "algorithm",
     .value = "NAME",
     .help = "search the --space: auto (chooses one of the following), tpe, cma, evolve or random"},
    {.name = "trials", .value = "N", .help = "with --algorithm: the number of trials (0: unlimited)"},
    {.name = "random", .value = "N", .help = "run N random points of the --space (0: unlimited)"},
    {.name = "evolve", .help = "search the --space by differential evolution; requires --max or --min"},
    {.name = "space",
     .value = "NAME=RANGE",
     .many = true,
     .help = "a dimension of the search space: lr=log:1e-5..1e-1, layers=1..4 (integers), x=-5.12..5.12, "
             "act=relu,tanh"},
    {.name = "constraint",
     .value = "EXPRESSION",
     .many = true,
     .help = "only trials for which this is true: 'batch * seq <= 65536'"},
    {.name = "max", .value = "METRIC", .help = "the metric to maximize; trials print METRIC=VALUE"},
    {.name = "min", .value = "METRIC", .help = "the metric to minimize"},
    {.name = "population", .value = "N", .help = "evolve, cma: size of the population"},
    {.name = "generations", .value = "N", .help = "evolve: number of generations (0: unlimited)"},
    {.name = "mutation", .value = "F", .help = "evolve: differential weight, 0 to 2"},
    {.name = "crossover", .value = "CR", .help = "evolve: crossover probability, 0 to 1"},
    {.name = "strategy", .value = "S", .help = "evolve: best1bin or rand1bin"},
    {.name = "async", .help = "evolve, cma: do not wait for a generation to complete"},
    {.name = "stop",
     .value = "RULE",
     .help =
         "stop bad trials early, by the values that they report: median, halving, asha, hyperband, patience, or none "
         "(only NaN and infinity); requires --max or --min"},
    {.name = "stop-min",
     .value = "N",
     .help = "no trial is stopped before step N; halving, asha, hyperband: first rung"},
    {.name = "stop-max", .value = "N", .help = "halving, asha, hyperband: steps of a complete trial"},
    {.name = "reduction", .value = "N", .help = "halving, asha, hyperband: one of N trials passes a rung (default: 3)"},
    {.name = "stop-pause",
     .help = "asha: pause trials that do not pass, and continue them if they are among the best later"},
    {.name = "patience", .value = "N", .help = "patience: steps without improvement"},
    {.name = "min-delta", .value = "X", .help = "patience: a smaller improvement does not count (default: 0)"},
    {.name = "stop-grace",
     .value = "TIME",
     .help = "kill a stopped trial that has not ended by itself after this time (default: 30s)"},
    {.name = "parallel", .value = "N", .help = "run at most N trials at a time (default: all slots)"},
    {.name = "oversubscribe", .help = "use cores of this machine that other runs use, too"},
    {.name = "memory", .value = "SIZE", .help = "kill a trial that uses more memory, for example 512M or 4G"},
    {.name = "max-transfer",
     .value = "SIZE",
     .help = "copy at most this much of a trial's files from a machine without the project directory (default: 100G)"},
    {.name = "gpus",
     .value = "N",
     .help = "GPUs per trial, or a share of one such as 0.2 (0: hide all GPUs; default: no assignment)"},
    {.name = "timeout", .value = "TIME", .help = "kill an attempt that takes longer, for example 90s, 15m or 1h"},
    {.name = "disk-timeout",
     .value = "TIME",
     .help = "interrupt the run when its disk is full or its store is locked for longer (default: 10m)"},
    {.name = "retries", .value = "N", .help = "retry a failed trial up to N times"},
    {.name = "seed", .value = "N", .help = "seed of the search; the same seed gives the same trials (default: random)"},
    {.name = "hosts", .value = "HOST[:SLOTS],…", .help = "run on these machines over ssh (default: one slot each)"},
    HY_ENGINE_OPTIONS,
    {.name = "listen",
     .value = "[ADDR:]PORT",
     .help = "accept agents of other machines; prints the command that joins them"},
    {.name = "name", .value = "NAME", .help = "name of the run"},
    {.name = "notify",
     .value = "COMMAND",
     .help = "run this shell command when the run has ended; $HOPYARD_RUN, _STATE, _NAME, _METRIC, _BEST describe it"},
    {.name = "tensorboard", .help = "start a TensorBoard that ends with this command"},
    {.name = "detach", .letter = 'd', .help = "start the run and return"},
    {.name = "json", .help = "print JSON, one object per line"},
    {.name = "html", .help = "print HTML for notebooks; each line replaces the previous one"},
    {0},
};

static const struct hy_option json_options[] = {
    {.name = "json", .help = "print JSON"},
    {0},
};

static const struct hy_option attach_options[] = {
    {.name = "json", .help = "print JSON, one object per line"},
    {.name = "html", .help = "print HTML for notebooks; each line replaces the previous one"},
    {.name = "no-reason", .help = "of a training that failed: do not print why (`hopyard show` does)"},
    {0},
};

static const struct hy_option show_options[] = {
    {.name = "trials", .value = "N", .help = "number of trials to list, or 'all' (default: 50)"},
    {.name = "skip", .value = "N", .help = "list trials after the first N"},
    {.name = "by-number", .help = "list trials by number, not the best first"},
    {.name = "plot", .help = "plot the trials and the importance of hyperparameters, instead of the list"},
    {.name = "json", .help = "print JSON"},
    {0},
};

static const struct hy_option logs_options[] = {
    {.name = "follow", .letter = 'f', .help = "print new output until the trial or run has ended"},
    {.name = "stdout", .help = "print standard output only"},
    {.name = "stderr", .help = "print standard error only"},
    {0},
};

static const struct hy_option tensorboard_options[] = {
    {.name = "port", .value = "N", .help = "port to listen on (default: any free port)"},
    {.name = "owner", .value = "PID", .help = "exit when this process exits"},
    {.name = "sock", .value = "PATH", .help = "listen on a Unix socket, for `hopyard ui`; accepts several RUNs"},
    {.name = "prefix", .value = "PATH", .help = "with --sock: the path at which it is served"},
    {0},
};

static const struct hy_option ui_options[] = {
    {.name = "port", .value = "N", .help = "port to listen on (default: 4677, or any free port if that is in use)"},
    {.name = "apps-port",
     .value = "N",
     .help = "port for TensorBoard and Jupyter (default: the one after --port, or any free port)"},
    {.name = "apps-url", .value = "URL", .help = "the URL at which a proxy serves that port"},
    {.name = "allow-host",
     .value = "HOST[:PORT]",
     .many = true,
     .help = "a name under which browsers reach the server through a proxy"},
    {.name = "listen",
     .value = "ADDRESS",
     .help = "listen on this address instead of 127.0.0.1; requires --tls-cert or --without-tls"},
    {.name = "tls-cert", .value = "FILE", .help = "serve HTTPS with this certificate (PEM, followed by its chain)"},
    {.name = "tls-key", .value = "FILE", .help = "its private key (PEM)"},
    {.name = "without-tls",
     .help = "allow plain HTTP there, although others on the network can read all traffic, logins included"},
    {.name = "base-url",
     .value = "URL",
     .help = "where a proxy serves the page: /user/ada/hopyard, or https://hub.example/ada"},
    {.name = "no-browser", .help = "do not open a browser"},
    {0},
};

static const struct hy_option notebook_options[] = {
    {.name = "mode", .value = "MODE", .help = "experiments (default), tfonspark or allreduce"},
    {.name = "engine", .value = "MASTER", .help = "local (default), spark://HOST:7077 or yarn"},
    {.name = "executors", .value = "N", .help = "number of executors; workers, for tfonspark and allreduce"},
    {.name = "parallel", .value = "N", .help = "experiments: run at most N trials at a time (default: all slots)"},
    {.name = "executor-memory",
     .value = "MB",
     .help = "memory per executor; a trial that uses more is killed (default: no limit)"},
    {.name = "executor-gpus", .value = "N", .help = "GPUs per executor, and per trial (default: no assignment)"},
    {.name = "parameter-servers", .value = "N", .help = "tfonspark: how many of the executors are parameter servers"},
    {.name = "port", .value = "N", .help = "port to listen on (default: 8888, or the next free port)"},
    {.name = "sock", .value = "PATH", .help = "listen on this Unix socket instead, for a proxy"},
    {.name = "prefix", .value = "PATH", .help = "with --sock: the path at which the proxy serves it"},
    {.name = "no-browser", .help = "do not open a browser"},
    {0},
};

static const struct hy_option stop_options[] = {
    {.name = "feed", .help = "end only the feed of a cluster: its nodes process the rows they have and exit"},
    {0},
};

static const struct hy_option resume_options[] = {
    {.name = "tensorboard", .help = "start a TensorBoard that ends with this command"},
    {.name = "detach", .letter = 'd', .help = "start the run and return"},
    {.name = "json", .help = "print JSON, one object per line"},
    {.name = "html", .help = "print HTML for notebooks; each line replaces the previous one"},
    {0},
};

static const struct hy_option rm_options[] = {
    {.name = "force", .letter = 'f', .help = "do not prompt (without a terminal there is no prompt)"},
    {0},
};

static const struct hy_option gc_options[] = {
    {.name = "all", .letter = 'a', .help = "also clean up after your other projects"},
    {.name = "logs", .help = "also remove log directories of runs that are not in the store"},
    {.name = "dry-run", .letter = 'n', .help = "only print what would be removed or killed"},
    {.name = "force", .letter = 'f', .help = "do not prompt (without a terminal there is no prompt)"},
    {0},
};

static const char run_about[] = "Runs a command once for each combination of its parameters, several at a time,\n"
                                "and shows their progress. {name} in the command is replaced by the value of the\n"
                                "parameter; {{ and }} are literal braces. Without parameters, the command runs\n"
                                "once.\n"
                                "\n"
                                "The metric of a trial is the last METRIC=VALUE it prints, or the value it writes\n"
                                "as JSON to $HOPYARD_RESULT; `hopyard report` streams values during the trial. A\n"
                                "retry finds the files that the trial has written to $HOPYARD_CHECKPOINT.\n"
                                "\n"
                                "The run is a separate process: it continues when this terminal closes. Ctrl-C\n"
                                "prompts whether to stop the run or to detach from it.\n"
                                "\n"
                                "Exit status: 0 all trials done (or detached), 1 a trial or the run failed,\n"
                                "2 invalid usage, 130 stopped by Ctrl-C.";

static const char run_examples[] = "hopyard run --grid lr=0.001,0.0005 --grid dropout=0.45,0.7 --max accuracy \\\n"
                                   "    --parallel 2 -- ./train --lr {lr} --dropout {dropout}\n"
                                   "hopyard run --random 50 --space lr=log:1e-5..1e-1 --space layers=1..4 \\\n"
                                   "    --min loss --memory 4G --timeout 1h -- python3 train.py {lr} {layers}\n"
                                   "hopyard run --evolve --population 10 --generations 10 --space x=-5.0..5.0 \\\n"
                                   "    --min f --hosts a:4,b:2 --name sphere --detach -- ./sphere {x}";

static const char train_about[] = "Starts a program N times, as the ranks of one training, which connect through\n"
                                  "`import hopyard.hvd as hvd`, or horovod.tensorflow. All ranks run at the same\n"
                                  "time, on this machine or on the hosts of -H; when one fails, all are killed,\n"
                                  "unless the training is elastic (--min-np). A program that does not use ranks\n"
                                  "runs N times, too.\n"
                                  "\n"
                                  "In a terminal, a table shows the progress of the ranks below the output of rank\n"
                                  "0; in a pipe, each line starts with its rank. `hopyard logs RUN 3` prints the\n"
                                  "output of rank 3.\n"
                                  "\n"
                                  "The options of horovodrun are accepted; a note lists those without effect.\n"
                                  "\n"
                                  "Exit status: 0 all ranks succeeded (or detached), 1 a rank failed, 2 invalid\n"
                                  "usage, 130 stopped by Ctrl-C.";

static const char train_examples[] = "hopyard train -np 4 python train.py --epochs 3\n"
                                     "hopyard train -np 4 -H a:2,b:2 --gpus 1 -- python train.py\n"
                                     "hopyard train -np 4 --min-np 2 -H a:2,b:2 python elastic.py\n"
                                     "hopyard train --scaling -np 8 python train.py";

static const char logs_about[] = "Prints the output of trials, from the files in the run's log directory. The\n"
                                 "output of one trial is unchanged; for all trials, each line starts with the\n"
                                 "number of its trial. In a terminal, unprintable bytes are escaped.\n"
                                 "\n"
                                 "For a training, TRIAL is a rank, counted from 0: 3, or rank=3 without RUN.\n"
                                 "For a cluster, it is a node: worker-0, or node=worker-0 without RUN.";

static const char tensorboard_about[] =
    "Starts TensorBoard on a run's log directory, or on any directory. Its address is\n"
    "printed at once; TensorBoard is ready a few seconds later. Commands that watch\n"
    "the run show the address, too. Ctrl-C ends TensorBoard.\n"
    "\n"
    "A number is a run, ./3 a directory; a name is a directory if one of that name\n"
    "exists, otherwise a run.\n"
    "\n"
    "It listens on 127.0.0.1 only, runs at low priority, and uses no GPU. The\n"
    "TensorBoard of the run's own Python is used; for commands that of\n"
    "$HOPYARD_PYTHON, or the first one in PATH. From another machine, use ssh:\n"
    "ssh -L 6006:127.0.0.1:6006 HOST hopyard tensorboard --port 6006";

static const char ui_about[] = "Shows the project's runs in the browser, and updates them while they run.\n"
                               "Prints an address that logs in once, and opens it. The page needs no run, and a\n"
                               "run needs no page: Ctrl-C ends the server only.\n"
                               "\n"
                               "It listens on 127.0.0.1 only; TensorBoard has the next port. From another\n"
                               "machine, use ssh:\n"
                               "ssh -L 4677:127.0.0.1:4677 -L 4678:127.0.0.1:4678 HOST hopyard ui\n"
                               "or HTTPS (SIGHUP loads a renewed certificate):\n"
                               "hopyard ui --listen 0.0.0.0 --tls-cert cert.pem --tls-key key.pem";

static const char notebook_about[] =
    "Starts JupyterLab in the project's directory Jupyter, where the notebooks of the\n"
    "tour are. In its Python kernel, `spark` is a session of the engine, and `hops`,\n"
    "`horovod` and `tensorflowonspark` can be imported. The options are what\n"
    "util.num_executors() and util.num_param_servers() return, and the defaults of\n"
    "experiments and trainings that the notebooks start.\n"
    "\n"
    "It listens on 127.0.0.1 only, and requires the token of the address that it\n"
    "prints. Ctrl-C ends it and its kernels; runs continue. JupyterLab must be\n"
    "installed in hopyard's Python environment (or that of $HOPYARD_PYTHON).";

static const char gc_about[] = "Cleans up on this machine after processes that were killed: trials of this\n"
                               "project whose agent has exited, and stale sockets. With --all also those of your\n"
                               "other projects, and unused MPS daemons for shares of a GPU. Nothing that is in\n"
                               "use is touched. In a terminal, prints what it would do and prompts.";

#define RUNNING "Running"
#define INSPECTING "Inspecting"
#define FILES "Files"
#define CLEANING "Cleaning up"
#define INSIDE "On other machines and inside trials"

const struct hy_command hy_commands[] = {
    {.name = "run",
     .group = RUNNING,
     .words = "[OPTIONS] -- COMMAND…",
     .options = run_options,
     .max_words = 0,
     .takes_rest = true,
     .run = hy_cmd_run,
     .start = hy_run_start,
     .summary = "run a command with many parameter values",
     .about = run_about,
     .examples = run_examples},
    {.name = "train",
     .group = RUNNING,
     .words = "-np N [OPTIONS] [--] COMMAND…",
     .options = hy_train_options,
     .takes_rest = true,
     .bare_rest = true,
     .run = hy_cmd_train,
     .start = hy_train_start,
     .summary = "run a program as the ranks of one training (also: horovodrun)",
     .about = train_about,
     .examples = train_examples},
    {.name = "horovodrun",
     .words = "-np N [OPTIONS] [--] COMMAND…",
     .options = hy_train_options,
     .takes_rest = true,
     .bare_rest = true,
     .owns = true,
     .run = hy_cmd_train,
     .summary = "like 'hopyard train', but the ranks end with this command",
     .about = train_about,
     .examples = train_examples},
    {.name = "attach",
     .group = RUNNING,
     .words = "[RUN]",
     .options = attach_options,
     .max_words = 1,
     .run = hy_cmd_attach,
     .summary = "watch a run again",
     .examples = "hopyard attach\nhopyard attach digits"},
    {.name = "stop",
     .group = RUNNING,
     .words = "[RUN]",
     .options = stop_options,
     .max_words = 1,
     .run = hy_cmd_stop,
     .summary = "stop a run and its trials",
     .examples = "hopyard stop 3"},
    {.name = "resume",
     .group = RUNNING,
     .words = "[RUN]",
     .options = resume_options,
     .max_words = 1,
     .run = hy_cmd_resume,
     .start = hy_resume_start,
     .summary = "continue a stopped or killed run, or one with failed trials",
     .about = "Trials that are done or pruned stay; all others run again. The search\n"
              "continues as if it had not been interrupted.",
     .examples = "hopyard resume 3\nhopyard resume digits --detach"},
    {.name = "notebook",
     .group = RUNNING,
     .words = "",
     .options = notebook_options,
     .run = hy_cmd_notebook,
     .summary = "start JupyterLab with a kernel for experiments and trainings",
     .about = notebook_about,
     .examples = "hopyard notebook\n"
                 "hopyard notebook --mode tfonspark --executors 4 --parameter-servers 1\n"
                 "hopyard notebook --mode allreduce --executors 2 --executor-gpus 1"},
    {.name = "ls",
     .group = INSPECTING,
     .words = "",
     .options = json_options,
     .run = hy_cmd_ls,
     .summary = "list the project's runs"},
    {.name = "show",
     .group = INSPECTING,
     .words = "[RUN]",
     .options = show_options,
     .max_words = 1,
     .run = hy_cmd_show,
     .summary = "show a run and its trials",
     .examples = "hopyard show\nhopyard show digits --trials all\nhopyard show 3 --plot\nhopyard show 3 --json"},
    {.name = "best",
     .group = INSPECTING,
     .words = "[RUN]",
     .options = json_options,
     .max_words = 1,
     .run = hy_cmd_best,
     .summary = "show the best trial of a run",
     .examples = "hopyard best 3 --json"},
    {.name = "logs",
     .group = INSPECTING,
     .words = "[RUN] [TRIAL]",
     .options = logs_options,
     .max_words = 2,
     .run = hy_cmd_logs,
     .summary = "print the output of trials",
     .about = logs_about,
     .examples = "hopyard logs 3 7\nhopyard logs -f\nhopyard logs digits 12 --stderr\nhopyard logs rank=0 -f"},
    {.name = "tensorboard",
     .group = INSPECTING,
     .words = "[RUN|PATH]",
     .options = tensorboard_options,
     .max_words = -1,
     .run = hy_cmd_tensorboard,
     .summary = "show the curves and hyperparameters of a run in TensorBoard",
     .about = tensorboard_about,
     .examples = "hopyard tensorboard\nhopyard tensorboard 3 --port 6006\nhopyard tensorboard Logs/TensorFlow"},
    {.name = "ui",
     .group = INSPECTING,
     .words = "",
     .options = ui_options,
     .run = hy_cmd_ui,
     .summary = "show the project's runs in the browser",
     .about = ui_about,
     .examples = "hopyard ui\nhopyard ui --port 8080 --no-browser"},
    {.name = "fs",
     .group = FILES,
     .words = "COMMAND PATH…",
     .raw = hy_fs_main,
     .summary = "local files and files on HDFS: ls, cat, put, get, cp, mv, rm, …"},
    {.name = "records",
     .group = FILES,
     .words = "COMMAND FILE…",
     .raw = hy_records_main,
     .summary = "inspect TFRecord files: head, count, schema, verify"},
    {.name = "share",
     .group = FILES,
     .words = "COMMAND …",
     .raw = hy_share_main,
     .summary = "data sets shared between projects: add, accept, list, remove"},
    {.name = "rm",
     .group = CLEANING,
     .words = "RUN…",
     .options = rm_options,
     .min_words = 1,
     .max_words = -1,
     .run = hy_cmd_rm,
     .summary = "remove runs and their logs",
     .examples = "hopyard rm 3 4\nhopyard rm -f digits"},
    {.name = "gc",
     .group = CLEANING,
     .words = "",
     .options = gc_options,
     .run = hy_cmd_gc,
     .summary = "clean up after processes that were killed",
     .about = gc_about},
    {.name = "import",
     .group = CLEANING,
     .words = "PATH...",
     .min_words = 1,
     .max_words = -1,
     .run = hy_cmd_import,
     .summary = "add the runs of snapshots (run.db) to the store",
     .examples = "hopyard import Logs/TensorFlow/local-20261115-043012/1/run.db\n"
                 "hopyard import .hopyard/runs/*.db"},
    {.name = "agent",
     .group = INSIDE,
     .words = "--join HOST:PORT --key-file FILE",
     .raw = hy_agent_main,
     .summary = "run trials of a run on this machine"},
    {.name = "report",
     .group = INSIDE,
     .words = "[--check] NAME=VALUE…",
     .raw = hy_report_main,
     .summary = "in a trial: report values of metrics"},
    {.name = "driver", .words = "", .raw = hy_cmd_driver, .summary = "the process that executes a run (internal)"},
    {.name = "version", .group = NULL, .words = "", .run = hy_cmd_version, .summary = "print the version"},
    {.name = "help",
     .group = NULL,
     .words = "[COMMAND]",
     .max_words = 1,
     .run = hy_cmd_help,
     .summary = "show help for a command"},
    {0},
};

const struct hy_command *hy_command_find(const char *name)
{
    for (const struct hy_command *c = hy_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
